"""The main job on real networks: `./dev demo`, or `python python/examples/demo.py`.

Loads a sentence encoder and the three MTCNN nets with their real weights, runs each as loaded and with its sibling
layers fused, and checks that
  - both give the same bits,
  - fusing saves the dispatches it should,
  - a fused network still has its checkpoint's state dict,
  - the results are those of the original implementations, and the encoder ranks sentence pairs as the original,
  - the encoder with int8 and int4 weights stays close to itself, in the memory that its schemes promise.
Ends with a table and leaves with 1 when a check fails.
"""

import argparse
import copy
import sys
from collections.abc import Callable, Sequence

import numpy as np
from clika_runtime import cpu_info, get_num_threads, kernels, set_num_threads
from realmodels import inputs, reference
from realmodels.encoder import SentenceEncoder
from realmodels.measure import Row, dispatches, forward_row, group_row
from realmodels.mtcnn import NETS
from realmodels.quantized import expected_bytes
from realmodels.report import Check, print_checks, print_table

# The nets' float32 results differ from the original's by the order of their sums alone. Observed: 1.4e-7 for an
# embedding's elements, 1.1e-6 for the detection nets (values up to 1).
COSINE_TOLERANCE = 1e-5
NET_TOLERANCE = 1e-5

FEW = inputs.SENTENCES[:2]  # what quantized encoders are timed with

# The least cosine of a sentence's embedding with its float32 one. Observed: 0.9994 and 0.9844.
# At four bits it takes a minimum a group: without one ("int4_g32", "int4_g32_asym") rounding to nearest ends at 0.96.
QUANTIZED = {"int8": 0.999, "int4_g32_min": 0.98}


def _same_bits(plain: Sequence[np.ndarray], fused: Sequence[np.ndarray]) -> bool:
    return len(plain) == len(fused) and all(np.array_equal(a, b) for a, b in zip(plain, fused, strict=True))


def _common_checks(name: str, build: Callable, forward: Callable, checks: list[Check]) -> tuple:
    """Builds the network twice, fuses one, and checks what holds for every network."""
    plain, fused = build(), build()
    keys = list(plain.state_dict())
    weights = {key: np.array(value) for key, value in plain.state_dict().items()}
    fused.fuse()
    before, after = forward(plain), forward(fused)
    same = _same_bits(before, after)
    checks.append(Check(f"{name}: fused and unfused give the same bits", same, "yes" if same else "NO"))

    expected = sum(len(group.parts) - 1 for group in plain.groups)
    counts = [dispatches(lambda net=net: forward(net))[0] for net in (plain, fused)]
    checks.append(
        Check(f"{name}: dispatches", counts[0] - counts[1] == expected, f"{counts[0]} before, {counts[1]} after")
    )

    state = fused.state_dict()
    kept = list(state) == keys and all(np.array_equal(np.asarray(state[key]), weights[key]) for key in keys)
    detail = f"{len(keys)} tensors, {'bit for bit' if kept else 'CHANGED'}"
    checks.append(Check(f"{name}: the fused state dict is the checkpoint's", kept, detail))
    return plain, fused, after


def _rows(name: str, plain, fused, forward: Callable, repeats: int) -> list[Row]:
    groups = [group_row(name, a, b, repeats) for a, b in zip(plain.groups, fused.groups, strict=True)]
    return [*groups, forward_row(name, lambda: forward(plain), lambda: forward(fused), repeats)]


def run_encoder(repeats: int, live: bool) -> tuple[list[Row], list[Check]]:
    def build():
        return SentenceEncoder(reference.encoder_folder())

    def forward(net):
        return (net(inputs.SENTENCES),)

    checks: list[Check] = []
    plain, fused, (embeddings,) = _common_checks("encoder", build, forward, checks)
    expected, source = reference.encoder_reference(inputs.SENTENCES, live)
    left, right = (list(side) for side in zip(*inputs.PAIRS, strict=True))
    cosines = [np.einsum("nd,nd->n", e[left].astype(np.float64), e[right]) for e in (embeddings, expected)]
    off = float(np.abs(cosines[0] - cosines[1]).max())
    checks.append(
        Check(
            f"encoder: cosines within {COSINE_TOLERANCE:g} of the original",
            off <= COSINE_TOLERANCE,
            f"{off:.1e} off; elements {np.abs(embeddings - expected).max():.1e} off ({source})",
        )
    )
    ranks = [np.argsort(-c, kind="stable").tolist() for c in cosines]
    order = " > ".join(f"{cosines[0][i]:.3f}" for i in ranks[0])
    checks.append(Check("encoder: ranks the sentence pairs as the original", ranks[0] == ranks[1], order))
    return _rows("encoder", plain, fused, forward, repeats), checks


def run_quantized(repeats: int, live: bool) -> tuple[list[Row], list[Check]]:
    original = SentenceEncoder(reference.encoder_folder())
    wanted = original(inputs.SENTENCES)
    rows, checks = [], []
    for scheme, least in QUANTIZED.items():
        name = f"encoder {scheme}"

        quantized = SentenceEncoder(reference.encoder_folder()).quantize(scheme, inputs.SAMPLES)

        def build(quantized=quantized):
            return copy.deepcopy(quantized)

        def forward(net):
            return (net(inputs.SENTENCES),)

        plain, fused, (embeddings,) = _common_checks(name, build, forward, checks)
        cosines = np.einsum("nd,nd->n", embeddings.astype(np.float64), wanted)
        detail = f"{cosines.min():.4f} to {cosines.max():.4f}, {cosines.mean():.4f} on average"
        checks.append(Check(f"{name}: cosines with float32 at least {least}", bool(cosines.min() >= least), detail))
        counts = [dispatches(lambda net=net: forward(net))[0] / len(net.blocks) for net in (plain, fused)]
        detail = "{:g} and {:g}".format(*counts)
        checks.append(Check(f"{name}: six dispatches a layer, four when fused", counts == [6, 4], detail))
        resident, expected = fused.resident_bytes, expected_bytes(fused)
        detail = f"{resident:,} of {expected:,}, {resident / original.resident_bytes:.3f} of float32's"
        checks.append(Check(f"{name}: resident bytes", resident == expected, detail))
        rows.append(group_row(name, plain.groups[0], fused.groups[0], repeats))
        rows.append(forward_row(name, lambda net=plain: net(FEW), lambda net=fused: net(FEW), repeats))
    return rows, checks


def run_mtcnn(repeats: int, live: bool) -> tuple[list[Row], list[Check]]:
    rows, checks = [], []
    tensors = inputs.net_inputs()
    expected, source = reference.mtcnn_reference(tensors, live)
    for name, net_class in NETS.items():

        def build(net_class=net_class):
            return net_class(reference.mtcnn_folder())

        def forward(net, x=tensors[name]):
            return net(x)

        plain, fused, outputs = _common_checks(name, build, forward, checks)
        off = {
            label: float(np.abs(y - want).max()) if y.shape == want.shape else np.inf
            for label, y, want in zip(net_class.outputs, outputs, expected[name], strict=True)
        }
        detail = ", ".join(f"{label} {value:.1e}" for label, value in off.items()) + f" off ({source})"
        passed = all(value <= NET_TOLERANCE for value in off.values())
        checks.append(Check(f"{name}: within {NET_TOLERANCE:g} of the original", passed, detail))
        rows += _rows(name, plain, fused, forward, repeats)
    return rows, checks


NETWORKS = {"encoder": run_encoder, "quantized": run_quantized, "mtcnn": run_mtcnn}


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=NETWORKS, action="append", help="only this one (may be repeated)")
    parser.add_argument("--repeats", type=int, default=15, help="samples a time is the median of (default 15)")
    parser.add_argument("--threads", type=int, default=0, help="threads of the runtime (default: all CPUs)")
    parser.add_argument(
        "--stored", action="store_true", help="compare with the stored results even where PyTorch is installed"
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_arguments(arguments)
    if options.threads:
        set_num_threads(options.threads)
    rows: list[Row] = []
    checks: list[Check] = []
    for name in options.network or NETWORKS:
        more_rows, more_checks = NETWORKS[name](options.repeats, not options.stored)
        rows += more_rows
        checks += more_checks
    cpu = cpu_info()
    print_table(f"{cpu['brand']}, kernels for {cpu['isa']}, {get_num_threads()} threads", rows)
    print_checks(checks)
    failed = sum(not check.passed for check in checks)
    print(f"{len(checks) - failed} of {len(checks)} checks passed; {len(kernels.list())} kernels in the cache")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
