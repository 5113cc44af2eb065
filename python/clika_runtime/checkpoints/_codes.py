"""Codes of 4 and 8 bits: out of the words that checkpoints hold, into the bytes that layers hold.

Word and byte orders are little-endian, as in every checkpoint and on every CPU that is served.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._entries import Entries


def code_bits(entries: Entries, argument: str, stated: Any, *packed: tuple[int, int]) -> int:
    """The width of a code, 4 or 8: as `stated`, or the one width at which each of `packed`, so many codes, fills so
    many 32-bit words.
    """
    if stated is None:
        fitting = [bits for bits in range(1, 9) if all(-(-count * bits // 32) == words for count, words in packed)]
        if len(fitting) != 1:
            found = " and ".join(f"{count} codes in {words} words" for count, words in packed)
            raise entries.refused(f"{found} do not tell the width of a code; pass {argument}")
        (stated,) = fitting
    if stated not in (4, 8):
        raise entries.refused(f"found {stated}-bit codes; codes of 4 and 8 bits are served")
    return stated


def from_words(words: np.ndarray, bits: int) -> np.ndarray:
    """[rows, n] of 32-bit words to uint8 [rows, n * 32 / bits]: the lowest bits of a word hold its first code."""
    flat = np.ascontiguousarray(words).view(np.uint8)
    return flat if bits == 8 else from_nibbles(flat)


def from_nibbles(pairs: np.ndarray) -> np.ndarray:
    """uint8 [..., n] to uint8 [..., 2n]: the low nibble of a byte is its first code."""
    codes = np.empty((*pairs.shape[:-1], 2 * pairs.shape[-1]), np.uint8)
    codes[..., 0::2] = pairs & 15
    codes[..., 1::2] = pairs >> 4
    return codes


def to_nibbles(codes: np.ndarray) -> np.ndarray:
    """uint8 [rows, k] below 16 to uint8 [rows, ceil(k / 2)], as `QLinearWoQ` holds them; the last may be half used."""
    pairs = codes[:, 0::2].copy()
    pairs[:, : codes.shape[1] // 2] |= codes[:, 1::2] << 4
    return pairs
