"""QLinearWoQ.quantize: the codes it chooses, decoded in NumPy, against the weights they stand for."""

import copy
import pickle

import clika_runtime
import ml_dtypes
import numpy as np
import pytest
from clika_runtime import nn
from conftest import same_bits
from hypothesis import given, settings
from hypothesis import strategies as st

NF4 = [
    *[-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635],
    *[-0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725],
    *[0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0],
]
TABLES = {
    "nf4": np.array(NF4, np.float32),
    "e2m1": np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float32),
    "e4m3": np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32),
    "e5m2": np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e5m2).astype(np.float32),
}
SCALES = {"e8m0": ml_dtypes.float8_e8m0fnu, "e4m3": ml_dtypes.float8_e4m3fn}
FORMS = [
    "int4{}",
    "int4{}_min",
    "int8{}_min",
    "int2{}",
    "int2{}_asym",
    "int2{}_min",
    "int4{}_asym",
    "int8{}",
    "int8{}_asym",
    "nf4{}",
    "fp4{}",
    "fp8_e4m3{}",
    "fp8_e5m2{}",
]
SCHEMES = [
    *["int4_g32", "int4_g32_asym", "int4_asym_f32", "int8", "int8_g16_asym_bf16", "nf4_g16", "fp4_g32_f32"],
    *["int4_g32_min", "int8_g16_min_f32", "int2_g16", "int2_g16_asym_f32", "int2_min_bf16"],
    *["mxfp4", "nvfp4", "fp8_e4m3", "fp8_e5m2_g32_f32", "int4_g16_e8m0"],
]


def linear_of(weight, bias=None, **options):
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, **options)
    return layer.bind(weight=weight, bias=bias)


def decode(layer):
    """The values of the codes less their zero points, the scale and the minimum of each: float64 [out, in]."""
    scheme, depth = layer.scheme, layer.in_features
    codes = np.asarray(layer.weight)
    if scheme.bits < 8:
        shifts = np.arange(0, 8, scheme.bits, dtype=np.uint8)
        codes = (codes[:, :, None] >> shifts & 2**scheme.bits - 1).reshape(len(codes), -1)[:, :depth]
    size = depth if scheme.group_size < 0 else scheme.group_size
    group = np.arange(depth) // max(size, 1)
    scales = np.asarray(layer.weight_scale)
    if scheme.scale_dtype in SCALES:
        scales = scales.view(SCALES[scheme.scale_dtype])
    scales = scales.astype(np.float32)
    if layer.weight_global_scale is not None:
        scales = scales * np.asarray(layer.weight_global_scale)
    minimums = np.zeros_like(scales) if layer.weight_minimum is None else np.asarray(layer.weight_minimum)
    if scheme.codebook is not None:
        values = TABLES[scheme.codebook][codes].astype(np.float64)
    elif layer.weight_zero_point is not None:
        values = codes - np.asarray(layer.weight_zero_point).astype(np.float64)[:, group]
    else:
        values = codes.astype(np.float64) - (2 ** (scheme.bits - 1) if scheme.symmetric and scheme.bits < 8 else 0)
    return values, scales.astype(np.float64)[:, group], minimums.astype(np.float64)[:, group]


def dequantized(layer):
    values, scales, minimums = decode(layer)
    return values * scales + minimums


def half_steps(scheme, positions):
    """Half the distance between the levels around each position, which is a weight over its scale."""
    if scheme.codebook is None:
        return np.full(positions.shape, 0.5)
    levels = np.unique(TABLES[scheme.codebook][np.isfinite(TABLES[scheme.codebook])].astype(np.float64))
    above = np.clip(np.searchsorted(levels, positions), 1, len(levels) - 1)
    return (levels[above] - levels[above - 1]) / 2


def assert_within_half_a_step(weight, layer):
    values, scales, minimums = decode(layer)
    assert np.isfinite(scales).all()
    assert (scales > 0).all()
    bound = half_steps(layer.scheme, (weight - minimums) / scales) * scales
    assert (np.abs(weight - values * scales - minimums) <= bound * (1 + 1e-12)).all(), str(layer.scheme)


@st.composite
def schemes(draw):
    group = draw(st.sampled_from(["", "_g1", "_g7", "_g16", "_g32", "_g100"]))
    form = draw(st.sampled_from(FORMS))
    scale = draw(st.sampled_from(["", "_f32", "_bf16"]))
    return draw(st.sampled_from([form.format(group) + scale, "mxfp4", "nvfp4"]))


@settings(max_examples=80, deadline=None)
@given(
    scheme=schemes(),
    rows=st.integers(1, 9),
    depth=st.integers(1, 70),
    seed=st.integers(0, 1000),
    spread=st.sampled_from([0.0, 1.0, 6.0]),
    shift=st.sampled_from([0.0, -3.0, 3.0]),
)
def test_no_weight_is_off_by_more_than_half_a_step(scheme, rows, depth, seed, spread, shift):
    rng = np.random.default_rng(seed)
    weight = (rng.standard_normal((rows, depth)) * np.exp(-spread * rng.random((rows, depth))) + shift).astype(
        np.float32
    )
    layer = nn.QLinearWoQ.quantize(linear_of(weight), scheme)
    assert str(layer.scheme) == str(nn.QuantScheme.parse(scheme))
    assert_within_half_a_step(weight, layer)
    searched = nn.QLinearWoQ.quantize(linear_of(weight), scheme, scales="mse")
    off, covering = (np.square(weight - dequantized(q)).sum() for q in (searched, layer))
    assert off <= covering * (1 + 1e-12)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_representable_weights_come_back_exactly(rng, scheme):
    # Codes of another layer, whose groups each hold the codes that their scale is told from: both ends, or the
    # greatest of a codebook.
    first = nn.QLinearWoQ.quantize(linear_of(rng.standard_normal((6, 96), np.float32)), scheme)
    state = {name: np.array(tensor) for name, tensor in first.state_dict().items()}
    size = 96 if first.scheme.group_size < 0 else first.scheme.group_size
    codes = state["weight"].view(np.uint8)
    if first.scheme.bits == 2:
        codes[:, :: size // 4] = 0b11100100
    elif first.scheme.bits == 4:
        codes[:, :: size // 2] = (
            0xF0 if first.scheme.codebook is None else {"nf4": 0xFF, "e2m1": 0x77}[first.scheme.codebook]
        )
    elif first.scheme.codebook is None:
        codes[:, ::size], codes[:, 1::size] = (0x80, 0x7F) if first.scheme.symmetric else (0, 255)
    else:
        codes[:, ::size] = {"e4m3": 0x7E, "e5m2": 0x7B}[first.scheme.codebook]
    exact = nn.QLinearWoQ(96, 6, False, scheme=scheme).bind(**state)
    again = nn.QLinearWoQ.quantize(linear_of(dequantized(exact).astype(np.float32)), scheme)
    for name, tensor in again.state_dict().items():
        if tensor.dtype == clika_runtime.float32:  # the weights' own rounding may move a float32 scale by a step
            np.testing.assert_array_max_ulp(np.asarray(tensor), state[name], 1)
        else:
            same_bits(tensor, state[name])


@pytest.mark.parametrize("scheme", ["int4_g32", "int4_g32_min", "int8_asym", "nf4_g16", "nvfp4"])
def test_importance_makes_the_outputs_error_least(rng, scheme):
    # Inputs of very different size: the error of the output is what counts.
    x = rng.standard_normal((200, 64), np.float32) * np.exp(2 * rng.standard_normal(64)).astype(np.float32)
    weight = rng.standard_normal((24, 64), np.float32)
    importance = np.square(x).mean(axis=0)
    off = []
    for options in ({}, {"scales": "mse"}, {"scales": "mse", "importance": importance}):
        layer = nn.QLinearWoQ.quantize(linear_of(weight), scheme, **options)
        off.append(np.square(x @ (dequantized(layer) - weight).T).mean())
    assert off[2] < 0.95 * min(off[:2])
    even = nn.QLinearWoQ.quantize(linear_of(weight), scheme, scales="mse", importance=np.ones(64, np.float32))
    same_bits(even.weight, nn.QLinearWoQ.quantize(linear_of(weight), scheme, scales="mse").weight)


@pytest.mark.parametrize("scales", ["minmax", "mse"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_unusual_groups(scheme, scales):
    weight = np.zeros((8, 64), np.float32)
    weight[1:7] = np.array([1e-30, 2.0**-149, 0.3, -0.3, 3e4, 0], np.float32)[:, None]
    weight[6] = np.where(np.arange(64) % 3 == 0, -1, 0.25)
    weight[7, 40] = -100
    layer = nn.QLinearWoQ.quantize(linear_of(weight), scheme, scales=scales)
    assert np.isfinite(decode(layer)[1]).all()
    assert not dequantized(layer)[0].any()
    if scales == "minmax":
        assert_within_half_a_step(weight, layer)
    y = np.asarray(layer(np.eye(64, dtype=np.float32)))
    assert np.isfinite(y).all()
    assert not y[:, 0].any()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("residency", ["packed", "per_call"])
def test_forward_is_the_decoded_weights(rng, scheme, residency):
    weight, bias = rng.standard_normal((37, 100), np.float32), rng.standard_normal(37, np.float32)
    layer = nn.QLinearWoQ.quantize(linear_of(weight, bias), scheme, residency=residency)
    decoded = dequantized(layer)
    x = rng.standard_normal((5, 100), np.float32)
    reference = x.astype(np.float64) @ decoded.T + bias
    values, scales, minimums = decode(layer)
    terms = np.abs(values * scales) + np.abs(minimums)
    bound = (np.abs(x).astype(np.float64) @ terms.T + np.abs(bias)) * (100 + 16) * 2.0**-24
    assert (np.abs(np.asarray(layer(x)) - reference) <= bound).all()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_state_dict_round_trip(rng, scheme):
    linear = linear_of(rng.standard_normal((9, 50), np.float32), rng.standard_normal(9, np.float32), name="up")
    layer = nn.QLinearWoQ.quantize(linear, scheme)
    x = rng.standard_normal((3, 50), np.float32)
    other = nn.QLinearWoQ(50, 9, scheme=scheme)
    other.load_state_dict(layer.state_dict())
    y = layer(x)  # packs
    same_bits(other(x), y)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        same_bits(twin(x), y)
        assert twin.scheme == layer.scheme
    kept = layer.state_dict()
    for name, tensor in other.state_dict().items():
        same_bits(kept[name], tensor)


def test_keeps_what_the_linear_is(rng):
    weight, bias = rng.standard_normal((8, 24), np.float32), rng.standard_normal(8, np.float32)
    linear = linear_of(weight, bias, activation="gelu", residency="per_call", name="up")
    layer = nn.QLinearWoQ.quantize(linear, nn.QuantScheme(8, True, -1))
    assert (layer.name, layer.residency, layer.compute) == ("up", "per_call", "float")
    assert layer.activation is nn.Activation.gelu
    assert isinstance(layer, nn.QLinearWoQ)
    same_bits(layer.bias, bias)
    same_bits(linear.weight, weight)
    other = nn.QLinearWoQ.quantize(linear, "int8", compute="int8", residency="packed", name="other")
    assert (other.name, other.residency, other.compute) == ("other", "packed", "int8")
    x = rng.standard_normal((4, 24), np.float32)
    np.testing.assert_allclose(np.asarray(other(x)), np.asarray(linear(x)), atol=0.2)
    gated = nn.QLinearWoQ.quantize(linear_of(weight, activation="swiglu"), "int8")
    assert tuple(gated(x).shape) == (4, 4)


def test_reads_packed_and_fused_linears(rng):
    weights = [rng.standard_normal((6, 40), np.float32) for _ in range(2)]
    wanted = nn.QLinearWoQ.quantize(linear_of(weights[1]), "int4_g16")
    packed = linear_of(weights[1])
    packed(np.ones((1, 40), np.float32))
    parts = [linear_of(w) for w in weights]
    group = nn.fuse_linears(*parts)
    for linear in (packed, parts[1]):
        layer = nn.QLinearWoQ.quantize(linear, "int4_g16")
        same_bits(layer.weight, wanted.weight)
        same_bits(layer.weight_scale, wanted.weight_scale)
    assert group.fused
    assert packed.state == "packed"
    # Strided weights that were kept as they came.
    turned = nn.Linear(40, 6, False)
    turned.load_state_dict({"weight": np.asfortranarray(weights[1])}, assign=True)
    same_bits(nn.QLinearWoQ.quantize(turned, "int4_g16").weight, wanted.weight)


def test_quantized_layers_fuse(rng):
    layers = [
        nn.QLinearWoQ.quantize(linear_of(rng.standard_normal((n, 40), np.float32)), "int4_g16_asym") for n in (9, 5)
    ]
    x = rng.standard_normal((3, 40), np.float32)
    apart = np.concatenate([np.asarray(copy.deepcopy(layer)(x)) for layer in layers], axis=-1)
    group = nn.fuse_linears(*layers)
    assert group.fused
    same_bits(group(x), apart)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_weights_without_a_number_are_refused_by_name(bad):
    weight = np.ones((3, 20), np.float32)
    weight[1, 7] = weight[2, 2] = bad
    with pytest.raises(clika_runtime.ClikaRTError, match=r"'up', weight: .*\[1, 7\]"):
        nn.QLinearWoQ.quantize(linear_of(weight, name="up"), "int4")


def test_weights_beyond_the_scales_are_refused():
    weight = np.full((3, 20), 1e9, np.float32)
    with pytest.raises(clika_runtime.ClikaRTError, match="65504"):
        nn.QLinearWoQ.quantize(linear_of(weight), "int8")
    assert_within_half_a_step(weight, nn.QLinearWoQ.quantize(linear_of(weight), "int8_bf16"))


@pytest.mark.parametrize(
    ("scales", "remedy"), [("", "bfloat16 or float32"), ("_e8m0", "bfloat16 or float32"), ("_bf16", "float32")]
)
def test_scales_that_reach_further_are_named(scales, remedy):
    weight = np.full((1, 16), np.finfo(np.float32).max)
    with pytest.raises(clika_runtime.ClikaRTError, match=f"; use a scheme with {remedy} scales$"):
        nn.QLinearWoQ.quantize(linear_of(weight), f"nf4_g16{scales}")
    nn.QLinearWoQ.quantize(linear_of(weight), "nf4_g16_f32")


def test_wrong_arguments(rng):
    linear = linear_of(rng.standard_normal((4, 8), np.float32))
    for other in (None, np.ones((4, 8), np.float32), nn.QLinearWoQ.quantize(linear, "int8"), nn.Conv1d(1, 1, 1)):
        with pytest.raises(TypeError, match="expected a Linear"):
            nn.QLinearWoQ.quantize(other, "int8")
    with pytest.raises(ValueError, match="int3"):
        nn.QLinearWoQ.quantize(linear, "int3")
    with pytest.raises(ValueError, match="minmax, mse"):
        nn.QLinearWoQ.quantize(linear, "int8", scales="best")
    with pytest.raises(ValueError, match="residency"):
        nn.QLinearWoQ.quantize(linear, "int8", residency="here")
    with pytest.raises(TypeError, match="name"):
        nn.QLinearWoQ.quantize(linear, "int8", name=3)
    with pytest.raises(TypeError, match="scheme"):
        nn.QLinearWoQ.quantize(linear, 8)
    with pytest.raises(ValueError, match=r"importance: .*\[8\]"):
        nn.QLinearWoQ.quantize(linear, "int8", scales="mse", importance=np.ones(7, np.float32))
    with pytest.raises(ValueError, match="found -1 at position 3"):
        nn.QLinearWoQ.quantize(linear, "int8", scales="mse", importance=np.array([1, 1, 1, -1] * 2, np.float32))
    with pytest.raises(ValueError, match='only scales "mse"'):
        nn.QLinearWoQ.quantize(linear, "int8", importance=np.ones(8, np.float32))
    with pytest.raises(clika_runtime.ClikaRTError, match="'empty' is unbound"):
        nn.QLinearWoQ.quantize(nn.Linear(4, 4, name="empty"), "int8")
    with pytest.raises(clika_runtime.ClikaRTError, match="parts"):
        nn.QLinearWoQ.quantize(nn.fuse_linears(linear, copy.deepcopy(linear)), "int8")
