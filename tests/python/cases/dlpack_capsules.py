"""Hand-made DLPack producers, for what no library exports: odd strides, offsets, devices and lanes."""

import ctypes
from dataclasses import dataclass

import numpy as np

INT, UINT, FLOAT, BFLOAT = 0, 1, 2, 4
CPU, CUDA = 1, 2


class _Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("id", ctypes.c_int32))


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Managed._fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


@dataclass
class Layout:
    """What the capsule claims about the array's memory; by default the truth about a contiguous float32 array."""

    code: int = FLOAT
    bits: int = 32
    lanes: int = 1
    device: int = CPU
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None  # None: a null pointer, which means contiguous
    byte_offset: int = 0


class Producer:
    """Has `__dlpack__` as a tensor of `array`'s memory; counts how often its deleter ran."""

    def __init__(self, array: np.ndarray, layout: Layout | None = None):
        self.array = array
        self.layout = layout or Layout()
        self.deleted = 0
        self._held: list[object] = []

    def capsule(self):
        """A fresh capsule, version 0 ("dltensor")."""
        layout = self.layout
        shape = self.array.shape if layout.shape is None else layout.shape
        shape_array = (ctypes.c_int64 * max(1, len(shape)))(*shape)
        strides_array = None
        if layout.strides is not None:
            strides_array = (ctypes.c_int64 * max(1, len(layout.strides)))(*layout.strides)

        @_Deleter
        def deleter(_managed):
            self.deleted += 1

        managed = _Managed()
        managed.tensor = _Tensor(
            self.array.ctypes.data,
            _Device(layout.device, 0),
            len(shape),
            _DataType(layout.code, layout.bits, layout.lanes),
            shape_array,
            strides_array,
            layout.byte_offset,
        )
        managed.deleter = deleter
        self._held += [managed, shape_array, strides_array, deleter]
        return _new_capsule(ctypes.addressof(managed), b"dltensor", None)

    def __dlpack__(self, **_options):
        return self.capsule()

    def __dlpack_device__(self):
        return (self.layout.device, 0)
