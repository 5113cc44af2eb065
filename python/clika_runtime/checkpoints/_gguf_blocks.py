"""The bytes of GGUF's blocks, as codes and scales.

Blocks are uint8 [out, blocks, bytes of a block]. A byte holds two codes, of which the second comes half a block (or, in
blocks of 256, 32 or 64 codes) after the first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Integers(NamedTuple):
    """Integer codes: `scale` multiplies them less the middle, 2^(bits-1); or, with a minimum, as they are."""

    bits: int
    group_size: int
    codes: np.ndarray  # uint8 [out, in], unsigned
    scale: np.ndarray  # [out, groups], the dtype of the scheme's scales
    minimum: np.ndarray | None = None  # of the scale's shape and dtype, added


def _row(array: np.ndarray) -> np.ndarray:
    """[out, ...] to [out, n]."""
    return array.reshape(array.shape[0], -1)


def _halves(pairs: np.ndarray) -> np.ndarray:
    """[..., n] bytes to [..., 2n] codes: all low nibbles, then all high ones."""
    count = pairs.shape[-1]
    codes = np.empty((*pairs.shape[:-1], 2 * count), np.uint8)
    np.bitwise_and(pairs, 15, out=codes[..., :count])
    np.right_shift(pairs, 4, out=codes[..., count:])
    return codes


def _float16(field: np.ndarray) -> np.ndarray:
    """[out, blocks, 2] bytes to float16 [out, blocks]."""
    return np.ascontiguousarray(field).view(np.float16)[..., 0]


def _centred(codes: np.ndarray, offset: int) -> np.ndarray:
    """Unsigned 8-bit codes, in place, for the numbers `codes - offset`."""
    codes += np.uint8(128 - offset)
    return codes


def _q8_0(blocks: np.ndarray) -> Integers:
    return Integers(8, 32, _row(blocks[..., 2:]) ^ np.uint8(0x80), _float16(blocks[..., :2]))


def _q4_0(blocks: np.ndarray) -> Integers:
    return Integers(4, 32, _row(_halves(blocks[..., 2:])), _float16(blocks[..., :2]))


def _five_bits(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """[..., 4] bytes with a fifth bit for each code, in order, and [..., 16] with two nibbles each."""
    codes = np.unpackbits(high, axis=-1, bitorder="little")
    codes <<= 4
    codes |= _halves(low)
    return codes


def _q5_0(blocks: np.ndarray) -> Integers:
    codes = _row(_five_bits(blocks[..., 2:6], blocks[..., 6:]))
    return Integers(8, 32, _centred(codes, 16), _float16(blocks[..., :2]))


def _q4_1(blocks: np.ndarray) -> Integers:
    scale, minimum = _float16(blocks[..., :2]), _float16(blocks[..., 2:4])
    return Integers(4, 32, _row(_halves(blocks[..., 4:])), scale, minimum)


def _q5_1(blocks: np.ndarray) -> Integers:
    scale, minimum = _float16(blocks[..., :2]), _float16(blocks[..., 2:4])
    return Integers(8, 32, _row(_five_bits(blocks[..., 4:8], blocks[..., 8:])), scale, minimum)


def _scaled(block_scale: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """[out, blocks, 2] bytes of a float16 times [out, blocks, groups] integers: float32 [out, groups]."""
    with np.errstate(invalid="ignore"):  # an infinite scale of a block times 0 is NaN, as in GGML
        return _row(_float16(block_scale).astype(np.float32)[..., None] * scales.astype(np.float32))


def _q2_k(blocks: np.ndarray) -> Integers:
    # A byte holds codes of four runs of 32.
    rows, count, _ = blocks.shape
    runs = blocks[..., 16:80].reshape(rows, count, 2, 1, 32)
    codes = runs >> np.array([[0], [2], [4], [6]], np.uint8)
    codes &= 3
    scale, minimum = (
        _scaled(blocks[..., 80:82], blocks[..., :16] & 15),
        _scaled(blocks[..., 82:], blocks[..., :16] >> 4),
    )
    return Integers(2, 16, _row(codes), scale, -minimum)


def _scales_of_six_bits(field: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[..., 12] bytes to eight scales and eight minima: four of each in the low six bits of a byte, four in the nibbles
    of the last bytes, their upper two bits on top of the first ones.
    """
    first, second, nibbles = field[..., :4], field[..., 4:8], field[..., 8:]
    scales = np.concatenate([first & 63, nibbles & 15 | first >> 6 << 4], axis=-1)
    minima = np.concatenate([second & 63, nibbles >> 4 | second >> 6 << 4], axis=-1)
    return scales, minima


def _k_blocks(bits: int, blocks: np.ndarray, codes: np.ndarray) -> Integers:
    scales, minima = _scales_of_six_bits(blocks[..., 4:16])
    return Integers(bits, 32, _row(codes), _scaled(blocks[..., :2], scales), -_scaled(blocks[..., 2:4], minima))


def _runs_of_64(low: np.ndarray) -> np.ndarray:
    """[out, blocks, 128] bytes to [out, blocks, 256] codes: 32 bytes hold the nibbles of 64."""
    return _halves(low.reshape(*low.shape[:2], 4, 32)).reshape(*low.shape[:2], 256)


def _q4_k(blocks: np.ndarray) -> Integers:
    return _k_blocks(4, blocks, _runs_of_64(blocks[..., 16:]))


def _q5_k(blocks: np.ndarray) -> Integers:
    # 32 bytes of fifth bits: bit b of them belongs to the codes of run b.
    codes = blocks[..., None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None]
    codes &= 1
    codes <<= 4
    codes = codes.reshape(*blocks.shape[:2], 256)
    codes |= _runs_of_64(blocks[..., 48:])
    return _k_blocks(8, blocks, codes)


def _q6_k(blocks: np.ndarray) -> Integers:
    # Two halves of 128 codes: 64 bytes of low nibbles, 32 bytes with two more bits for each of four runs of 32.
    rows, count, _ = blocks.shape
    codes = blocks[..., 128:192].reshape(rows, count, 2, 1, 32) >> np.array([[0], [2], [4], [6]], np.uint8)
    codes &= 3
    codes <<= 4
    codes = codes.reshape(rows, count, 2, 128)
    codes |= _halves(blocks[..., :128].reshape(rows, count, 2, 64))
    scales = np.ascontiguousarray(blocks[..., 192:208]).view(np.int8)
    return Integers(8, 16, _centred(_row(codes), 32), _scaled(blocks[..., 208:], scales))


def mxfp4(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes of e2m1, uint8 [out, in], and scales of e8m0, uint8 [out, blocks]."""
    return _row(_halves(blocks[..., 1:])), np.ascontiguousarray(blocks[..., 0])


BLOCK_BYTES = {
    "Q8_0": 34,
    "Q4_0": 18,
    "Q4_1": 20,
    "Q5_0": 22,
    "Q5_1": 24,
    "Q2_K": 84,
    "Q4_K": 144,
    "Q5_K": 176,
    "Q6_K": 210,
    "MXFP4": 17,
}
INTEGERS: dict[str, Callable[[np.ndarray], Integers]] = {
    "Q8_0": _q8_0,
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q2_K": _q2_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}
