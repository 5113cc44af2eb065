"""One door to all formats."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .._arguments import ActivationLike
from .._core import ClikaRTError
from ..nn import QLinearWoQ
from . import awq, compressed_tensors, gguf, gptq, safetensors, torchao
from ._checkpoint import Checkpoint
from ._entries import array_of
from ._linear import QuantizedLinear

# How each format is read, and what of a `Checkpoint` its reader takes.
_READERS: dict[str, tuple[Callable[..., QuantizedLinear], str | None]] = {
    "gptq": (gptq.read, "config"),
    "awq": (awq.read, "config"),
    "compressed-tensors": (compressed_tensors.read, "config"),
    "torchao": (torchao.read, "metadata"),
    "safetensors": (safetensors.read, "metadata"),
    "gguf": (gguf.read, None),
}

Source = Mapping[str, Any] | str | os.PathLike[str]


def open(path: str | os.PathLike[str]) -> Checkpoint:
    """A .gguf file, a .safetensors file, or a folder of .safetensors files with the model's config beside them.

    ClikaRTError: there is nothing to read at `path`, or the package that reads it (gguf, safetensors) is missing.
    """
    if not Path(path).exists():
        raise ClikaRTError(f"{os.fspath(path)}: there is no such file or folder")
    return gguf.open(path) if Path(path).suffix.lower() == ".gguf" else safetensors.open(path)


def load_linear(
    source: Source,
    prefix: str = "",
    *,
    format: str | None = None,
    activation: ActivationLike = None,
    residency: str = "packed",
    compute: str = "float",
    name: str | None = None,
    **arguments: Any,
) -> QLinearWoQ:
    """A bound `QLinearWoQ` with the weights that `source` holds under `prefix`.

    `source`, `prefix`, `format`, `arguments`: as for `read_linear`. The rest: as for `QLinearWoQ`; the name is `prefix`
    where none is given.
    """
    linear = read_linear(source, prefix, format=format, **arguments)
    return linear.layer(activation=activation, residency=residency, compute=compute, name=name or prefix or None)


def read_linear(source: Source, prefix: str = "", *, format: str | None = None, **arguments: Any) -> QuantizedLinear:
    """The scheme and the state of the linear that `source` holds under `prefix`.

    `source`: a path as for `open` (open once what holds many layers), what `open` answers, or a mapping of names to
    anything that `Tensor.from_data` takes. `format`: "gptq", "awq", "compressed-tensors", "torchao", "safetensors" or
    "gguf"; None asks the config and the tensors' names. `arguments` go to the `read` of the format's module; `config`
    and `metadata` are an opened checkpoint's own unless given. ClikaRTError: no format is recognised, or the reader
    refuses.
    """
    if isinstance(source, (str, os.PathLike)):
        source = open(source)
    name = format or _detected(source, prefix, arguments)
    if name not in _READERS:
        raise ValueError(f'format "{name}" is not known; expected one of {", ".join(_READERS)}')
    read, taken = _READERS[name]
    if taken is not None and isinstance(source, Checkpoint):
        arguments.setdefault(taken, getattr(source, taken))
    return read(source, prefix, **arguments)


def _detected(source: Mapping[str, Any], prefix: str, arguments: Mapping[str, Any]) -> str:
    if isinstance(source, Checkpoint) and source.format is not None:
        return source.format

    def key(name: str) -> str:
        return f"{prefix}.{name}" if prefix else name

    def has(*names: str) -> bool:
        return all(key(name) in source for name in names)

    config = arguments.get("config") or getattr(source, "config", {})
    method = config.get("quant_method")
    if has("qweight", "scales"):
        return method if method in ("gptq", "awq") else _packed_along(source, key("qweight"), key("scales"))
    if has("weight_packed") or (method == "compressed-tensors" and has("weight", "weight_scale")):
        return "compressed-tensors"
    if has("_weight_qdata"):
        return "torchao"
    if has("weight", "weight_scale"):
        return "safetensors"
    if has("weight") and hasattr(source[key("weight")], "tensor_type"):
        return "gguf"
    raise ClikaRTError(
        f"{prefix or 'the checkpoint'}: no format is recognised by the names of its tensors; expected qweight and "
        "scales (GPTQ, AWQ), weight_packed (compressed-tensors), _weight_qdata (torchao), weight and weight_scale "
        "(safetensors); a weight that is not quantized belongs into a Linear"
    )


def _packed_along(source: Mapping[str, Any], weight: str, scales: str) -> str:
    """GPTQ packs the inputs of a weight, so that it is as wide as its scales; AWQ packs the outputs."""
    widths = [array_of(source[name], name).shape[-1:] for name in (weight, scales)]
    return "gptq" if widths[0] == widths[1] else "awq"
