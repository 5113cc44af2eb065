"""Three layers that read one input, joined into one kernel: the same bits, one dispatch, the same state dict."""

import numpy as np
from clika_runtime import count_dispatches, nn, split_with_sizes


class Attention(nn.Module):
    """Query, key and value projections of one input, with fewer key and value heads."""

    def __init__(self):
        super().__init__()
        self.query = nn.Linear(256, 256)
        self.key = nn.Linear(256, 64)
        self.value = nn.Linear(256, 64)

    @property
    def projections(self):
        return [self.query, self.key, self.value]


def main() -> None:
    rng = np.random.default_rng(0)
    sizes = {"query": 256, "key": 64, "value": 64}
    checkpoint = {}
    for name, size in sizes.items():
        checkpoint[f"{name}.weight"] = rng.standard_normal((size, 256), np.float32)
        checkpoint[f"{name}.bias"] = rng.standard_normal(size, np.float32)
    x = rng.standard_normal((2, 10, 256), np.float32)

    plain = Attention()
    plain.load_state_dict(checkpoint)
    with count_dispatches() as before:
        expected = [layer(x).numpy() for layer in plain.projections]

    fused = Attention()
    fused.load_state_dict(checkpoint)
    group = nn.fuse_linears(*fused.projections, name="q/k/v")  # before the first forward
    with count_dispatches() as after:
        outputs = split_with_sizes(group(x), group.split_sizes)  # views, no copy

    print(f"dispatches: {before.total} side by side, {after.total} fused")
    same = all(np.array_equal(y.numpy(), want) for y, want in zip(outputs, expected, strict=True))
    print(f"same bits: {same}")
    kept = all(np.array_equal(value.numpy(), checkpoint[name]) for name, value in fused.state_dict().items())
    print(f"state dict unchanged: {kept}")
    print(group.explain())


if __name__ == "__main__":
    main()
