"""Reads weights without the libraries that wrote them.

`read_safetensors` maps a safetensors file. `read_torch` reads PyTorch's pre-1.6 serialization (the one the
`facenet-pytorch` package ships) through an unpickler that knows tensors and nothing else, so a file cannot make
the process call anything.
"""

import collections
import json
import mmap
import pickle
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np

_SAFETENSORS_DTYPES = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16,
    "I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8, "U8": np.uint8, "BOOL": np.bool_,
}  # fmt: skip

_TORCH_STORAGES = {
    "DoubleStorage": "<f8", "FloatStorage": "<f4", "HalfStorage": "<f2",
    "LongStorage": "<i8", "IntStorage": "<i4", "ShortStorage": "<i2", "CharStorage": "i1", "ByteStorage": "u1",
}  # fmt: skip

_TORCH_MAGIC = 0x1950A86A20F9469CFC6C
_TORCH_PROTOCOL = 1001


def read_safetensors(path: str | Path) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file: read-only arrays on the mapped file, nothing is copied.

    Raises `ValueError` when the header does not describe the file.
    """
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if len(mapped) < 8:
        raise ValueError(f"{path}: not a safetensors file: {len(mapped)} bytes")
    (header_bytes,) = struct.unpack("<Q", mapped[:8])
    if header_bytes > len(mapped) - 8:
        raise ValueError(f"{path}: the header claims {header_bytes} bytes, the file has {len(mapped)}")
    start = 8 + header_bytes
    tensors = {}
    for name, entry in json.loads(mapped[8:start]).items():
        if name == "__metadata__":
            continue
        if entry["dtype"] not in _SAFETENSORS_DTYPES:
            raise ValueError(f"{path}: {name} has the unsupported dtype {entry['dtype']}")
        dtype = np.dtype(_SAFETENSORS_DTYPES[entry["dtype"]])
        begin, end = entry["data_offsets"]
        shape = tuple(entry["shape"])
        count = int(np.prod(shape, dtype=np.int64))
        if not 0 <= begin <= end <= len(mapped) - start or end - begin != count * dtype.itemsize:
            raise ValueError(f"{path}: {name} {shape} does not fit its bytes {begin}..{end}")
        tensors[name] = np.frombuffer(mapped, dtype, count, start + begin).reshape(shape)
    return tensors


class _Storage(NamedTuple):
    key: str
    dtype: np.dtype
    count: int


class _TensorRecipe(NamedTuple):
    """A tensor before its bytes are read: they follow the pickle that describes it."""

    storage: _Storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


def _rebuild_tensor(storage, offset, size, stride, requires_grad=False, hooks=None):
    return _TensorRecipe(storage, offset, tuple(size), tuple(stride))


class _TensorUnpickler(pickle.Unpickler):
    def find_class(self, module, name):
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _rebuild_tensor
        if module == "torch" and name in _TORCH_STORAGES:
            return np.dtype(_TORCH_STORAGES[name])
        raise pickle.UnpicklingError(f"a weight file has no business with {module}.{name}")

    def persistent_load(self, pid):
        if not (isinstance(pid, tuple) and len(pid) == 6 and pid[0] == "storage" and isinstance(pid[1], np.dtype)):
            raise pickle.UnpicklingError(f"not a tensor storage: {pid!r}")
        _, dtype, key, _location, count, view = pid
        if view is not None:
            raise pickle.UnpicklingError("views of storages are not supported")
        return _Storage(str(key), dtype, int(count))


def read_torch(path: str | Path) -> dict[str, np.ndarray]:
    """The state dict that `torch.save` of PyTorch before 1.6 wrote, as contiguous arrays.

    Raises `pickle.UnpicklingError` for anything but plain tensors, `ValueError` for bytes that do not add up.
    """
    with open(path, "rb") as file:
        if _TensorUnpickler(file).load() != _TORCH_MAGIC:
            raise ValueError(f"{path}: not a file of torch.save")
        protocol = _TensorUnpickler(file).load()
        if protocol != _TORCH_PROTOCOL:
            raise ValueError(f"{path}: torch.save protocol {protocol}, expected {_TORCH_PROTOCOL}")
        if not _TensorUnpickler(file).load()["little_endian"]:
            raise ValueError(f"{path}: written on a big-endian machine")
        recipes = _TensorUnpickler(file).load()
        dtypes = {recipe.storage.key: recipe.storage.dtype for recipe in recipes.values()}
        storages = {}
        for key in _TensorUnpickler(file).load():
            (count,) = struct.unpack("<q", file.read(8))
            dtype = dtypes[key]
            data = file.read(count * dtype.itemsize)
            if count < 0 or len(data) != count * dtype.itemsize:
                raise ValueError(f"{path}: storage {key} ends early")
            storages[key] = np.frombuffer(data, dtype)
    return {name: _array(path, name, recipe, storages[recipe.storage.key]) for name, recipe in recipes.items()}


def _array(path, name: str, recipe: _TensorRecipe, storage: np.ndarray) -> np.ndarray:
    if len(recipe.size) != len(recipe.stride) or min((recipe.offset, *recipe.size, *recipe.stride)) < 0:
        raise ValueError(f"{path}: {name} has impossible strides")
    last = recipe.offset + sum((n - 1) * step for n, step in zip(recipe.size, recipe.stride, strict=True))
    if 0 not in recipe.size and last >= storage.size:
        raise ValueError(f"{path}: {name} reaches past its storage")
    strides = [step * storage.itemsize for step in recipe.stride]
    view = np.lib.stride_tricks.as_strided(storage[recipe.offset :], recipe.size, strides, writeable=False)
    return np.ascontiguousarray(view)
