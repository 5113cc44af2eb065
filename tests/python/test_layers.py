"""Layers on their own: states, properties, results, refusals."""

import clika_runtime as cr
import ml_dtypes
import numpy as np
import pytest
from clika_runtime import ClikaRTError, nn
from conftest import same_bits
from hypothesis import given, settings
from hypothesis import strategies as st


def test_the_life_of_a_layer(make):
    layer = nn.Linear(4, 3, name="proj")
    assert layer.state == "unbound"
    with pytest.raises(ClikaRTError, match="proj"):
        layer(make.array(1, 4))
    with pytest.raises(ClikaRTError, match="proj"):
        _ = layer.weight
    weight = make.array(3, 4)
    assert layer.bind(weight=weight, bias=make.array(3)) is layer
    assert layer.state == "bound"
    layer(make.array(1, 4))
    assert layer.state == "packed"
    same_bits(layer.weight, weight)


def test_per_call_keeps_the_weight_as_loaded(make):
    layer = make.linear(4, 3, residency="per_call")
    view = layer.weight
    layer(make.array(1, 4))
    assert layer.residency == "per_call"
    assert view.has_storage


def test_properties(make):
    layer = make.linear(4, 3, activation="gelu", name="proj")
    assert (layer.in_features, layer.out_features, layer.dtype) == (4, 3, cr.float32)
    assert (layer.name, layer.activation, layer.residency) == ("proj", nn.Activation.gelu, "packed")
    assert layer.bias.shape == (3,)
    assert make.linear(4, 3, bias=False).bias is None
    assert nn.Linear(4, 3).name is None
    assert len(layer.explain()) > 20


def test_repr_shows_how_a_layer_was_made():
    text = "Linear(in_features=4, out_features=3, bias=False, dtype=bfloat16, activation='gelu', name='proj')"
    assert repr(nn.Linear(4, 3, False, dtype="bfloat16", activation="gelu", name="proj")) == text
    assert repr(nn.Linear(4, 3)) == "Linear(in_features=4, out_features=3, bias=True)"
    assert repr(nn.QLinearWoQ(64, 3, scheme="int4_g32")) == (
        "QLinearWoQ(in_features=64, out_features=3, bias=True, scheme='int4_g32')"
    )
    assert repr(nn.Conv2d(3, 4, 3, stride=2, padding=1)) == (
        "Conv2d(in_channels=3, out_channels=4, kernel_size=(3, 3), stride=(2, 2), padding=((1, 1), (1, 1)), bias=True)"
    )


def reference(x, weight, bias):
    y = x.astype(np.float64) @ weight.astype(np.float64).T
    return y if bias is None else y + bias


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 5), max_size=3).map(tuple),
    st.integers(1, 70),
    st.integers(1, 70),
    st.booleans(),
    st.sampled_from([1, 2]),
    st.randoms(use_true_random=False),
)
def test_linear_is_a_matmul_of_any_shape(lead, inputs, outputs, bias, step, random):
    rng = np.random.default_rng(random.randrange(2**32))
    weight = rng.standard_normal((outputs, inputs)).astype(np.float32)
    offset = rng.standard_normal(outputs).astype(np.float32) if bias else None
    layer = nn.Linear(inputs, outputs, bias).bind(weight=weight, bias=offset)
    x = rng.standard_normal((*lead, inputs * step)).astype(np.float32)[..., ::step]
    y = layer(x)
    assert y.shape == (*lead, outputs)
    magnitude = np.abs(x).astype(np.float64) @ np.abs(weight).astype(np.float64).T + 1
    assert np.all(np.abs(y.numpy() - reference(x, weight, offset)) <= (inputs + 16) * 2**-24 * magnitude * 1.5)
    same_bits(y, layer(np.ascontiguousarray(x)))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_output_has_the_inputs_dtype(make, dtype):
    layer = make.linear(8, 3)
    assert layer(make.array(2, 8).astype(np.dtype(dtype))).dtype is getattr(cr, dtype)
    assert layer.weight.dtype is cr.float32


@pytest.mark.parametrize("value", [np.zeros(5, np.float32), np.float32(1), np.zeros((2, 0), np.float32)])
def test_a_wrong_shape_is_a_value_error(make, value):
    with pytest.raises(ValueError, match=r"proj.*4"):
        make.linear(4, 3, name="proj")(value)


@pytest.mark.parametrize("value", [np.zeros(4), np.zeros(4, np.int32), "x", None])
def test_a_wrong_dtype_is_a_type_or_value_error(make, value):
    with pytest.raises((TypeError, ValueError)):
        make.linear(4, 3)(value)


def test_lists_serve_as_inputs(make):
    layer = make.linear(2, 2)
    same_bits(layer([[1.0, 2.0]]), layer(np.array([[1, 2]], np.float32)))


def test_outputs_are_fresh_and_writable(make):
    layer = make.linear(4, 3)
    x = make.array(2, 4)
    first = layer(x).numpy()
    kept = first.copy()
    second = layer(x).numpy()
    assert first.flags.writeable
    second[:] = 0
    same_bits(first, kept)


@pytest.mark.parametrize(
    "arguments",
    [(-1, 2), (2, -1), (2.5, 2), ("2", 2)],
)
def test_bad_sizes(arguments):
    with pytest.raises((TypeError, ValueError)):
        nn.Linear(*arguments)


def test_words_that_do_not_exist_list_the_good_ones(make):
    with pytest.raises(ValueError, match="per_call"):
        nn.Linear(2, 2, residency="resident")
    with pytest.raises(ValueError, match="int8"):
        nn.QLinearWoQ(2, 2, scheme="int8", compute="int4")
    with pytest.raises(ValueError, match="replicate"):
        nn.Conv2d(1, 1, 3, padding_mode="mirror")
    with pytest.raises(ValueError, match="same"):
        nn.Conv2d(1, 1, 3, padding="full")
    with pytest.raises(ValueError):
        nn.QLinearWoQ(2, 2, scheme="int9000")
    with pytest.raises(TypeError):
        nn.QLinearWoQ(2, 2, scheme=4)


def test_a_gated_linear(make):
    layer = make.linear(8, 6, bias=False, activation="swiglu")
    plain = nn.Linear(8, 6, bias=False).bind(weight=layer.weight)
    x = make.array(3, 8)
    gate, up = np.split(plain(x).numpy().astype(np.float64), 2, axis=-1)
    y = layer(x)
    assert y.shape == (3, 3)
    np.testing.assert_allclose(y.numpy(), gate / (1 + np.exp(-gate)) * up, rtol=1e-5, atol=1e-6)
    with pytest.raises(ClikaRTError, match="bias"):
        nn.Linear(8, 6, activation="swiglu")


def test_bind_takes_names_only_and_checks_them(make):
    layer = nn.Linear(4, 3, bias=False)
    with pytest.raises(ClikaRTError, match="wieght"):
        layer.bind(wieght=make.array(3, 4))
    with pytest.raises(ClikaRTError, match=r"\[3, 4\]"):
        layer.bind(weight=make.array(4, 3))
    assert layer.state == "unbound"
    layer.bind(weight=make.array(3, 4), bias=None)
    assert layer.state == "bound"


def test_tensors_as_weights(make):
    layer = nn.Linear(4, 3, bias=False)
    weight = cr.Tensor.from_data(make.array(4, 3))
    layer.bind(weight=weight.numpy().T)
    same_bits(layer.weight, weight.numpy().T.copy())


# Quantized.


@pytest.mark.parametrize("text", ["int4_g128_asym", "int8", "nf4_g64", "mxfp4", "nvfp4", "fp8_e4m3", "int4_g32"])
def test_schemes_print_and_parse(text):
    scheme = nn.QuantScheme.parse(text)
    assert str(scheme) == text
    again = nn.QuantScheme(scheme.bits, scheme.symmetric, scheme.group_size, scheme.scale_dtype, scheme.codebook)
    assert again == scheme
    assert len({again, scheme}) == 1
    assert again != nn.QuantScheme.parse("int8_g16")
    assert scheme != text
    assert "QuantScheme(bits=" in repr(scheme)


def test_scheme_arguments():
    scheme = nn.QuantScheme(4, False, 128)
    assert (scheme.bits, scheme.symmetric, scheme.group_size) == (4, False, 128)
    assert (scheme.scale_dtype, scheme.codebook) == (cr.float16, None)
    assert nn.QuantScheme(8, True, -1, np.float32).scale_dtype is cr.float32
    assert nn.QuantScheme.parse("mxfp4").scale_dtype == "e8m0"
    for wrong in ({"bits": 9}, {"group_size": 0}, {"codebook": "nf5"}):
        with pytest.raises(ValueError):
            nn.QuantScheme(**{"bits": 8, "symmetric": True, "group_size": -1} | wrong)


def test_weight_only_linear(make):
    layer = make.woq(64, 5, "int8_g32", name="woq")
    q, s = layer.weight.numpy().astype(np.float64), layer.weight_scale.numpy().astype(np.float64)
    weight = q * np.repeat(s, 32, axis=1)
    x = make.array(3, 64)
    np.testing.assert_allclose(layer(x).numpy(), reference(x, weight, layer.bias.numpy()), rtol=1e-4, atol=1e-2)
    assert (layer.scheme, layer.compute) == (nn.QuantScheme.parse("int8_g32"), "float")
    assert layer.weight_zero_point is None
    assert "int8_g32" in repr(layer)


def test_quantized_linear(rng):
    layer = nn.QLinear(16, 4)
    w = rng.integers(-128, 128, (4, 16)).astype(np.int8)
    layer.load_state_dict(
        {
            "weight": w,
            "weight_scale": np.full(4, 0.5, np.float32),
            "input_scale": np.full(1, 0.25, np.float32),
            "input_zero_point": np.full(1, 3, np.uint8),
            "bias": np.arange(4, dtype=np.float32),
        }
    )
    x = rng.integers(0, 256, (2, 16)).astype(np.uint8)
    expected = ((x.astype(np.int64) - 3) @ w.astype(np.int64).T) * 0.125 + np.arange(4)
    same_bits(layer(x), expected.astype(np.float32))
    assert layer.output_scale is None
    with pytest.raises((TypeError, ValueError)):
        layer(x.astype(np.float32))


# Convolutions.


def test_conv_arguments():
    conv = nn.Conv2d(3, 8, (3, 5), stride=2, padding=((1, 2), (0, 3)), dilation=(1, 2), groups=1)
    assert (conv.kernel_size, conv.stride, conv.dilation) == ((3, 5), (2, 2), (1, 2))
    assert conv.padding == ((1, 2), (0, 3))
    assert nn.Conv2d(3, 8, 3, padding=(1, 2)).padding == ((1, 1), (2, 2))
    assert nn.Conv1d(3, 8, 3, padding=1).padding == ((1, 1),)
    assert nn.Conv3d(3, 8, 3, padding="same").padding == "same"
    assert nn.Conv(3, 8, 3).kernel_size == (3,)
    assert nn.Conv(3, 8, (3, 3, 3)).kernel_size == (3, 3, 3)
    assert nn.Conv2d(3, 8, 3).kernel_size == (3, 3)
    for wrong in ({"stride": (1, 2, 3)}, {"padding": (1,)}, {"padding": ((1, 1),)}, {"kernel_size": (3, 3, 3)}):
        with pytest.raises(ValueError):
            nn.Conv2d(**{"in_channels": 3, "out_channels": 8, "kernel_size": 3} | wrong)
    for large in ({"dilation": 2**62}, {"stride": 2**64}, {"padding": 2**64}, {"kernel_size": 2**64}):
        with pytest.raises(ValueError):
            nn.Conv2d(**{"in_channels": 3, "out_channels": 8, "kernel_size": 5} | large)
    with pytest.raises(TypeError):
        nn.Conv2d(3, 8, 3.5)
    with pytest.raises(TypeError):
        nn.Conv2d(3, 8, 3, stride="2")


def test_conv_is_channels_last(make):
    conv = make.conv(3, 4, 3, padding=1)
    x = make.array(2, 5, 6, 3)
    y = conv(x)
    assert y.shape == (2, 5, 6, 4)
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    w, b = conv.weight.numpy().astype(np.float64), conv.bias.numpy()
    expected = sum(padded[:, i : i + 5, j : j + 6] @ w[:, :, i, j].T for i in range(3) for j in range(3)) + b
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_conv_input_errors_name_the_layout(make):
    conv = make.conv(3, 4, 3, name="stem")
    for shape in [(5, 6, 3), (1, 3, 28, 28), (3,)]:
        with pytest.raises(ValueError, match="stem"):
            conv(np.zeros(shape, np.float32))


def test_bfloat16_layers_keep_their_dtype(make):
    layer = make.linear(8, 4, dtype="bfloat16")
    assert layer.weight.numpy().dtype == ml_dtypes.bfloat16
    assert layer(make.array(2, 8).astype(ml_dtypes.bfloat16)).dtype is cr.bfloat16
