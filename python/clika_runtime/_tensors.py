"""Functions over tensors: C++'s own, with the signatures that `help` and `inspect` show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from . import _core


def split_with_sizes(x: Any, sizes: Sequence[int], dim: int = -1) -> list[_core.Tensor]:
    """Views of `x` along `dim`, one a size, in order; nothing is copied. ValueError when the sizes do not add up."""
    return _core.split_with_sizes(x, sizes, dim)


def concat(tensors: Iterable[Any], dim: int = -1) -> _core.Tensor:
    """A new tensor: `tensors` one after the other along `dim`. ValueError when shapes or dtypes differ."""
    return _core.concat(tensors, dim)
