"""ggml, the library of llama.cpp, through its C interface: Q4_0 and Q8_0 blocks, and activations in blocks of 8 bits.

A graph multiplies all layers. Weights lie in the buffer that rearranges them for the CPU, where ggml has one for their
type. A scale of a longer group or of a row stands in each of its blocks.
"""

import ctypes
from collections.abc import Iterator
from ctypes import POINTER, c_bool, c_char_p, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path

import libggml
import numpy as np

from .work import Activations, K, N, Turn, Variant, Work

BLOCK = 32
F32, Q4_0, Q8_0 = 0, 2, 8


class _InitParams(ctypes.Structure):
    _fields_ = (("mem_size", c_size_t), ("mem_buffer", c_void_p), ("no_alloc", c_bool))


_Log = ctypes.CFUNCTYPE(None, c_int, c_char_p, c_void_p)
_silent = _Log(lambda level, text, data: None)

SIGNATURES = {
    "ggml_log_set": (None, _Log, c_void_p),
    "ggml_init": (c_void_p, _InitParams),
    "ggml_tensor_overhead": (c_size_t,),
    "ggml_graph_overhead": (c_size_t,),
    "ggml_new_tensor_2d": (c_void_p, c_void_p, c_int, c_int64, c_int64),
    "ggml_mul_mat": (c_void_p, c_void_p, c_void_p, c_void_p),
    "ggml_new_graph": (c_void_p, c_void_p),
    "ggml_build_forward_expand": (None, c_void_p, c_void_p),
    "ggml_free": (None, c_void_p),
    "ggml_nbytes": (c_size_t, c_void_p),
    "ggml_backend_alloc_ctx_tensors_from_buft": (c_void_p, c_void_p, c_void_p),
    "ggml_backend_buffer_free": (None, c_void_p),
    "ggml_backend_get_default_buffer_type": (c_void_p, c_void_p),
    "ggml_backend_get_device": (c_void_p, c_void_p),
    "ggml_backend_dev_backend_reg": (c_void_p, c_void_p),
    "ggml_backend_reg_get_proc_address": (c_void_p, c_void_p, c_char_p),
    "ggml_backend_dev_supports_op": (c_bool, c_void_p, c_void_p),
    "ggml_backend_tensor_set": (None, c_void_p, c_void_p, c_size_t, c_size_t),
    "ggml_backend_tensor_get": (None, c_void_p, c_void_p, c_size_t, c_size_t),
    "ggml_backend_graph_compute": (c_int, c_void_p, c_void_p),
    "ggml_backend_cpu_init": (c_void_p,),
    "ggml_backend_cpu_set_n_threads": (None, c_void_p, c_int),
}


class _Library:
    """ggml's functions by their names without the prefix."""

    def __init__(self) -> None:
        folder = next(Path(libggml.__file__).parent.glob("lib*/libggml-cpu.so")).parent
        libraries = [ctypes.CDLL(str(folder / f"libggml-{name}.so"), ctypes.RTLD_GLOBAL) for name in ("base", "cpu")]
        for name, (result, *arguments) in SIGNATURES.items():
            function = getattr(libraries["_cpu_" in name], name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name.removeprefix("ggml_").removeprefix("backend_"), function)

    def context(self, tensors: int) -> int:
        size = tensors * self.tensor_overhead() + self.graph_overhead()
        return self.init(_InitParams(size, None, True))


def variants(work: Work, threads: int) -> Iterator[Variant]:
    name = "Q4_0" if work.bits == 4 else "Q8_0"
    yield Variant(f"ggml {name}", Activations.INT8, _prepare(work, threads))


def _blocks(work: Work, layer: int) -> np.ndarray:
    """A block is a float16 scale and 32 codes; of 4-bit ones, code i has the low half of byte i, code 16+i the high."""
    scales = work.scales(layer, BLOCK).astype(np.float16).reshape(N, -1, 1).view(np.uint8)
    codes = work.codes(layer).reshape(N, -1, BLOCK)
    if work.bits == 4:
        codes = (codes + 8).astype(np.uint8)
        codes = codes[..., : BLOCK // 2] | codes[..., BLOCK // 2 :] << 4
    return np.ascontiguousarray(np.concatenate([scales, codes.view(np.uint8)], axis=-1))


def _rearranging_buffers(ggml: _Library, device: int) -> Iterator[int]:
    registry = ggml.dev_backend_reg(device)
    address = ggml.reg_get_proc_address(registry, b"ggml_backend_dev_get_extra_bufts")
    if not address:
        return
    types = ctypes.CFUNCTYPE(POINTER(c_void_p), c_void_p)(address)(device)
    index = 0
    while types and types[index]:
        yield types[index]
        index += 1


def _allocate(ggml: _Library, backend: int, work: Work) -> list[int]:
    """Tensors for the layers' weights, in the first kind of buffer whose product the backend has."""
    device = ggml.get_device(backend)
    code_type = Q4_0 if work.bits == 4 else Q8_0
    for kind in (*_rearranging_buffers(ggml, device), ggml.get_default_buffer_type(backend)):
        context = ggml.context(work.layers + 2)
        weights = [ggml.new_tensor_2d(context, code_type, K, N) for _ in range(work.layers)]
        buffer = ggml.alloc_ctx_tensors_from_buft(context, kind)
        product = ggml.mul_mat(context, weights[0], ggml.new_tensor_2d(context, F32, K, 1))
        if buffer and ggml.dev_supports_op(device, product):
            return weights
        if buffer:
            ggml.buffer_free(buffer)
        ggml.free(context)
    raise RuntimeError("ggml has no buffer for these weights")


def _prepare(work: Work, threads: int):
    ggml = _Library()
    ggml.log_set(_silent, None)  # a line for each tensor otherwise
    backend = ggml.cpu_init()
    ggml.cpu_set_n_threads(backend, threads)
    weights = _allocate(ggml, backend, work)
    for layer, weight in enumerate(weights):
        blocks = _blocks(work, layer)
        assert blocks.nbytes == ggml.nbytes(weight)
        ggml.tensor_set(weight, blocks.ctypes.data, 0, blocks.nbytes)

    def prepare(rows: np.ndarray) -> Turn:
        context = ggml.context(1 + work.layers)
        x = ggml.new_tensor_2d(context, F32, K, len(rows))
        products = [ggml.mul_mat(context, weight, x) for weight in weights]
        graph = ggml.new_graph(context)
        for product in products:
            ggml.build_forward_expand(graph, product)
        ggml.alloc_ctx_tensors_from_buft(context, ggml.get_default_buffer_type(backend))
        ggml.tensor_set(x, rows.ctypes.data, 0, rows.nbytes)

        def run() -> None:
            if ggml.graph_compute(backend, graph) != 0:
                raise RuntimeError("ggml did not compute the graph")

        def outputs() -> list[np.ndarray]:
            read = [np.empty((len(rows), N), np.float32) for _ in products]
            for product, y in zip(products, read, strict=True):
                ggml.tensor_get(product, y.ctypes.data, 0, y.nbytes)
            return read

        return Turn(run, outputs)

    return prepare
