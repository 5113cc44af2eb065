"""Ahead-of-time packing and compiling, with a progress bar where one can be shown."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from . import _core
from ._members import member_of

Progress = Callable[[int, int, Any], None]


def _as_item(item: Any) -> tuple[tuple[int, ...], Any]:
    if isinstance(item, tuple) and len(item) == 2 and not hasattr(item[0], "dtype"):
        shape, dtype = item
        return tuple(shape), dtype
    tensor = _core.Tensor.from_data(item)
    return tensor.shape, tensor.dtype


def _is_pair(inputs: Any) -> bool:
    return isinstance(inputs, tuple) and len(inputs) == 2 and all(isinstance(n, int) for n in _iterate(inputs[0]))


def _iterate(value: Any) -> Iterator[Any]:
    return iter(value) if isinstance(value, (tuple, list)) else iter([value])


@contextlib.contextmanager
def _bar() -> Iterator[Progress | None]:
    """rich's progress bar on a terminal's stderr, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    try:
        from rich.console import Console
        from rich.progress import Progress as Bar
    except ImportError:
        yield None
        return
    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("warm-up")
        yield lambda done, total, item: bar.update(
            task, completed=done, total=total, description=item.layer or "warm-up"
        )


def _shown(progress: bool | Progress) -> contextlib.AbstractContextManager[Progress | None]:
    """What to call after each item, while the context lasts."""
    if not isinstance(progress, bool):
        return contextlib.nullcontext(progress)
    return _bar() if progress else contextlib.nullcontext()


def warmup(module: Any, inputs: Any, progress: bool | Progress = True) -> _core.WarmupReport:
    """Pack the weights and compile the kernels of `module` before its first request.

    `inputs`: tensors (or what `Tensor.from_data` takes), or (shape, dtype) pairs; one alone or several. `progress`:
    whether to show a bar on a terminal, or a function called as progress(done, total, item) after each layer; what
    it raises, and Ctrl-C, ends the warm-up between two layers and leaves what is ready. As many layers are prepared
    at a time as a forward has threads. A layer that cannot be prepared is listed in the report, and others go on.
    """
    if _is_pair(inputs) or hasattr(inputs, "dtype"):
        inputs = [inputs]
    items = [_as_item(item) for item in inputs]
    with _shown(progress) as show:
        return _core.warmup(module, items, show)


@member_of(_core.WarmupManifest)
def compile(
    self: Any,
    target: str | None = None,
    folder: str | os.PathLike[str] | None = None,
    progress: bool | Progress = True,
    jobs: int = 0,
) -> _core.WarmupReport:
    """Compile the kernels ahead of their first request.

    Without `target` and `folder` into this process, under its settings. Else into a cache folder (CLIKART_CACHE_DIR
    unless `folder` names one) under the key that a process on `target` asks for: an ISA level such as "avx2", which
    stands for everything up to it, or the features of a machine as `cpu_info()["target"]` gives them there; nothing is
    run. `progress` as in `warmup`; `jobs`: kernels compiled at a time, 0 for the threads of a forward. A kernel that
    fails is listed in the report, and others go on. ValueError for a bad target, ClikaRTError for a folder that
    cannot be used.
    """
    with _shown(progress) as show:
        return self._compile(target or "", folder or "", jobs, show)
