"""DLPack by hand: capsules of both versions, made with ctypes, and what becomes of them."""

import ctypes
import gc

import clika_runtime as cr
import ml_dtypes
import numpy as np
import pytest
from clika_runtime import Tensor
from conftest import same_bits


class Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("id", ctypes.c_int32))


class DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("ndim", ctypes.c_int32),
        ("dtype", DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Managed(ctypes.Structure):
    _fields_ = (("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", DELETER))


class ManagedVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", DELETER),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    )


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

CODES = {"f": 2, "i": 0, "u": 1}


class Producer:
    """Exports an array with every field of the description open to change."""

    def __init__(self, array, version=(1, 0), device=(1, 0), lanes=1, null_strides=False, offset=0, code=None, flags=0):
        self.array = array
        self.device = device
        self.deleted = 0
        self.shape = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
        self.strides = (ctypes.c_int64 * max(array.ndim, 1))(*(s // array.itemsize for s in array.strides))
        code = CODES[array.dtype.kind] if code is None else code
        self.tensor = DLTensor(
            array.ctypes.data - offset,
            Device(*device),
            array.ndim,
            DataType(code, array.itemsize * 8, lanes),
            self.shape,
            None if null_strides else self.strides,
            offset,
        )
        self.deleter = DELETER(self.delete)
        if version is None:
            self.managed = Managed(self.tensor, None, self.deleter)
        else:
            self.managed = ManagedVersioned(*version, None, self.deleter, flags, self.tensor)
        self.name = b"dltensor" if version is None else b"dltensor_versioned"

    def delete(self, _):
        self.deleted += 1

    def capsule(self):
        return new_capsule(ctypes.addressof(self.managed), self.name, None)

    def __dlpack__(self, **_):
        return self.capsule()

    def __dlpack_device__(self):
        return self.device


ARRAY = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize("version", [None, (1, 0), (1, 3)])
@pytest.mark.parametrize("options", [{}, {"null_strides": True}, {"offset": 64}])
def test_both_versions_share_memory_and_delete_once(version, options):
    producer = Producer(ARRAY.copy(), version, **options)
    tensor = Tensor.from_data(producer)
    same_bits(tensor.numpy(), ARRAY)
    assert np.shares_memory(tensor.numpy(), producer.array)
    view = tensor[1:].numpy()
    del tensor
    gc.collect()
    assert producer.deleted == 0
    same_bits(view, ARRAY[1:])
    del view
    assert producer.deleted == 1


@pytest.mark.parametrize("array", [ARRAY.T, ARRAY[::-1, ::2], np.full((), 3, np.float32), np.zeros((0, 3), np.float32)])
def test_layouts(array):
    same_bits(Tensor.from_data(Producer(array)).numpy(), np.array(array))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.uint8, np.int32])
def test_dtypes(dtype):
    array = np.arange(5).astype(dtype)
    same_bits(Tensor.from_data(Producer(array, None)).numpy(), array)


def test_bfloat16():
    array = np.arange(5).astype(ml_dtypes.bfloat16)
    tensor = Tensor.from_data(Producer(array.view(np.uint16), code=4))
    assert tensor.dtype is cr.bfloat16
    same_bits(tensor.numpy(), array)


def test_a_misaligned_address_is_copied():
    raw = np.frombuffer(bytearray(ARRAY.nbytes + 1), np.uint8)[1:].view(np.float32)
    raw[:] = ARRAY.ravel()
    producer = Producer(raw)
    tensor = Tensor.from_data(producer)
    assert producer.deleted == 1
    same_bits(tensor.numpy(), ARRAY.ravel())


def test_read_only_is_kept():
    assert not Tensor.from_data(Producer(ARRAY, flags=1)).numpy().flags.writeable


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_a_capsule_serves_once(version):
    producer = Producer(ARRAY, version)
    capsule = producer.capsule()
    tensor = Tensor.from_data(capsule)
    with pytest.raises(BufferError, match="once"):
        Tensor.from_data(capsule)
    assert producer.deleted == 0
    del tensor
    assert producer.deleted == 1


REFUSED = {
    "device": {"device": (2, 0)},
    "lanes": {"lanes": 4},
    "version": {"version": (2, 0)},
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_capsule_still_belongs_to_its_producer(name):
    producer = Producer(ARRAY, **REFUSED[name])
    with pytest.raises(BufferError):
        Tensor.from_data(producer)
    with pytest.raises(BufferError):
        Tensor.from_data(producer.capsule())
    assert producer.deleted == 0


def test_dtypes_that_are_not_served():
    for producer in (Producer(np.zeros(2)), Producer(np.zeros(2, np.int64)), Producer(np.zeros(2, np.uint8), code=6)):
        with pytest.raises(TypeError, match="served"):
            Tensor.from_data(producer)
        assert producer.deleted == 0


def test_other_capsules_are_refused():
    with pytest.raises(BufferError, match="nonsense"):
        Tensor.from_data(new_capsule(1, b"nonsense", None))


# Exports.


def test_numpy_takes_our_tensors():
    tensor = Tensor.from_data(ARRAY.copy())
    array = np.from_dlpack(tensor)
    same_bits(array, ARRAY)
    assert np.shares_memory(array, tensor.numpy())
    assert tensor.__dlpack_device__() == (1, 0)
    assert not np.shares_memory(np.from_dlpack(tensor, copy=True), tensor.numpy())


@pytest.mark.parametrize("max_version", [None, (0, 8), (1, 0), (2, 0)])
def test_exports_come_back(max_version):
    tensor = Tensor.from_data(ARRAY.astype(ml_dtypes.bfloat16)[:, ::-2])
    capsule = tensor.__dlpack__(max_version=max_version)
    wanted = "dltensor_versioned" if max_version and max_version[0] else "dltensor"
    assert f'"{wanted}"' in repr(capsule)
    same_bits(Tensor.from_data(capsule).numpy(), tensor.numpy())


def test_an_unused_capsule_lets_its_memory_go():
    import sys

    array = ARRAY.copy()
    before = sys.getrefcount(array)
    for version in (None, (1, 0)):
        capsule = Tensor.from_data(array).__dlpack__(max_version=version)
        assert sys.getrefcount(array) == before + 1
        del capsule
        assert sys.getrefcount(array) == before


def test_export_arguments():
    tensor = Tensor.from_data(ARRAY)
    assert tensor.__dlpack__(dl_device=(1, 0), copy=False, stream=None) is not None
    with pytest.raises(BufferError):
        tensor.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError):
        tensor.__dlpack__(stream=1)
    with pytest.raises(TypeError):
        tensor.__dlpack__(1)
