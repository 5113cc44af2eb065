# ruff: noqa: F811 (members of several classes share their names)
"""Copies and pickles: layers come back from their constructor arguments and their tensors, groups from their parts.

A copied part is a layer on its own; copied with its group it belongs to the copied group. A shallow copy of a
container shares its children; a shallow copy of a layer is another layer with the same values. Groups live with
their parts, so only `copy.deepcopy` and pickle copy them.
"""

from __future__ import annotations

from typing import Any

from . import _core
from ._core import Conv, ConvGroup, Layer, Linear, LinearGroup, Module, QLinear, QLinearWoQ
from ._members import member_of


def tensor_from_array(array: Any) -> _core.Tensor:
    return _core.Tensor.from_data(array)


def parse_scheme(text: str) -> _core.QuantScheme:
    return _core.QuantScheme.parse(text)


def bare(cls: type) -> Any:
    """An instance whose C++ side is there but whose own __init__ has not run."""
    module = cls.__new__(cls)
    native(cls)(module)
    return module


def native(cls: type) -> Any:
    """The constructor of the compiled class that `cls` derives from."""
    return next(c for c in cls.__mro__ if c in _core.__dict__.values()).__init__


def rebuild_layer(cls: type, arguments: dict[str, Any], tensors: dict[str, _core.Tensor]) -> Any:
    layer = cls.__new__(cls)
    native(cls)(layer, **arguments)
    if tensors:
        layer.load_state_dict(tensors, assign=True)
    return layer


def rebuild_group(kind: str, parts: tuple[Any, ...], name: str | None, activation: str | None, dissolved: bool) -> Any:
    from . import nn

    fuse = {"linears": nn.fuse_linears, "convs": nn.fuse_convs}[kind]
    group = fuse(*parts, name=name, activation=activation)
    if dissolved:
        for part in parts:
            part.load_state_dict(part.state_dict())
    return group


def _common_arguments(layer: Any) -> dict[str, Any]:
    activation = layer.activation
    return {
        "bias": layer.has_bias,
        "activation": None if activation is None else activation.value,
        "name": layer.name,
    }


def _linear_arguments(layer: Linear) -> dict[str, Any]:
    return {
        "in_features": layer.in_features,
        "out_features": layer.out_features,
        "dtype": layer.dtype,
        "residency": layer.residency,
    }


def _woq_arguments(layer: QLinearWoQ) -> dict[str, Any]:
    return {
        "in_features": layer.in_features,
        "out_features": layer.out_features,
        "scheme": layer.scheme,
        "residency": layer.residency,
        "compute": layer.compute,
    }


def _qlinear_arguments(layer: QLinear) -> dict[str, Any]:
    return {"in_features": layer.in_features, "out_features": layer.out_features}


def _conv_arguments(layer: Conv) -> dict[str, Any]:
    names = (
        "in_channels",
        "out_channels",
        "kernel_size",
        "stride",
        "padding",
        "dilation",
        "groups",
        "padding_mode",
        "dtype",
    )
    return {name: getattr(layer, name) for name in names}


_ARGUMENTS = {
    Linear: _linear_arguments,
    QLinearWoQ: _woq_arguments,
    QLinear: _qlinear_arguments,
    Conv: _conv_arguments,
}


def constructor_arguments(layer: Any) -> dict[str, Any]:
    """What builds another layer of this kind."""
    own = next(make for cls, make in _ARGUMENTS.items() if isinstance(layer, cls))
    return own(layer) | _common_arguments(layer)


@member_of(Module)
def __reduce_ex__(self: Module, protocol: int) -> tuple[Any, ...]:
    return bare, (type(self),), dict(self.__dict__)


@member_of(Module)
def __setstate__(self: Module, attributes: dict[str, Any]) -> None:
    for name, value in attributes.items():
        setattr(self, name, value)


@member_of(Layer)
def __reduce_ex__(self: Layer, protocol: int) -> tuple[Any, ...]:
    own = {} if self.state == "unbound" else {name: t for name, t in self.state_dict().items() if "." not in name}
    return rebuild_layer, (type(self), constructor_arguments(self), own), dict(self.__dict__) or None


@member_of(LinearGroup, ConvGroup)
def __reduce_ex__(self: LinearGroup | ConvGroup, protocol: int) -> tuple[Any, ...]:
    kind = "linears" if isinstance(self, LinearGroup) else "convs"
    activation = _common_arguments(self)["activation"]
    dissolved = any(part.state != "fused" for part in self.parts)
    return rebuild_group, (kind, self.parts, self.name, activation, dissolved)


@member_of(LinearGroup, ConvGroup)
def __copy__(self: LinearGroup | ConvGroup) -> Any:
    raise TypeError("a group is copied together with its parts: use copy.deepcopy")
