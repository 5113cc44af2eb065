"""Names, parameters, defaults and annotations are part of the interface."""

import inspect

import clika_runtime
import pytest
from clika_runtime import nn


def test_fuse_linears():
    assert str(inspect.signature(nn.fuse_linears)) == (
        "(*layers: 'Linear | QLinearWoQ', name: 'str | None' = None, activation: 'ActivationLike' = None) -> 'Linear'"
    )


def test_fuse_convs():
    assert str(inspect.signature(nn.fuse_convs)) == (
        "(*layers: 'Conv', name: 'str | None' = None, activation: 'ActivationLike' = None) -> 'Conv'"
    )


CONV = [
    *["in_channels", "out_channels", "kernel_size", "stride=1", "padding=0", "dilation=1", "groups=1", "bias=True"],
    *["padding_mode='zeros'", "*", "dtype=clika_runtime.float32", "activation=None", "name=None"],
]
CONSTRUCTORS = {
    "Module": [],
    "Sequential": ["*modules"],
    "Linear": [
        *["in_features", "out_features", "bias=True", "*", "dtype=clika_runtime.float32", "activation=None"],
        *["residency='packed'", "name=None"],
    ],
    "QLinearWoQ": [
        *["in_features", "out_features", "bias=True", "*", "scheme", "activation=None", "residency='packed'"],
        *["compute='float'", "name=None"],
    ],
    "QLinear": ["in_features", "out_features", "bias=True", "*", "activation=None", "name=None"],
    "Conv": CONV,
    "Conv1d": CONV,
    "Conv2d": CONV,
    "Conv3d": CONV,
    "QuantScheme": [
        "bits",
        "symmetric",
        "group_size",
        "scale_dtype=clika_runtime.float16",
        "codebook=None",
        "minimum=False",
    ],
}


def spelled(function):
    """The parameters without annotations, as one would write them."""
    signature = inspect.signature(function)
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    text = str(inspect.Signature(plain))[1:-1]
    return text.split(", ") if text else []


@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_constructors(name):
    if name == "Module":
        assert nn.Module() is not None
        return
    assert spelled(getattr(nn, name)) == CONSTRUCTORS[name]


def test_module_list_takes_modules():
    assert "modules" in inspect.signature(nn.ModuleList).parameters


def test_a_subclass_shows_its_own_constructor():
    class Mine(nn.Linear):
        def __init__(self, width):
            super().__init__(width, width)

    assert spelled(Mine) == ["width"]


def test_warmup():
    assert spelled(clika_runtime.warmup) == ["module", "inputs", "progress=True"]


def test_quantize():
    assert spelled(nn.QLinearWoQ.quantize) == [
        *["linear", "scheme", "*", "scales='minmax'", "compute='float'", "residency=None", "name=None"],
        "importance=None",
    ]


DOCUMENTED = [nn.fuse_linears, nn.fuse_convs, nn.Linear, nn.Conv, nn.QLinear, nn.QLinearWoQ, nn.QLinearWoQ.quantize]


@pytest.mark.parametrize("function", DOCUMENTED)
def test_docstrings_say_what_is_raised_or_held(function):
    assert len(function.__doc__.split()) > 30


def test_an_unknown_keyword_is_an_error():
    with pytest.raises(TypeError):
        nn.fuse_linears(limit=7.0)
    with pytest.raises(TypeError):
        nn.Linear(1, 1, limit=7.0)


def test_activation_spellings():
    pointwise = (
        "relu relu6 leaky_relu gelu gelu_tanh quick_gelu silu sigmoid tanh hardswish hardsigmoid elu softplus mish"
    )
    assert {a.value for a in nn.Activation} == {*pointwise.split(), "relu2", "swiglu", "geglu", "reglu", "situ"}
    assert nn.Activation.swish is nn.Activation.silu
    assert nn.Linear(1, 1, activation="swish").activation is nn.Activation.silu
    assert nn.Linear(1, 1, activation=nn.Activation.gelu).activation == "gelu"
    assert nn.Linear(1, 1).activation is None


def test_an_unknown_activation_lists_the_known():
    with pytest.raises(ValueError, match="gelu_tanh"):
        nn.Linear(1, 1, activation="gellu")
    with pytest.raises(TypeError, match="int"):
        nn.Linear(1, 1, activation=3)
