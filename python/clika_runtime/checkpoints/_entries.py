"""The tensors of one layer of a checkpoint, by name, as NumPy arrays of the dtype and rank that a format asks for."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from .._core import ClikaRTError, Tensor

FLOATS = ("float16", "bfloat16", "float32")


class Entries:
    """What `tensors` holds under `prefix`, read as `format` (a name for messages)."""

    def __init__(self, tensors: Mapping[str, Any], prefix: str, format: str) -> None:
        self._tensors = tensors
        self._prefix = prefix
        self._format = format

    def refused(self, what: str) -> ClikaRTError:
        """The error to raise: it names the layer and the format."""
        return ClikaRTError(f"{self._prefix or 'the checkpoint'} ({self._format}): {what}")

    def key(self, name: str) -> str:
        return f"{self._prefix}.{name}" if self._prefix else name

    def __contains__(self, name: str) -> bool:
        return self.key(name) in self._tensors

    def take(self, name: str, dtypes: tuple[str, ...], rank: int) -> np.ndarray:
        """The tensor `name`. ClikaRTError: it is missing or empty, or its dtype or its number of axes is another."""
        if name not in self:
            raise self.refused(f"there is no tensor {self.key(name)}; {self._names_at_hand()}")
        array = array_of(self._tensors[self.key(name)], self.key(name))
        if array.dtype.name not in dtypes or array.ndim != rank or array.size == 0:
            raise self.refused(
                f"{name}: found {describe(array)}, expected {' or '.join(dtypes)} of rank {rank}, not empty"
            )
        return array

    def find(self, name: str, dtypes: tuple[str, ...], rank: int) -> np.ndarray | None:
        """`take`, or None where there is no such tensor."""
        return self.take(name, dtypes, rank) if name in self else None

    def rank(self, name: str) -> int | None:
        """How many axes the tensor `name` has; None where there is no such tensor."""
        return array_of(self._tensors[self.key(name)], self.key(name)).ndim if name in self else None

    def unsigned(self, name: str, signed: np.ndarray, bits: int) -> np.ndarray:
        """Whole numbers of -2^(bits-1) and up, int8 or floats, as uint8, 2^(bits-1) more.

        ClikaRTError: one is a fraction or outside.
        """
        middle = 1 << (bits - 1)
        # A weight is int8, of which no wide copy is made.
        if signed.dtype == np.int8 and -middle <= signed.min() and signed.max() < middle:
            return signed.view(np.uint8) + np.uint8(middle)
        values = signed.astype(np.float32)
        bad = ~((values >= -middle) & (values < middle) & (values == np.floor(values)))
        if bad.any():
            raise self.refused(
                f"{name}: found {values[bad][0]:g}, expected whole numbers from {-middle} to {middle - 1} for "
                f"{bits}-bit codes; quantize again with values in that range"
            )
        return (values + middle).astype(np.uint8)

    def bias(self, rows: int) -> np.ndarray | None:
        """`bias` [rows], widened to float32 (exact), as the layer holds it; None where there is none."""
        bias = self.find("bias", FLOATS, 1)
        if bias is None:
            return None
        self.expect_shape("bias", bias, (rows,))
        return bias.astype(np.float32)

    def expect_shape(self, name: str, array: np.ndarray, shape: tuple[int, ...], why: str = "") -> None:
        if array.shape != shape:
            raise self.refused(f"{name}: found {describe(array)}, expected {list(shape)}{why and ' ' + why}")

    def _names_at_hand(self) -> str:
        start = self.key("")
        names = sorted(key for key in self._tensors if key.startswith(start))
        return f"found under this name: {', '.join(names[:8])}" if names else "nothing is under this name"


def describe(array: np.ndarray) -> str:
    return f"{array.dtype.name}{list(array.shape)}"


def array_of(value: Any, name: str) -> np.ndarray:
    """`value` as a NumPy array of the CPU's byte order, without a copy where memory can be shared.

    Tensors and whatever `Tensor.from_data` takes; and what a checkpoint may hold although no layer does: int64 shapes,
    PyTorch's 8-bit floats.
    """
    if isinstance(value, np.ndarray):
        return value if value.dtype.isnative else value.astype(value.dtype.newbyteorder("="))
    if str(getattr(value, "dtype", "")).startswith("torch.float8_"):
        return _float8_of_torch(value)
    try:
        return (value if isinstance(value, Tensor) else Tensor.from_data(value)).numpy()
    except TypeError as error:
        try:
            array = np.asarray(value)
        except (TypeError, ValueError):
            array = None
        if array is None or array.dtype.kind not in "iu":
            raise ClikaRTError(f"{name}: {error}") from error
        return array


def _float8_of_torch(value: Any) -> np.ndarray:
    import ml_dtypes

    torch = sys.modules["torch"]
    bits = value.detach().contiguous().view(torch.uint8).numpy()
    return bits.view(np.dtype(getattr(ml_dtypes, str(value.dtype).removeprefix("torch."))))
