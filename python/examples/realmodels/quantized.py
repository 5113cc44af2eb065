"""A network's linears in few bits, with scales chosen for what each of them reads."""

from collections.abc import Callable

import numpy as np
from clika_runtime import Tensor, nn


class Watched(nn.Module):
    """A linear that keeps the mean square of each of its inputs."""

    def __init__(self, linear: nn.Linear):
        super().__init__()
        self.linear = linear
        self._squares = np.zeros(linear.in_features)
        self._rows = 0

    def forward(self, x: Tensor) -> Tensor:
        rows = np.asarray(x, np.float64).reshape(-1, self.linear.in_features)
        self._squares += np.square(rows).sum(axis=0)
        self._rows += len(rows)
        return self.linear(x)

    @property
    def mean_squares(self) -> np.ndarray:
        if self._rows == 0:
            raise RuntimeError("no sample has reached this linear")
        return (self._squares / self._rows).astype(np.float32)


def quantize_linears(model: nn.Module, scheme: nn.QuantScheme | str, run_samples: Callable[[], object]) -> None:
    """Replaces every linear below `model` by a quantized one of least squared error at its output.

    `run_samples` runs the model once, on inputs like those it will serve.
    """
    places = [
        (parent, name, linear)
        for parent in model.modules()
        for name, linear in parent.named_children()
        if isinstance(linear, nn.Linear)
    ]
    watched = [Watched(linear) for *_, linear in places]
    for (parent, name, _), watch in zip(places, watched, strict=True):
        setattr(parent, name, watch)
    try:
        run_samples()
    finally:
        for parent, name, linear in places:
            setattr(parent, name, linear)
    importance = [watch.mean_squares for watch in watched]
    for (parent, name, linear), squares in zip(places, importance, strict=True):
        setattr(parent, name, nn.QLinearWoQ.quantize(linear, scheme, scales="mse", importance=squares))


def expected_bytes(model: nn.Module) -> int:
    """What the quantized linears below `model` take once they have run: codes and what their groups share in one
    pack, each bias as it was loaded and as its kernel reads it.
    """
    total = 0
    for layer in model.modules():
        if not isinstance(layer, nn.QLinearWoQ):
            continue
        scheme = layer.scheme
        groups = 1 if scheme.group_size < 0 else -(-layer.in_features // scheme.group_size)
        scale = 1 if isinstance(scheme.scale_dtype, str) else scheme.scale_dtype.itemsize
        shared = scale if scheme.symmetric else 2 * scale if scheme.minimum else scale + 1
        codes = -(-layer.in_features * scheme.bits // 8)
        total += layer.out_features * (codes + groups * shared + 2 * np.dtype(np.float32).itemsize * layer.has_bias)
    return total
