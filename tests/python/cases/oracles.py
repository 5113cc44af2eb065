"""References in float64 for the field cases, and the settings a result must not depend on."""

import itertools
import math
from collections.abc import Callable, Iterator

import clika_runtime
import ml_dtypes
import numpy as np
from clika_runtime import nn

EPS = 2.0**-24
RESIDENCIES = ("packed", "per_call")
THREADS = (1, 2)

_erf = np.vectorize(math.erf, otypes=[np.float64])
_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def randn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def sigmoid(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda x: np.where(np.isnan(x), x, np.maximum(x, 0)),
    "sigmoid": sigmoid,
    "tanh": np.tanh,
    "silu": lambda x: x * sigmoid(x),
    "gelu": lambda x: x * 0.5 * _erfc(-x / math.sqrt(2)),
    "gelu_tanh": lambda x: x * sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)),
}


def gated(name: str, gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    if name == "situ":
        return 4 * np.tanh(gate / 4) * sigmoid(gate) * 25 * np.tanh(up / 25)
    return ACTIVATIONS[{"swiglu": "silu", "geglu": "gelu", "reglu": "relu"}[name]](gate) * up


def linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    y = x.astype(np.float64) @ weight.astype(np.float64).T
    return y if bias is None else y + bias.astype(np.float64)


def assert_close_linear(y, x, weight, bias=None, activation: str | None = None) -> None:
    """The bound on any order of float32 sums, element by element: no flat tolerance that hides a tail."""
    reference = linear(x, weight, bias)
    bound = np.abs(x).astype(np.float64) @ np.abs(weight).astype(np.float64).T
    if bias is not None:
        bound = bound + np.abs(bias)
    bound = (x.shape[-1] + 16) * EPS * bound
    if activation is not None:
        reference = ACTIVATIONS[activation](reference)
        bound = 1.2 * bound + 4e-6 * np.abs(reference) + 5e-7
    y = np.asarray(y)
    assert y.shape == reference.shape
    off = np.abs(y - reference)
    assert (off <= bound + np.spacing(np.abs(reference).astype(np.float32))).all(), (off - bound).max()


_PAD = {"zeros": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def conv(x, weight, bias=None, *, stride=1, dilation=1, pads=None, mode="zeros", groups=1) -> np.ndarray:
    """Channels-last convolution in float64, written as loops over taps; `pads` is (before, after) an axis."""
    rank = weight.ndim - 2
    stride, dilation = (v if isinstance(v, tuple) else (v,) * rank for v in (stride, dilation))
    pads = pads or ((0, 0),) * rank
    x = np.pad(x.astype(np.float64), ((0, 0), *pads, (0, 0)), mode=_PAD[mode])
    kernel = weight.shape[2:]
    sizes = tuple(
        (n - d * (k - 1) - 1) // s + 1 for n, d, k, s in zip(x.shape[1:-1], dilation, kernel, stride, strict=True)
    )
    outs, ins = weight.shape[0] // groups, weight.shape[1]
    y = np.zeros((x.shape[0], *sizes, weight.shape[0]))
    for tap in itertools.product(*map(range, kernel)):
        window = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, n, s in zip(tap, dilation, sizes, stride, strict=True)
        )
        part = x[(slice(None), *window)]
        for g in range(groups):
            columns = slice(g * outs, (g + 1) * outs)
            matrix = weight[(columns, slice(None), *tap)].astype(np.float64)
            y[..., columns] += part[..., g * ins : (g + 1) * ins] @ matrix.T
    return y if bias is None else y + bias


def assert_close_conv(y, x, weight, bias=None, **geometry) -> None:
    reference = conv(x, weight, bias, **geometry)
    bound = conv(np.abs(x), np.abs(weight), None if bias is None else np.abs(bias), **geometry)
    y = np.asarray(y)
    assert y.shape == reference.shape
    terms = math.prod(weight.shape[1:]) + 16
    assert (np.abs(y - reference) <= terms * EPS * bound + np.spacing(np.abs(reference).astype(np.float32))).all()


def same_bits(a, b) -> bool:
    """Bitwise equal, all NaNs counting as one."""
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    bits = {1: np.uint8, 2: np.uint16, 4: np.uint32}[a.dtype.itemsize]
    equal = np.ascontiguousarray(a).view(bits) == np.ascontiguousarray(b).view(bits)
    if a.dtype.kind in "fV":
        equal |= np.isnan(a) & np.isnan(b)
    return bool(equal.all())


def to_bfloat16(x: np.ndarray) -> np.ndarray:
    """Round to nearest even by integer arithmetic; NaN stays NaN."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    quiet = ((bits >> 16) | 0x40).astype(np.uint16)
    return np.where(np.isnan(x), quiet, rounded).view(ml_dtypes.bfloat16)


def bound_linear(weight, bias=None, **options) -> nn.Linear:
    weight = np.asarray(weight)
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, **options)
    layer.bind(weight=weight) if bias is None else layer.bind(weight=weight, bias=bias)
    return layer


def bound_conv(weight, bias=None, *, kind=nn.Conv, groups=1, **options) -> nn.Conv:
    weight = np.asarray(weight)
    layer = kind(weight.shape[1] * groups, weight.shape[0], weight.shape[2:], groups=groups, bias=bias is not None,
                 **options)  # fmt: skip
    layer.bind(weight=weight) if bias is None else layer.bind(weight=weight, bias=bias)
    return layer


def thread_counts() -> Iterator[int]:
    """Each of THREADS in turn, and the former setting at the end."""
    before = clika_runtime.get_num_threads()
    try:
        for count in THREADS:
            clika_runtime.set_num_threads(count)
            yield count
    finally:
        clika_runtime.set_num_threads(before)


def same_everywhere(build: Callable[[str], nn.Module], x, fuse: Callable | None = nn.fuse_linears) -> np.ndarray:
    """The output of `build(residency)`, which may not depend on threads, residency, a group around it or warmth.

    `fuse` joins two of them for the group runs; None where the layer cannot be in a group.
    """
    first = None
    for threads in thread_counts():
        for residency in RESIDENCIES:
            layer = build(residency)
            results = {"first": layer(x), "warm": layer(x)}
            if fuse is not None:
                group = fuse(build(residency), build(residency))
                left, right = clika_runtime.split_with_sizes(group(x), group.split_sizes)
                results |= {"group, left": left, "group, right": right}
            for label, y in results.items():
                y = np.asarray(y)
                first = y if first is None else first
                assert same_bits(y, first), f"{label}, {residency}, {threads} threads"
    return first
