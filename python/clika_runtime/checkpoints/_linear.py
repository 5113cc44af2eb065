"""What a reader answers: everything a `QLinearWoQ` needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._arguments import ActivationLike
from ..nn import QLinearWoQ, QuantScheme
from ._codes import to_bytes
from ._entries import Entries


@dataclass(frozen=True, eq=False)
class QuantizedLinear:
    """A linear of a checkpoint, quantized by `scheme`; `state` is ready for `QLinearWoQ.load_state_dict`.

    Iterating gives the pair (scheme, state).
    """

    in_features: int
    out_features: int
    scheme: QuantScheme
    state: dict[str, np.ndarray]

    def __iter__(self):
        return iter((self.scheme, self.state))

    def layer(
        self,
        *,
        activation: ActivationLike = None,
        residency: str = "packed",
        compute: str = "float",
        name: str | None = None,
    ) -> QLinearWoQ:
        """A bound layer over these tensors. It holds their memory until it packs them; nothing is copied here."""
        made = QLinearWoQ(
            self.in_features,
            self.out_features,
            "bias" in self.state,
            scheme=self.scheme,
            activation=activation,
            residency=residency,
            compute=compute,
            name=name,
        )
        made.load_state_dict(self.state, assign=True)
        return made


def integer_linear(
    entries: Entries,
    codes: np.ndarray,
    scale: np.ndarray,
    zero_point: np.ndarray | None,
    *,
    bits: int,
    group_size: int,
    symmetric: bool | None = None,
    g_idx: np.ndarray | None = None,
) -> QuantizedLinear:
    """A linear with integer codes.

    `codes`: uint8 [out, in], unsigned. `scale`: [out, groups] of a float dtype, which the scheme takes over.
    `zero_point`: uint8 of that shape, unsigned, or None for the middle of the range everywhere. `symmetric`: True
    refuses other zero points than the middle, False keeps them all, None drops them where all are the middle.
    """
    rows, inputs = codes.shape
    middle = 1 << (bits - 1)
    if zero_point is None:
        zero_point = np.full(scale.shape, middle, np.uint8)
    centred = bool((zero_point == middle).all())
    if symmetric and not centred:
        other = int(zero_point[zero_point != middle][0])
        raise entries.refused(
            f"found a zero point of {other}, expected {middle} everywhere in a symmetric weight; pass symmetric=False"
        )
    drop = centred if symmetric is None else symmetric
    state: dict[str, np.ndarray] = {"weight": _stored(codes, bits, drop), "weight_scale": np.ascontiguousarray(scale)}
    if not drop:
        state["weight_zero_point"] = np.ascontiguousarray(zero_point)
    if g_idx is not None:
        state["weight_g_idx"] = g_idx
    return with_bias(entries, inputs, rows, QuantScheme(bits, drop, group_size, scale.dtype), state)


def minimum_linear(
    entries: Entries, codes: np.ndarray, scale: np.ndarray, minimum: np.ndarray, *, bits: int, group_size: int
) -> QuantizedLinear:
    """A linear with integer codes whose weights are code * scale + minimum: `codes` and `scale` as above, unsigned, and
    `minimum` of the scale's shape and dtype.
    """
    rows, inputs = codes.shape
    state = {
        "weight": _stored(codes, bits, False),
        "weight_scale": np.ascontiguousarray(scale),
        "weight_minimum": np.ascontiguousarray(minimum),
    }
    scheme = QuantScheme(bits, False, group_size, scale.dtype, minimum=True)
    return with_bias(entries, inputs, rows, scheme, state)


FLOAT8 = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}


def float8_linear(entries: Entries, codes: np.ndarray, scale: np.ndarray, group_size: int) -> QuantizedLinear:
    """A linear whose `codes` [out, in] are 8-bit floats, a dtype of `FLOAT8`; `scale` as for integers."""
    state = {"weight": np.ascontiguousarray(codes).view(np.uint8), "weight_scale": np.ascontiguousarray(scale)}
    rows, inputs = codes.shape
    scheme = QuantScheme(8, True, group_size, scale.dtype, FLOAT8[codes.dtype.name])
    return with_bias(entries, inputs, rows, scheme, state)


def with_bias(entries: Entries, inputs: int, rows: int, scheme: QuantScheme, state: dict[str, Any]) -> QuantizedLinear:
    """The linear of `state`, with the checkpoint's bias where it has one."""
    bias = entries.bias(rows)
    if bias is not None:
        state["bias"] = bias
    return QuantizedLinear(inputs, rows, scheme, state)


def _stored(codes: np.ndarray, bits: int, symmetric: bool) -> np.ndarray:
    packed = to_bytes(codes, bits)
    # Symmetric codes of 8 bits are signed: 128 less, which flips the highest bit.
    return (packed ^ 0x80).view(np.int8) if bits == 8 and symmetric else packed
