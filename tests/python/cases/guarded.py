"""Runs layers whose input and parameters each end at, or start after, a page that may not be touched.

    python guarded.py after|before

A program of its own, because a stray read kills the process. `after`: the last byte is the last of its page and the
next page is forbidden; `before`: the first byte follows a forbidden page.
"""

import ctypes
import faulthandler
import mmap
import sys
from itertools import product

import clika_runtime
import ml_dtypes
import numpy as np
from clika_runtime import Tensor, nn
from oracles import same_bits

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
PAGE = mmap.PAGESIZE
PROT_NONE = 0


def guarded(array: np.ndarray, side: str) -> np.ndarray:
    """A copy of `array` that touches a forbidden page."""
    array = np.ascontiguousarray(array)
    data = -(-max(array.nbytes, 1) // PAGE) * PAGE
    region = mmap.mmap(-1, data + PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = ctypes.addressof(ctypes.c_char.from_buffer(region))
    forbidden = address + data if side == "after" else address
    if _libc.mprotect(forbidden, PAGE, PROT_NONE) != 0:
        raise OSError(ctypes.get_errno(), "mprotect")
    start = data - array.nbytes if side == "after" else PAGE
    copy = np.frombuffer(region, array.dtype, array.size, start).reshape(array.shape)
    copy[...] = array
    return copy


def check(build, parameters: dict[str, np.ndarray], x: np.ndarray, side: str) -> None:
    """The layer with every buffer guarded gives what it gives with ordinary ones."""
    ordinary = build()
    ordinary.bind(**parameters)
    expected = np.asarray(ordinary(x))
    layer = build()
    held = {name: Tensor.from_data(guarded(value, side)) for name, value in parameters.items()}
    layer.load_state_dict(held, assign=True)
    shared = Tensor.from_data(guarded(x, side))
    for _ in range(2):
        assert same_bits(layer(shared), expected), (layer, x.shape)


def main(side: str) -> None:
    rng = np.random.default_rng(25)
    sizes = (1, 3, 5, 9, 17, 31)
    for inputs, outputs, residency in product(sizes, sizes, ("packed", "per_call")):
        parameters = {
            "weight": rng.standard_normal((outputs, inputs), np.float32),
            "bias": rng.standard_normal(outputs, np.float32),
        }
        for rows in (1, 2, 5):
            x = rng.standard_normal((rows, inputs), np.float32)
            check(lambda: nn.Linear(inputs, outputs, residency=residency), parameters, x, side)  # noqa: B023
    for inputs, outputs, dtype in product((1, 3, 17), (3, 17), ("float16", "bfloat16")):
        numpy_dtype = np.float16 if dtype == "float16" else ml_dtypes.bfloat16
        parameters = {
            "weight": rng.standard_normal((outputs, inputs), np.float32).astype(numpy_dtype),
            "bias": rng.standard_normal(outputs, np.float32).astype(numpy_dtype),
        }
        x = rng.standard_normal((5, inputs), np.float32).astype(numpy_dtype)
        check(lambda: nn.Linear(inputs, outputs, dtype=getattr(clika_runtime, dtype)), parameters, x, side)  # noqa: B023
    for inputs, outputs, rows in product((1, 5, 9, 31), (1, 3, 17), (1, 5)):
        for bits, symmetric in product((4, 8), (True, False)):
            groups = -(-inputs // 8)
            width = -(-inputs // 2) if bits == 4 else inputs
            codes = rng.integers(0, 100, (outputs, width))
            parameters = {
                "weight": codes.astype(np.int8 if bits == 8 and symmetric else np.uint8),
                "weight_scale": rng.random((outputs, groups), np.float32),
                "bias": rng.standard_normal(outputs, np.float32),
            }
            if not symmetric:
                parameters["weight_zero_point"] = rng.integers(0, 16, (outputs, groups), np.uint8)
            scheme = nn.QuantScheme(bits, symmetric, 8, clika_runtime.float32)
            x = rng.standard_normal((rows, inputs), np.float32)
            check(lambda: nn.QLinearWoQ(inputs, outputs, scheme=scheme), parameters, x, side)  # noqa: B023
    for channels, kernel, mode in product((1, 3, 5), ((3,), (3, 2)), ("zeros", "reflect")):
        parameters = {
            "weight": rng.standard_normal((7, channels, *kernel), np.float32),
            "bias": rng.standard_normal(7, np.float32),
        }
        x = rng.standard_normal((2, *(5 + k for k in kernel), channels), np.float32)
        check(lambda: nn.Conv(channels, 7, kernel, padding=1, padding_mode=mode), parameters, x, side)  # noqa: B023


if __name__ == "__main__":
    faulthandler.enable()
    main(sys.argv[1])
