"""GGUF: the block formats of llama.cpp that layers hold exactly.

| type | block | scheme |
|---|---|---|
| Q8_0 | 32 signed 8-bit codes, an f16 scale | int8_g32 |
| Q4_0 | 32 codes less 8, an f16 scale | int4_g32 |
| Q5_0 | 32 codes less 16, an f16 scale | int8_g32 |
| Q4_1, Q5_1 | 32 codes, an f16 scale and an f16 minimum | int4_g32_min, int8_g32_min |
| Q2_K | 256 codes; 16 groups: f16 scale and minimum times 4-bit ones | int2_g16_min_f32 |
| Q4_K, Q5_K | 256 codes; 8 groups: f16 scale and minimum times 6-bit ones | int4_g32_min_f32, int8_g32_min_f32 |
| Q6_K | 256 codes less 32; 16 groups: an f16 scale times an int8 one | int8_g16_f32 |
| MXFP4 | 32 e2m1 codes, an e8m0 scale | mxfp4 |

A minimum is added: code * scale + minimum. A product of two scales is taken once, in float32, as GGML itself takes it.
Codes of 5 and 6 bits are held in 8.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from .._core import ClikaRTError
from ..nn import QuantScheme
from ._checkpoint import Checkpoint, optional_package
from ._codes import to_bytes
from ._entries import Entries, describe
from ._gguf_blocks import BLOCK_BYTES, INTEGERS, mxfp4
from ._linear import QuantizedLinear, integer_linear, minimum_linear, with_bias


class GgufTensor(NamedTuple):
    """A tensor as GGUF stores it: `data` uint8 [out, bytes of a row] (float32, float16 for those types)."""

    tensor_type: str
    data: np.ndarray


def open(path: str | os.PathLike[str]) -> Checkpoint:
    """The tensors of a GGUF file, `GgufTensor` by name, its memory mapped.

    ClikaRTError: the package gguf is missing, there is no such file, or it is damaged or big-endian.
    """
    package = optional_package("gguf", "gguf")
    try:
        reader = package.GGUFReader(os.fspath(path))
    except (OSError, ValueError, IndexError, KeyError) as error:
        raise ClikaRTError(f"{os.fspath(path)}: cannot be read as GGUF: {error}") from error
    if reader.endianess != package.GGUFEndian.LITTLE:
        raise ClikaRTError(f"{os.fspath(path)}: found a big-endian file, expected a little-endian one")
    found = {tensor.name: GgufTensor(tensor.tensor_type.name, tensor.data) for tensor in reader.tensors}
    return Checkpoint({name: (lambda tensor=tensor: tensor) for name, tensor in found.items()}, format="gguf")


def read(tensors: Mapping[str, Any], prefix: str = "") -> QuantizedLinear:
    """The linear whose weight is `prefix`.weight ("blk.0.attn_q", say) in one of the types of this module's table.

    `tensors`: from `open`; or `GgufTensor`s, or the package's own `ReaderTensor`s, by name. ClikaRTError: there is no
    such tensor, its type is another, or its bytes do not make whole blocks.
    """
    name = f"{prefix}.weight" if prefix else "weight"
    entries = Entries(_biases(tensors, prefix), prefix, "GGUF")
    if name not in tensors:
        raise entries.refused(f"there is no tensor {name}")
    tensor = _tensor(tensors[name])
    kind = tensor.tensor_type
    if kind not in BLOCK_BYTES:
        raise entries.refused(
            f"{name}: found the type {kind}, expected one of {', '.join(BLOCK_BYTES)}; {_remedy(kind)}"
        )
    blocks = _blocks(entries, name, np.asarray(tensor.data), kind)
    return _mxfp4(entries, blocks) if kind == "MXFP4" else _integers(entries, blocks, kind)


def _remedy(kind: str) -> str:
    plain = kind in ("F32", "F16", "BF16")
    return "it is not quantized: load it into a Linear" if plain else "quantize the model to one of them"


def _blocks(entries: Entries, name: str, data: np.ndarray, kind: str) -> np.ndarray:
    """uint8 [out, blocks, bytes of a block]."""
    size = BLOCK_BYTES[kind]
    if data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] % size or data.size == 0:
        raise entries.refused(
            f"{name}: found {describe(data)}, expected uint8 [out, bytes], bytes a multiple of {size}, the size of a "
            f"{kind} block"
        )
    return np.ascontiguousarray(data).reshape(data.shape[0], -1, size)


def _integers(entries: Entries, blocks: np.ndarray, kind: str) -> QuantizedLinear:
    found = INTEGERS[kind](blocks)
    widths = {"bits": found.bits, "group_size": found.group_size}
    if found.minimum is None:
        return integer_linear(entries, found.codes, found.scale, None, **widths)
    return minimum_linear(entries, found.codes, found.scale, found.minimum, **widths)


def _mxfp4(entries: Entries, blocks: np.ndarray) -> QuantizedLinear:
    codes, scale = mxfp4(blocks)
    if (scale == 255).any():
        row, block = (int(i) for i in np.argwhere(scale == 255)[0])
        raise entries.refused(
            f"weight: found the scale 255 in row {row}, block {block}, which is no number in e8m0, expected 0 to 254"
        )
    state = {"weight": to_bytes(codes, 4), "weight_scale": scale}
    return with_bias(entries, codes.shape[1], codes.shape[0], QuantScheme.parse("mxfp4"), state)


def _tensor(value: Any) -> GgufTensor:
    kind = value.tensor_type
    return GgufTensor(kind if isinstance(kind, str) else kind.name, value.data)


def _biases(tensors: Mapping[str, Any], prefix: str) -> dict[str, np.ndarray]:
    """The bias as an array, where there is one (GGUF keeps it in float32, or in 16 bits)."""
    name = f"{prefix}.bias" if prefix else "bias"
    if name not in tensors:
        return {}
    tensor = _tensor(tensors[name])
    data = np.asarray(tensor.data)
    if tensor.tensor_type == "BF16" and data.dtype == np.uint8 and data.size % 2 == 0:
        bits = np.ascontiguousarray(data).reshape(-1).view(np.uint16)
        data = (bits.astype(np.uint32) << 16).view(np.float32)
    return {name: data}
