"""The kernels that this process has compiled."""

from __future__ import annotations

import builtins
from typing import Any

from . import _core

__all__ = ["clear", "list", "stats"]


def list() -> builtins.list[dict[str, Any]]:
    """One dict a kernel, the last used first: signature, emitter, isa, code_bytes, jit_seconds, hits,
    loaded (from disk)."""
    return _core.kernels_list()


def stats() -> dict[str, Any]:
    """Counters: entries, code_bytes, compiled, loaded (from disk), hits (from memory), stored (to disk), quarantined
    (bad files found on disk), rejections (reason to count)."""
    return _core.kernels_stats()


def clear() -> None:
    """Empty the cache. Layers that have run keep their kernels."""
    _core.kernels_clear()
