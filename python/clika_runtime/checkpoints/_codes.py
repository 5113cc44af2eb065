"""Codes of 2, 4 and 8 bits: out of the words that checkpoints hold, into the bytes that layers hold.

Word and byte orders are little-endian, as in every checkpoint and on every CPU that is served.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._entries import Entries


def code_bits(entries: Entries, argument: str, stated: Any, *packed: tuple[int, int]) -> int:
    """The width of a code, 2, 4 or 8: as `stated`, or the one width at which each of `packed`, so many codes, fills so
    many 32-bit words.
    """
    if stated is None:
        fitting = [bits for bits in range(1, 9) if all(-(-count * bits // 32) == words for count, words in packed)]
        if len(fitting) != 1:
            found = " and ".join(f"{count} codes in {words} words" for count, words in packed)
            raise entries.refused(f"{found} do not tell the width of a code; pass {argument}")
        (stated,) = fitting
    if stated not in (2, 4, 8):
        raise entries.refused(f"found {stated}-bit codes; codes of 2, 4 and 8 bits are served")
    return stated


def from_words(words: np.ndarray, bits: int) -> np.ndarray:
    """[rows, n] of 32-bit words to uint8 [rows, n * 32 / bits]: the lowest bits of a word hold its first code."""
    return from_bytes(np.ascontiguousarray(words).view(np.uint8), bits)


def from_bytes(packed: np.ndarray, bits: int) -> np.ndarray:
    """uint8 [..., n] to uint8 [..., n * 8 / bits]: the lowest bits of a byte are its first code."""
    each = 8 // bits
    codes = np.empty((*packed.shape, each), np.uint8)
    for place in range(each):
        np.right_shift(packed, np.uint8(bits * place), out=codes[..., place])
    codes &= np.uint8((1 << bits) - 1)
    return codes.reshape(*packed.shape[:-1], -1)


def to_bytes(codes: np.ndarray, bits: int) -> np.ndarray:
    """uint8 [rows, k] below 2^bits to uint8 [rows, ceil(k * bits / 8)], as `QLinearWoQ` holds them.

    What the last byte has room for and no code is 0. Codes of 8 bits may come back as they are.
    """
    if bits == 8:
        return np.ascontiguousarray(codes)
    each = 8 // bits
    packed = codes[:, 0::each].copy()
    for place in range(1, each):
        more = codes[:, place::each]
        packed[:, : more.shape[1]] |= more << np.uint8(bits * place)
    return packed
