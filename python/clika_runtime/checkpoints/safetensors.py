"""Safetensors: files and folders of any format, and plain files of layers' own `state_dict()` names.

A plain file holds `weight`, `weight_scale` and the other tensors of a `QLinearWoQ` as `state_dict()` gives them. `save`
writes one that states each layer's scheme in its metadata; for other files the scheme is passed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .._arguments import scheme_of
from .._core import ClikaRTError
from ..nn import Module, QLinearWoQ, QuantScheme
from ._checkpoint import Checkpoint, optional_package
from ._entries import Entries, array_of
from ._linear import QuantizedLinear

_METADATA = "clika_runtime.schemes"
_OPTIONAL = ("weight_zero_point", "weight_minimum", "weight_g_idx", "weight_global_scale", "bias")
# What NumPy has no names for, and what ml_dtypes calls it.
_FLOAT8 = {"F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu"}


def read(
    tensors: Mapping[str, Any],
    prefix: str = "",
    *,
    scheme: QuantScheme | str | None = None,
    in_features: int | None = None,
    metadata: Mapping[str, str] | None = None,
) -> QuantizedLinear:
    """The linear whose tensors are named `prefix`.weight and so on, as a `QLinearWoQ`'s are, and taken as they are.

    `scheme` and `in_features`: from `metadata` in a file that `save` wrote; else `scheme` is needed, and `in_features`
    where codes do not fill their last byte. ClikaRTError: nothing states the scheme, or a tensor does not fit it.
    """
    entries = Entries(tensors, prefix, "safetensors")
    stated = _stated(entries, metadata or {})
    if scheme is None and "scheme" not in stated:
        raise entries.refused('nothing states the scheme; pass scheme="int4_g128", say, or save with this module')
    scheme = scheme_of(stated["scheme"] if scheme is None else scheme)
    weight = entries.take("weight", ("int8",) if _signed(scheme) else ("uint8",), 2)
    rows, width = weight.shape
    inputs = stated.get("in_features") if in_features is None else in_features
    if inputs is None:
        inputs = width * 8 // scheme.bits
    names = ["weight", "weight_scale", *(name for name in _OPTIONAL if name in entries)]
    state = {name: array_of(tensors[entries.key(name)], entries.key(name)) for name in names if name in entries}
    linear = QuantizedLinear(inputs, rows, scheme, state)
    try:
        linear.layer()
    except (ClikaRTError, ValueError) as error:
        raise entries.refused(str(error)) from error
    return linear


def _signed(scheme: QuantScheme) -> bool:
    return scheme.bits == 8 and scheme.symmetric and scheme.codebook is None


def _stated(entries: Entries, metadata: Mapping[str, str]) -> dict[str, Any]:
    if _METADATA not in metadata:
        return {}
    try:
        return dict(json.loads(metadata[_METADATA]).get(entries.key("weight"), {}))
    except (AttributeError, TypeError, ValueError) as error:
        raise entries.refused(f'the metadata\'s "{_METADATA}" is not what save writes: {error}') from error


def save(path: str | os.PathLike[str], module: Module) -> None:
    """Write `module.state_dict()` as one safetensors file, the scheme of each `QLinearWoQ` in its metadata.

    ClikaRTError: the package safetensors is missing, or a layer is unbound.
    """
    package = optional_package("safetensors.numpy", "safetensors")
    schemes = {
        f"{name}.weight" if name else "weight": {"scheme": str(layer.scheme), "in_features": layer.in_features}
        for name, layer in module.named_modules()
        if isinstance(layer, QLinearWoQ)
    }
    tensors = {name: np.ascontiguousarray(tensor) for name, tensor in module.state_dict().items()}
    package.save_file(tensors, os.fspath(path), metadata={_METADATA: json.dumps(schemes)})


def open(path: str | os.PathLike[str]) -> Checkpoint:
    """A file, or a folder of a model's shards, with the quantization config that lies beside them.

    ClikaRTError: the package safetensors is missing, there is no such file, or it is damaged.
    """
    package = optional_package("safetensors", "safetensors")
    path = Path(path)
    folder, files = (path, _shards(path)) if path.is_dir() else (path.parent, [path])
    readers: dict[str, Any] = {}
    metadata: dict[str, str] = {}
    for file in files:
        try:
            opened = package.safe_open(file, framework="numpy")
        except (OSError, package.SafetensorError) as error:
            raise ClikaRTError(f"{file}: cannot be read as safetensors: {error}") from error
        metadata |= opened.metadata() or {}
        readers |= {name: _reader(opened, file, name) for name in opened.keys()}  # noqa: SIM118 (no mapping)
    return Checkpoint(readers, config=_config(folder), metadata=metadata)


def _shards(folder: Path) -> list[Path]:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ClikaRTError(f"{folder}: found no *.safetensors")
    return files


def _reader(opened: Any, file: Path, name: str):
    kind = _FLOAT8.get(opened.get_slice(name).get_dtype())
    if kind is None:
        return lambda: opened.get_tensor(name)
    return lambda: _mapped(file, name, kind)


def _mapped(file: Path, name: str, kind: str) -> np.ndarray:
    """A tensor of a dtype that the package does not give to NumPy, from where the file's header (checked) says."""
    import ml_dtypes

    size = int(np.fromfile(file, "<u8", 1)[0])
    header = json.loads(np.fromfile(file, np.uint8, size, offset=8).tobytes())
    start, end = header[name]["data_offsets"]
    data = np.memmap(file, np.uint8, "r", 8 + size + start, (end - start,))
    return data.view(np.dtype(getattr(ml_dtypes, kind))).reshape(header[name]["shape"])


def _config(folder: Path) -> dict[str, Any]:
    """`quantization_config` of config.json, or what GPTQ and AWQ write to files of their own; {} where none is."""
    for file, keys in (
        ("config.json", ("quantization_config", "compression_config")),
        ("quantize_config.json", ()),
        ("quant_config.json", ()),
    ):
        try:
            found = json.loads((folder / file).read_text())
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise ClikaRTError(f"{folder / file}: cannot be read as JSON: {error}") from error
        found = next((found[key] for key in keys if key in found), None) if keys else found
        if isinstance(found, dict):
            return found
    return {}
