"""What a user may write for an argument, turned into the one form that the C++ side takes."""

from __future__ import annotations

import enum
import operator
from collections.abc import Iterable
from typing import Any, Union

from . import _core


class Activation(str, enum.Enum):
    """What is applied to a layer's output before its one rounding. Members are named as they are spelled."""

    relu = "relu"
    relu6 = "relu6"
    leaky_relu = "leaky_relu"
    gelu = "gelu"
    gelu_tanh = "gelu_tanh"
    quick_gelu = "quick_gelu"
    silu = "silu"
    swish = "silu"
    sigmoid = "sigmoid"
    tanh = "tanh"
    hardswish = "hardswish"
    hardsigmoid = "hardsigmoid"
    elu = "elu"
    softplus = "softplus"
    mish = "mish"
    relu2 = "relu2"
    swiglu = "swiglu"
    geglu = "geglu"
    reglu = "reglu"
    situ = "situ"

    def __str__(self) -> str:
        return self.value

    @classmethod
    def _missing_(cls, value: object) -> Activation | None:
        """`swish` by value too: an alias is only found by its name."""
        return cls.silu if value == "swish" else None


ActivationLike = Union[Activation, str, None]  # noqa: UP007 (a value too, not only an annotation)


def activation_name(activation: ActivationLike) -> str:
    """The C++ spelling; "none" for None."""
    if activation is None:
        return "none"
    if not isinstance(activation, str):
        raise TypeError(f"an activation is an Activation, a string or None, not a {type(activation).__name__}")
    return _core.parse_activation(str(activation))


def activation_of(name: str) -> Activation | None:
    return None if name == "none" else Activation(name)


def label(name: str | None) -> str:
    if name is not None and not isinstance(name, str):
        raise TypeError(f"a name is a string or None, not a {type(name).__name__}")
    return name or ""


def integers(value: int | Iterable[int], rank: int | None, what: str) -> tuple[int, ...]:
    """One number for each of `rank` axes, an int standing for all of them (for one axis where `rank` is None)."""
    try:
        numbers = (operator.index(value),) * (rank or 1)
    except TypeError:
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise TypeError(f"{what} is an int or a sequence of ints, not {value!r}") from None
        numbers = tuple(operator.index(v) for v in value)
    if any(abs(n) >= 2**63 for n in numbers):
        raise ValueError(f"{what} does not fit into 64 bits: {value!r}")
    if rank is not None and len(numbers) != rank:
        raise ValueError(f"{what} has {len(numbers)} numbers for {rank} spatial axes: {value!r}")
    return numbers


def paddings(padding: Any, rank: int) -> tuple[str, list[tuple[int, int]]]:
    """The kind ("explicit", "valid", "same") and (before, after) for each axis."""
    if isinstance(padding, str):
        if padding not in ("valid", "same"):
            raise ValueError(f'padding "{padding}" is not known; the words are "valid" and "same"')
        return padding, []
    if isinstance(padding, Iterable):
        padding = tuple(padding)
        if any(isinstance(entry, Iterable) for entry in padding):
            if len(padding) != rank:
                raise ValueError(f"padding has {len(padding)} pairs for {rank} spatial axes: {padding!r}")
            pairs = [integers(entry, 2, "padding (before, after)") for entry in padding]
            return "explicit", [(before, after) for before, after in pairs]
    return "explicit", [(p, p) for p in integers(padding, rank, "padding")]


def scheme_of(scheme: _core.QuantScheme | str) -> _core.QuantScheme:
    if isinstance(scheme, str):
        return _core.QuantScheme.parse(scheme)
    if not isinstance(scheme, _core.QuantScheme):
        raise TypeError(f"a scheme is a QuantScheme or a string, not a {type(scheme).__name__}")
    return scheme
