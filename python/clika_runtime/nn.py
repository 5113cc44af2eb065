# ruff: noqa: F811 (members of several classes share their names)
"""Layers, containers, and the two functions that fuse layers over one input.

The classes are C++'s own. What is added here is what a user writes: constructors that take every spelling of an
argument, iteration over the tree, representations, copies.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from . import _copying, _core
from ._arguments import (
    Activation,
    ActivationLike,
    activation_name,
    activation_of,
    integers,
    label,
    paddings,
    scheme_of,
)
from ._core import (
    Conv,
    ConvGroup,
    Layer,
    Linear,
    LinearGroup,
    Module,
    ModuleList,
    QLinear,
    QLinearWoQ,
    QuantScheme,
    Sequential,
    Tensor,
    float16,
    float32,
)
from ._members import member_of

__all__ = [
    "Activation",
    "ActivationLike",
    "Conv",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "Linear",
    "Module",
    "ModuleList",
    "QLinear",
    "QLinearWoQ",
    "QuantScheme",
    "Sequential",
    "fuse_convs",
    "fuse_linears",
]


for _class in (
    Module,
    Sequential,
    ModuleList,
    Layer,
    Linear,
    QLinearWoQ,
    QLinear,
    Conv,
    LinearGroup,
    ConvGroup,
    QuantScheme,
):
    _class.__module__ = __name__
del _class


def _compiled_init(cls: type) -> Callable[..., None]:
    """C++'s own constructor, which stays to be found when this file runs again (a reload, a second import)."""
    if "_compiled_init" not in cls.__dict__:
        cls._compiled_init = cls.__init__
    return cls.__dict__["_compiled_init"]


_init = {cls: _compiled_init(cls) for cls in (QuantScheme, Sequential, ModuleList, Linear, QLinearWoQ, QLinear, Conv)}


# Constructors.


@member_of(QuantScheme)
def __init__(
    self: QuantScheme,
    bits: int,
    symmetric: bool,
    group_size: int,
    scale_dtype: Any = float16,
    codebook: str | None = None,
    minimum: bool = False,
) -> None:
    """How a weight is quantized: a value that prints as "int4_g128_asym", "mxfp4" and parses from it.

    `bits`: 2, 4 or 8. `symmetric`: whether there are no stored zero points. `group_size`: inputs that share a scale,
    -1 for the whole row. `scale_dtype`: float32, float16, bfloat16, or "e8m0" and "e4m3", which are stored as
    uint8. `codebook`: None for integers, "nf4", "e2m1", "e4m3" or "e5m2". `minimum`: an asymmetric group is
    code * scale + minimum instead of having a zero point ("int4_g32_min"). ValueError: a combination that does not
    exist.
    """
    text = scale_dtype if scale_dtype in ("e8m0", "e4m3") else _core.dtype_of(scale_dtype).name
    _init[QuantScheme](self, bits, symmetric, group_size, text, codebook, minimum)


@member_of(Sequential)
def __init__(self: Sequential, *modules: Module) -> None:
    """Modules one after the other; children "0", "1", ..."""
    _init[Sequential](self)
    _append(self, modules)


@member_of(ModuleList)
def __init__(self: ModuleList, modules: Iterable[Module] = ()) -> None:
    """A list whose modules are children "0", "1", ..."""
    _init[ModuleList](self)
    _append(self, modules)


def _append(container: Module, modules: Iterable[Module]) -> None:
    for module in modules:
        if not isinstance(module, Module):
            raise TypeError(f"{type(container).__name__} holds modules, not a {type(module).__name__}")
        setattr(container, str(len(container)), module)


@member_of(Linear)
def __init__(
    self: Linear,
    in_features: int,
    out_features: int,
    bias: bool = True,
    *,
    dtype: Any = float32,
    activation: ActivationLike = None,
    residency: str = "packed",
    name: str | None = None,
) -> None:
    """y = activation(x @ weight.T + bias), from [*, in_features] to [*, out_features], in the dtype of x.

    `weight` is [out_features, in_features] of `dtype`, `bias` [out_features] of `dtype` or float32. A gated
    `activation` takes its gate from the first half of the rows and the up projection from the second, emits
    out_features / 2, and needs `bias=False` (else ClikaRTError). `residency`: "packed" or "per_call".
    """
    _init[Linear](self, in_features, out_features, bias, dtype, activation_name(activation), residency, label(name))


@member_of(QLinearWoQ)
def __init__(
    self: QLinearWoQ,
    in_features: int,
    out_features: int,
    bias: bool = True,
    *,
    scheme: QuantScheme | str,
    activation: ActivationLike = None,
    residency: str = "packed",
    compute: str = "float",
    name: str | None = None,
) -> None:
    """A linear whose weight alone is quantized, by `scheme`.

    Holds `weight` (codes; two a byte where they have 4 bits), `weight_scale` [out, groups], `weight_zero_point` or
    `weight_minimum` of that shape where the scheme is asymmetric, `bias` [out], and where the checkpoint has them
    `weight_g_idx` int32 [in] and `weight_global_scale` float32 [1]. `compute`: "float", or "int8" to quantize each
    input row too.
    """
    scheme = scheme_of(scheme)
    _init[QLinearWoQ](
        self, in_features, out_features, bias, scheme, activation_name(activation), residency, compute, label(name)
    )


@member_of(QLinearWoQ)
@staticmethod
def quantize(
    linear: Linear,
    scheme: QuantScheme | str,
    *,
    scales: str = "minmax",
    compute: str = "float",
    residency: str | None = None,
    name: str | None = None,
    importance: Any = None,
) -> QLinearWoQ:
    """A new layer with the bias and activation of `linear` and the codes nearest to its weight, by `scheme`.

    `scales`: "minmax" takes the least scale that covers each group, so that no weight is off by more than half a
    step; "mse" the one with the least squared error, which may cut a group's largest weights short. Scales are
    rounded to their storage type first. `compute` is the new layer's; `residency` and `name` are those of `linear`
    where they are None. `linear` may be packed or part of a group, and stays as it is. `importance`, for "mse":
    float [in], what a squared error in each input's weights counts; the mean square of the input's values makes it the
    error of the output.

    TypeError: `linear` is no Linear. ValueError: a scheme or a word that does not exist, or an importance that does not
    fit. ClikaRTError: `linear` is
    unbound or a group, a weight is NaN or infinite, or weights are greater than the scheme's scales reach.
    """
    if not isinstance(linear, Linear):
        raise TypeError(f"QLinearWoQ.quantize: expected a Linear, not a {type(linear).__name__}")
    given = None if name is None else label(name)
    return _core.QLinearWoQ._quantize(linear, scheme_of(scheme), scales, compute, residency, given, importance)


@member_of(QLinear)
def __init__(
    self: QLinear,
    in_features: int,
    out_features: int,
    bias: bool = True,
    *,
    activation: ActivationLike = None,
    name: str | None = None,
) -> None:
    """A linear over an int8 or uint8 input, with exact integer sums. It is served alone, never in a group.

    Holds `weight` int8 [out, in], `weight_scale` float32 [out], `input_scale`, `input_zero_point`, `bias` float32 and
    optionally `output_scale`, `output_zero_point`: with those the output has the input's dtype, else float32.
    """
    _init[QLinear](self, in_features, out_features, bias, activation_name(activation), label(name))


@member_of(Conv)
def __init__(
    self: Conv,
    in_channels: int,
    out_channels: int,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: Any = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    bias: bool = True,
    padding_mode: str = "zeros",
    *,
    dtype: Any = float32,
    activation: ActivationLike = None,
    name: str | None = None,
) -> None:
    """A convolution, channels last: [batch, *spatial, in_channels] to [batch, *spatial', out_channels].

    The spatial rank, 1 to 3, is the length of `kernel_size` (an int: 1). `weight` is [out, in / groups, *kernel] as
    in a PyTorch checkpoint. `padding`: an int, one number an axis, one (before, after) pair an axis, "valid" or
    "same". `padding_mode`: "zeros", "reflect", "replicate" or "circular".
    """
    kernel = integers(kernel_size, None, "kernel_size")
    kind, pairs = paddings(padding, len(kernel))
    _init[Conv](
        self,
        in_channels,
        out_channels,
        kernel,
        integers(stride, len(kernel), "stride"),
        kind,
        pairs,
        integers(dilation, len(kernel), "dilation"),
        groups,
        bias,
        padding_mode,
        dtype,
        activation_name(activation),
        label(name),
    )


def _conv_of_rank(rank: int) -> Any:
    def __init__(
        self: Conv,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: Any = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        *,
        dtype: Any = float32,
        activation: ActivationLike = None,
        name: str | None = None,
    ) -> None:
        kernel = integers(kernel_size, rank, "kernel_size")
        Conv.__init__(
            self, in_channels, out_channels, kernel, stride, padding, dilation, groups, bias, padding_mode,
            dtype=dtype, activation=activation, name=name,
        )  # fmt: skip

    return __init__


class Conv1d(Conv):
    """Conv with one spatial axis: [batch, length, channels]."""

    __init__ = _conv_of_rank(1)


class Conv2d(Conv):
    """Conv with two spatial axes: [batch, height, width, channels]."""

    __init__ = _conv_of_rank(2)


class Conv3d(Conv):
    """Conv with three spatial axes: [batch, depth, height, width, channels]."""

    __init__ = _conv_of_rank(3)


# The tree.

Module.__doc__ = (
    """A node of a model. Modules set as attributes become its children, as in torch; a subclass defines forward."""
)


@member_of(Module)
def named_children(self: Module) -> Iterator[tuple[str, Module]]:
    """(name, module) of each direct child, in the order of registration."""
    return iter(self._named_children())


@member_of(Module)
def children(self: Module) -> Iterator[Module]:
    """The direct children, in the order of registration."""
    return (child for _, child in self._named_children())


@member_of(Module)
def named_modules(self: Module, prefix: str = "") -> Iterator[tuple[str, Module]]:
    """(path, module) of this module and all below it, depth first, each module once."""
    return iter(self._named_modules(prefix))


@member_of(Module)
def modules(self: Module) -> Iterator[Module]:
    """This module and all below it, depth first, each once."""
    return (module for _, module in self._named_modules(""))


@member_of(Module)
def named_parameters(self: Module, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """(path, tensor) of every parameter below, those of a shared layer once."""
    for path, module in self._named_modules(prefix):
        if isinstance(module, Layer):
            for name, tensor in module.state_dict().items():
                if "." not in name:
                    yield (f"{path}.{name}" if path else name), tensor


@member_of(Module)
def parameters(self: Module) -> Iterator[Tensor]:
    """Every parameter below, those of a shared layer once."""
    return (tensor for _, tensor in self.named_parameters())


@member_of(Module)
def extra_repr(self: Module) -> str:
    """What a subclass wants between the parentheses of its repr."""
    return ""


@member_of(Module)
def __repr__(self: Module) -> str:
    name = type(self).__name__
    inside = [self.extra_repr()] if self.extra_repr() else []
    inside += [f"({child}): {module!r}".replace("\n", "\n  ") for child, module in self._named_children()]
    if len(inside) == 1 and not self._named_children():
        return f"{name}({inside[0]})"
    return f"{name}(\n  " + "\n  ".join(inside) + "\n)" if inside else f"{name}()"


def _is_default(value: Any, default: Any) -> bool:
    return value == default or (isinstance(value, tuple) and all(_is_default(v, default) for v in value))


def _spelled(value: Any) -> str:
    return (
        value.name if isinstance(value, _core.dtype) else repr(str(value) if isinstance(value, QuantScheme) else value)
    )


@member_of(Layer)
def extra_repr(self: Layer) -> str:
    """The constructor's arguments: those without a default, the bias, and what differs from its default."""
    arguments = _copying.constructor_arguments(self)
    shown = [
        f"{name}={_spelled(arguments[name])}"
        for name, parameter in inspect.signature(_copying.native(type(self))).parameters.items()
        if name in arguments and (name == "bias" or not _is_default(arguments[name], parameter.default))
    ]
    return ", ".join(shown)


@member_of(LinearGroup, ConvGroup)
def __repr__(self: LinearGroup | ConvGroup) -> str:
    return self._to_string()


@member_of(Sequential)
def forward(self: Sequential, x: Any) -> Any:
    """The output of the last module, each taking the output of the one before."""
    for module in self:
        x = module(x)
    return x


@member_of(Sequential, ModuleList)
def __len__(self: Module) -> int:
    return len(self._named_children())


@member_of(Sequential, ModuleList)
def __iter__(self: Module) -> Iterator[Module]:
    return self.children()


@member_of(Sequential, ModuleList)
def __getitem__(self: Module, index: int | slice) -> Any:
    found = list(self.children())[index]
    if not isinstance(index, slice):
        return found
    return Sequential(*found) if isinstance(self, Sequential) else ModuleList(found)


@member_of(Sequential, ModuleList)
def append(self: Module, module: Module) -> Module:
    """Adds a module at the end."""
    _append(self, [module])
    return self


@member_of(ModuleList)
def extend(self: ModuleList, modules: Iterable[Module]) -> ModuleList:
    """Adds modules at the end."""
    _append(self, modules)
    return self


# Layers.


@member_of(Layer)
def bind(self: Layer, *, assign: bool = False, **tensors: Any) -> Layer:
    """Gives the layer its tensors by name, as load_state_dict would, and returns it. None stands for one that is
    absent.
    """
    self._bind({name: tensor for name, tensor in tensors.items() if tensor is not None}, assign)
    return self


@member_of(Linear, QLinearWoQ, QLinear, Conv)
@property
def activation(self: Any) -> Activation | None:
    """What is applied to the output, or None."""
    return activation_of(self._activation)


@member_of(Conv)
@property
def padding(self: Conv) -> Any:
    """(before, after) of each axis, "valid" or "same"."""
    kind = self._padding_kind
    return self._padding if kind == "explicit" else kind


# Fusing.


def _fused(fuse: Callable[..., Any], layers: tuple[Any, ...], name: str | None, activation: ActivationLike) -> Any:
    label(name)
    group = fuse(layers, name, activation_name(activation))
    group._parts = layers  # the Python side of each part lives as long as the group's
    return group


def _check_layers(function: str, layers: tuple[Any, ...], kinds: tuple[type, ...], hint: str) -> None:
    expected = " or ".join(kind.__name__ for kind in kinds)
    for position, layer in enumerate(layers):
        if isinstance(layer, kinds):
            continue
        note = hint if isinstance(layer, Module) else ""
        if isinstance(layer, (list, tuple)):
            note = "; pass the layers one by one: " + function + "(*layers)"
        raise TypeError(f"{function}: argument {position} is a {type(layer).__name__}, expected a {expected}{note}")


def fuse_linears(
    *layers: Linear | QLinearWoQ,
    name: str | None = None,
    activation: ActivationLike = None,
) -> Linear:
    """Join linears over one input into one layer that runs them as a single matmul.

    The result is a Linear whose output is the parts' outputs side by side, in the order given, with the same bits
    as the parts alone; `split_with_sizes(y, group.split_sizes)` takes them apart. From here on the group holds the
    weights. The parts keep their place in the model's state dict and read their rows back through `weight`, but
    refuse to be called until a `load_state_dict` over one of them dissolves the group. Parts that cannot share a
    kernel (different quantization schemes or input widths) give a group all the same, which runs them one after the
    other; `explain()` says why.

    `activation` is applied to the whole width. A gated one takes the first half as the gate and the second as the
    up projection and emits half the width. Parts with a pointwise activation of their own, all the same, keep it.
    `name` labels the group in its repr and in messages.

    TypeError: an argument is not a Linear or QLinearWoQ. ValueError: fewer than two. ClikaRTError: a part is
    unbound, has run already, belongs to a group, or carries a bias under a gated activation; or the activations
    disagree.
    """
    hint = " (its quantized input has no place in a group)" if any(isinstance(p, QLinear) for p in layers) else ""
    _check_layers("fuse_linears", layers, (Linear, QLinearWoQ), hint)
    return _fused(_core.fuse_linears, layers, name, activation)


def fuse_convs(*layers: Conv, name: str | None = None, activation: ActivationLike = None) -> Conv:
    """Join convolutions over one input into one layer that runs them as a single convolution.

    The result is a Conv whose output channels are the parts', one after the other, with the same bits as the parts
    alone; `split_with_sizes(y, group.split_sizes)` takes them apart. Parts share a kernel when their geometry,
    dtype and presence of a bias agree and none is grouped; others are run one after the other in the same shape,
    and `explain()` says why. What becomes of the parts is as in `fuse_linears`.

    `activation` is a pointwise one over all channels; parts with one of their own, all the same, keep it. `name`
    labels the group in its repr and in messages.

    TypeError: an argument is not a Conv. ValueError: fewer than two. ClikaRTError: a part is unbound, has run
    already, or belongs to a group; the activations disagree, or `activation` is gated.
    """
    _check_layers("fuse_convs", layers, (Conv,), "")
    return _fused(_core.fuse_convs, layers, name, activation)
