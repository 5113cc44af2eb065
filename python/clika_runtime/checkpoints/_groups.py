"""Which inputs share a scale."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

from ._entries import Entries


def group_size_of(entries: Entries, inputs: int, groups: int, stated: Any, g_idx: np.ndarray | None = None) -> int:
    """The size of a group, -1 for the whole row: as `stated`, else what `g_idx` or the number of scales tells."""
    size = _told(entries, inputs, groups, g_idx) if stated is None else stated
    if not isinstance(size, Integral) or (size != -1 and size < 1):
        raise entries.refused(f"group_size is {size!r}, expected at least 1, or -1 for one group a row")
    expected = 1 if size == -1 else -(-inputs // size)
    if groups != expected:
        raise entries.refused(
            f"found {groups} groups, expected {expected} for {inputs} inputs and group_size {size}; pass the "
            "group_size of this layer"
        )
    return int(size)


def _told(entries: Entries, inputs: int, groups: int, g_idx: np.ndarray | None) -> int:
    if groups == 1:
        return -1
    if g_idx is not None and g_idx.size:
        return int(np.unique(g_idx, return_counts=True)[1].max())
    # Where the last group may be short, several sizes make as many groups; of the powers of two, one does.
    size = inputs // max(groups, 1)
    if size * groups != inputs or size & (size - 1):
        raise entries.refused(
            f"{groups} groups for {inputs} inputs do not tell the size of a group; pass group_size (the last group may "
            "be short)"
        )
    return size


def group_order_of(
    entries: Entries, name: str, g_idx: np.ndarray | None, groups: int, group_size: int
) -> np.ndarray | None:
    """`g_idx` as int32, or None where it is what the scheme implies: k // group_size."""
    if g_idx is None:
        return None
    outside = (g_idx < 0) | (g_idx >= groups)
    if outside.any():
        at = int(outside.argmax())
        raise entries.refused(
            f"{name}: found group {int(g_idx[at])} at position {at}, expected 0 to {groups - 1} ({groups} groups)"
        )
    implied = np.zeros_like(g_idx) if group_size == -1 else np.arange(g_idx.size) // group_size
    return None if (g_idx == implied).all() else np.ascontiguousarray(g_idx, np.int32)
