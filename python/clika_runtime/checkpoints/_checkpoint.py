"""A checkpoint that was opened: its tensors by name, and what it says of itself."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

from .._core import ClikaRTError


class Checkpoint(Mapping[str, Any]):
    """Tensors by name, each read when it is asked for.

    `config`: the quantization config beside it ({} where there is none). `metadata`: the file's own. `format`: the name
    of the format where the kind of file tells it, else None.
    """

    def __init__(
        self,
        readers: Mapping[str, Callable[[], Any]],
        *,
        config: Mapping[str, Any] | None = None,
        metadata: Mapping[str, str] | None = None,
        format: str | None = None,
    ) -> None:
        self._readers = dict(readers)
        self.config = dict(config or {})
        self.metadata = dict(metadata or {})
        self.format = format

    def __getitem__(self, name: str) -> Any:
        return self._readers[name]()

    def __contains__(self, name: object) -> bool:
        return name in self._readers

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)

    def __repr__(self) -> str:
        return f"Checkpoint({len(self)} tensors, format={self.format!r})"


def optional_package(module: str, package: str) -> ModuleType:
    """Import `module`. ClikaRTError: `package`, which the runtime does without, is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ClikaRTError(
            f"reading this needs the package {package}, which cannot be imported ({error}); pip install {package}"
        ) from error
