"""PyTorch's CPU operators: codes with float activations, and products with activations quantized on the fly."""

import warnings
from collections.abc import Callable, Iterator

import numpy as np
import torch

from .work import Activations, N, Turn, Variant, Work

FLOATS = {Activations.FLOAT32: torch.float32, Activations.BFLOAT16: torch.bfloat16}
ENGINES = ("onednn", "fbgemm")
Product = Callable[[torch.Tensor], torch.Tensor]


def variants(work: Work, threads: int) -> Iterator[Variant]:
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    for activations, dtype in FLOATS.items():
        product = _codes8 if work.bits == 8 else _codes4
        name = f"torch int{work.bits}pack_mm {activations}"
        yield Variant(name, activations, _prepare(work, dtype, lambda layer, p=product, d=dtype: p(work, layer, d)))
    if work.bits == 8:
        for engine in (e for e in ENGINES if e in torch.backends.quantized.supported_engines):
            name = f"torch linear_dynamic {engine}"
            make = lambda layer, e=engine: _dynamic(work, layer, e)  # noqa: E731
            yield Variant(name, Activations.INT8, _prepare(work, torch.float32, make))


def _codes8(work: Work, layer: int, dtype: torch.dtype) -> Product:
    weight = torch.from_numpy(work.codes(layer))
    scales = torch.from_numpy(work.scales(layer)[:, 0].copy()).to(dtype)
    return lambda x: torch.ops.aten._weight_int8pack_mm(x, weight, scales)


def _codes4(work: Work, layer: int, dtype: torch.dtype) -> Product:
    codes = torch.from_numpy(work.codes(layer).astype(np.int32) + 8)
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes, 1)
    scales = torch.from_numpy(work.scales(layer).T.copy())
    pairs = torch.stack([scales, torch.zeros_like(scales)], dim=-1).to(dtype)
    return lambda x: torch.ops.aten._weight_int4pack_mm_for_cpu(x, packed, work.group, pairs)


def _dynamic(work: Work, layer: int, engine: str) -> Product:
    torch.backends.quantized.engine = engine
    codes = torch.from_numpy(work.codes(layer))
    scales = torch.from_numpy(work.scales(layer)[:, 0].astype(np.float64))
    warnings.simplefilter("ignore", UserWarning)  # of the old quantized tensors, which the operator still takes
    weight = torch._make_per_channel_quantized_tensor(codes, scales, torch.zeros(N, dtype=torch.long), 0)
    packed = torch.ops.quantized.linear_prepack(weight, None)

    def product(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.quantized.linear_dynamic(x, packed, False)

    return product


def _prepare(work: Work, dtype: torch.dtype, make: Callable[[int], Product]):
    products = [make(layer) for layer in range(work.layers)]

    def prepare(rows: np.ndarray) -> Turn:
        x, outputs = torch.from_numpy(rows).to(dtype), []

        def run() -> None:
            outputs[:] = [product(x) for product in products]

        return Turn(run, lambda: [output.float().numpy() for output in outputs])

    return prepare
