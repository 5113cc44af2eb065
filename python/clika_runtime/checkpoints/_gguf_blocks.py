"""The bytes of GGUF's blocks, as codes and scales.

Blocks are uint8 [out, blocks, bytes of a block]. A byte holds two codes, of which the second comes half a block (or, in
blocks of 256, 32 or 64 codes) after the first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Integers(NamedTuple):
    """Integer codes, of which `scale` multiplies those less the middle, 2^(bits-1)."""

    bits: int
    group_size: int
    codes: np.ndarray  # uint8 [out, in], unsigned
    scale: np.ndarray  # [out, groups], the dtype of the scheme's scales


def _row(array: np.ndarray) -> np.ndarray:
    """[out, ...] to [out, n]."""
    return array.reshape(array.shape[0], -1)


def _halves(pairs: np.ndarray) -> np.ndarray:
    """[..., n] bytes to [..., 2n] codes: all low nibbles, then all high ones."""
    return np.concatenate([pairs & 15, pairs >> 4], axis=-1)


def _float16(field: np.ndarray) -> np.ndarray:
    """[out, blocks, 2] bytes to float16 [out, blocks]."""
    return np.ascontiguousarray(field).view(np.float16)[..., 0]


def _centred(codes: np.ndarray, offset: int) -> np.ndarray:
    """Unsigned 8-bit codes for the numbers `codes - offset`."""
    return codes + np.uint8(128 - offset)


def _q8_0(blocks: np.ndarray) -> Integers:
    return Integers(8, 32, _row(blocks[..., 2:]) ^ np.uint8(0x80), _float16(blocks[..., :2]))


def _q4_0(blocks: np.ndarray) -> Integers:
    return Integers(4, 32, _row(_halves(blocks[..., 2:])), _float16(blocks[..., :2]))


def _five_bits(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """[..., 4] bytes with a fifth bit for each code, in order, and [..., 16] with two nibbles each."""
    return _halves(low) | np.unpackbits(high, axis=-1, bitorder="little") << 4


def _q5_0(blocks: np.ndarray) -> Integers:
    codes = _row(_five_bits(blocks[..., 2:6], blocks[..., 6:]))
    return Integers(8, 32, _centred(codes, 16), _float16(blocks[..., :2]))


def _q6_k(blocks: np.ndarray) -> Integers:
    # Two halves of 128 codes: 64 bytes of low nibbles, 32 bytes with two more bits for each of four runs of 32.
    rows, count, _ = blocks.shape
    low = _halves(blocks[..., :128].reshape(rows, count, 2, 64))
    high = blocks[..., 128:192].reshape(rows, count, 2, 1, 32) >> np.array([[0], [2], [4], [6]], np.uint8) & 3
    codes = low | high.reshape(low.shape) << 4
    scales = np.ascontiguousarray(blocks[..., 192:208]).view(np.int8).astype(np.float32)
    with np.errstate(invalid="ignore"):  # an infinite scale of a block times 0 is NaN, as in GGML
        scale = _float16(blocks[..., 208:]).astype(np.float32)[..., None] * scales
    return Integers(8, 16, _centred(_row(codes), 32), _row(scale))


def mxfp4(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes of e2m1, uint8 [out, in], and scales of e8m0, uint8 [out, blocks]."""
    return _row(_halves(blocks[..., 1:])), np.ascontiguousarray(blocks[..., 0])


BLOCK_BYTES = {"Q8_0": 34, "Q4_0": 18, "Q5_0": 22, "Q6_K": 210, "MXFP4": 17}
INTEGERS: dict[str, Callable[[np.ndarray], Integers]] = {"Q8_0": _q8_0, "Q4_0": _q4_0, "Q5_0": _q5_0, "Q6_K": _q6_k}
