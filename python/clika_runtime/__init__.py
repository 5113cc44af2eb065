# ruff: noqa: E402 (what cannot be imported is explained before the rest is tried)
"""clika_runtime: layers that read the same input, joined into one generated kernel, bit for bit.

The layers are in `clika_runtime.nn`, readers of quantized ones in `clika_runtime.checkpoints`; tensors and everything
that shows or steers the runtime are here.
"""

try:
    from . import _core
except ModuleNotFoundError as error:
    if not (error.name or "").startswith("numpy"):
        raise
    raise ImportError("clika_runtime needs NumPy (pip install numpy)") from error
except ImportError as error:
    if error.name != __name__:  # a library that _core needs: the loader's own message names it
        raise
    raise ImportError(
        "clika_runtime's compiled module _core is missing or was built for another Python: "
        "install the package with pip, or run ./dev build and use .venv/bin/python"
    ) from error

_core.refuse_subinterpreter()

from . import kernels, nn
from ._core import (
    ClikaRTError,
    Tensor,
    WarmupManifest,
    WarmupReport,
    bfloat16,
    cpu_info,
    dtype,
    float16,
    float32,
    get_num_threads,
    int8,
    int32,
    set_num_threads,
    uint8,
)
from ._core import DispatchCount as count_dispatches
from ._core import __version__ as __version__
from ._tensors import concat, split_with_sizes
from ._warmup import warmup

for _public in (
    Tensor,
    WarmupManifest,
    WarmupReport,
    count_dispatches,
    concat,
    cpu_info,
    get_num_threads,
    set_num_threads,
    split_with_sizes,
):
    try:
        _public.__module__ = __name__
    except AttributeError:  # a built-in function names its module itself
        continue
del _public

__all__ = [
    "ClikaRTError",
    "Tensor",
    "WarmupManifest",
    "WarmupReport",
    "bfloat16",
    "checkpoints",
    "concat",
    "count_dispatches",
    "cpu_info",
    "dtype",
    "float16",
    "float32",
    "get_num_threads",
    "int8",
    "int32",
    "kernels",
    "nn",
    "set_num_threads",
    "split_with_sizes",
    "uint8",
    "warmup",
]


def __getattr__(name: str) -> object:
    """`checkpoints` is imported when it is first asked for: serving a model does not need its readers."""
    if name != "checkpoints":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return importlib.import_module(".checkpoints", __name__)


def __dir__() -> list[str]:
    return sorted({*globals(), "checkpoints"})
