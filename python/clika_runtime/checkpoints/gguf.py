"""GGUF: the block formats of llama.cpp that layers hold exactly.

| type | block | scheme |
|---|---|---|
| Q8_0 | 32 signed 8-bit codes, an f16 scale | int8_g32 |
| Q4_0 | 32 codes less 8, an f16 scale | int4_g32 |
| Q6_K | 256 codes less 32; 16 groups: an f16 scale times an int8 one | int8_g16_f32 |
| MXFP4 | 32 e2m1 codes, an e8m0 scale | mxfp4 |

A product of two scales is taken once, in float32, as GGML itself takes it. GGUF's bytes pair a code with the one half a
block (or 32 codes) further on; layers pair neighbours.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from .._core import ClikaRTError
from ..nn import QuantScheme
from ._checkpoint import Checkpoint, optional_package
from ._codes import to_nibbles
from ._entries import Entries, describe
from ._linear import QuantizedLinear, integer_linear, with_bias


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
    kind = _KINDS.get(tensor.tensor_type)
    if kind is None:
        raise entries.refused(
            f"{name}: found the type {tensor.tensor_type}, expected one of {', '.join(_KINDS)}; "
            + (
                "it is not quantized: load it into a Linear"
                if tensor.tensor_type in ("F32", "F16", "BF16")
                else "quantize the model to one of them"
            )
        )
    data = np.asarray(tensor.data)
    if data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] % kind.bytes:
        raise entries.refused(
            f"{name}: found {describe(data)}, expected uint8 [out, bytes], bytes a multiple of {kind.bytes}, the size "
            f"of a {tensor.tensor_type} block"
        )
    rows = data.shape[0]
    return kind.reader(entries, np.ascontiguousarray(data).reshape(rows, -1, kind.bytes))


def _tensor(value: Any) -> GgufTensor:
    kind = value.tensor_type
    return GgufTensor(kind if isinstance(kind, str) else kind.name, value.data)


def _biases(tensors: Mapping[str, Any], prefix: str) -> dict[str, np.ndarray]:
    """The bias as an array, where there is one (GGUF keeps it in float32, or in 16 bits)."""
    name = f"{prefix}.bias" if prefix else "bias"
    if name not in tensors:
        return {}
    tensor = _tensor(tensors[name])
    if tensor.tensor_type == "BF16":
        bits = np.ascontiguousarray(tensor.data).view(np.uint16)
        return {name: (bits.astype(np.uint32) << 16).view(np.float32)}
    return {name: np.asarray(tensor.data)}


# Blocks are uint8 [out, blocks, bytes of a block]; what is answered below has the codes of a row side by side.


def _halves(pairs: np.ndarray) -> np.ndarray:
    """[..., n] bytes to [..., 2n] codes: all low nibbles, then all high ones."""
    return np.concatenate([pairs & 15, pairs >> 4], axis=-1)


def _row(codes: np.ndarray) -> np.ndarray:
    return codes.reshape(codes.shape[0], -1)


def _halfs(field: np.ndarray) -> np.ndarray:
    """[out, blocks, 2] bytes to float16 [out, blocks]."""
    return np.ascontiguousarray(field).view(np.float16)[..., 0]


def _q8_0(entries: Entries, blocks: np.ndarray) -> QuantizedLinear:
    codes = _row(blocks[..., 2:]) ^ np.uint8(0x80)
    return integer_linear(entries, codes, _halfs(blocks[..., :2]), None, bits=8, group_size=32)


def _q4_0(entries: Entries, blocks: np.ndarray) -> QuantizedLinear:
    codes = _row(_halves(blocks[..., 2:]))
    return integer_linear(entries, codes, _halfs(blocks[..., :2]), None, bits=4, group_size=32)


def _q6_k(entries: Entries, blocks: np.ndarray) -> QuantizedLinear:
    # Two halves of 128 codes: 64 bytes of low nibbles, 32 bytes with two more bits for each of four runs of 32.
    rows, count, _ = blocks.shape
    low = _halves(blocks[..., :128].reshape(rows, count, 2, 64))
    high = blocks[..., 128:192].reshape(rows, count, 2, 1, 32) >> np.array([[0], [2], [4], [6]], np.uint8) & 3
    codes = low | high.reshape(low.shape) << 4
    scales = np.ascontiguousarray(blocks[..., 192:208]).view(np.int8).astype(np.float32)
    scale = _halfs(blocks[..., 208:]).astype(np.float32)[..., None] * scales
    unsigned = _row(codes) + np.uint8(128 - 32)
    return integer_linear(entries, unsigned, _row(scale), None, bits=8, group_size=16)


def _mxfp4(entries: Entries, blocks: np.ndarray) -> QuantizedLinear:
    scale = np.ascontiguousarray(blocks[..., 0])
    if (scale == 255).any():
        row, block = (int(i) for i in np.argwhere(scale == 255)[0])
        raise entries.refused(
            f"weight: found the scale 255 in row {row}, block {block}, which is no number in e8m0, expected 0 to 254"
        )
    codes = _row(_halves(blocks[..., 1:]))
    state = {"weight": to_nibbles(codes), "weight_scale": scale}
    return with_bias(entries, codes.shape[1], codes.shape[0], QuantScheme.parse("mxfp4"), state)


class _Kind(NamedTuple):
    bytes: int
    reader: Any


_KINDS = {
    "Q8_0": _Kind(34, _q8_0),
    "Q4_0": _Kind(18, _q4_0),
    "Q6_K": _Kind(210, _q6_k),
    "MXFP4": _Kind(17, _mxfp4),
}
