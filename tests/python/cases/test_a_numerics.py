"""Field cases, area (a): numbers."""

import gc

import clika_runtime
import ml_dtypes
import numpy as np
import oracles
import pytest
from clika_runtime import nn
from oracles import bound_conv, bound_linear, same_bits, same_everywhere

PROBES = np.array([np.nan, -1, -0.0, 0, 2, np.inf, -np.inf], np.float32)


def probes(count: int) -> np.ndarray:
    return PROBES[np.arange(count) % len(PROBES)]


@pytest.mark.parametrize("rows", [1, 2, 17])
def test_c001_relu_keeps_nan(rows):
    # Weights and input are zero, so the bias reaches the activation untouched; 37 = two bodies of 16 and a tail.
    bias = probes(37)
    x = np.zeros((rows, 4), np.float32)
    weight = np.zeros((37, 4), np.float32)
    expected = np.tile(np.where(np.isnan(bias), bias, np.maximum(bias, 0)), (rows, 1))
    y = same_everywhere(lambda r: bound_linear(weight, bias, activation="relu", residency=r), x)
    assert np.array_equal(y, expected, equal_nan=True)

    def build(_):
        return bound_conv(weight[:, :, None, None], bias, kind=nn.Conv2d, activation="relu")

    y = same_everywhere(build, x.reshape(rows, 1, 1, 4), nn.fuse_convs)
    assert np.array_equal(y.reshape(rows, 37), expected, equal_nan=True)


@pytest.mark.parametrize("rows", [1, 2, 17])
@pytest.mark.parametrize("residency", oracles.RESIDENCIES)
def test_c001_reglu_keeps_nan(rows, residency):
    # A gated group has no bias: one input of 1 and the probes as weights.
    gate = probes(37)[:, None]
    group = nn.fuse_linears(
        bound_linear(gate, residency=residency),
        bound_linear(np.ones((37, 1), np.float32), residency=residency),
        activation="reglu",
    )
    expected = np.where(np.isnan(gate), gate, np.maximum(gate, 0)).T.repeat(rows, axis=0)
    for _ in oracles.thread_counts():
        assert np.array_equal(np.asarray(group(np.ones((rows, 1), np.float32))), expected, equal_nan=True)


@pytest.mark.parametrize("activation", ["sigmoid", "tanh", "silu", "gelu", "gelu_tanh"])
def test_c005_activations_hold_over_the_working_range(activation):
    x = (np.arange(-30 * 64, 30 * 64 + 1) / 64).astype(np.float32)[:, None]
    one, zero = np.ones((1, 1), np.float32), np.zeros(1, np.float32)
    y = same_everywhere(lambda r: bound_linear(one, zero, activation=activation, residency=r), x)
    through_conv = bound_conv(one[:, :, None], zero, activation=activation)(x[None])
    assert same_bits(np.asarray(through_conv)[0], y)
    reference = oracles.ACTIVATIONS[activation](x.astype(np.float64))
    off = np.abs(y - reference)
    if activation in ("gelu", "gelu_tanh"):
        assert (off <= 4e-6 * np.abs(reference) + 5e-7).all()
    else:
        large = np.abs(reference) > 1e-6
        assert (off[large] <= 4e-6 * np.abs(reference[large])).all()
        assert (off[~large] <= 1e-7).all()
    if activation in ("sigmoid", "tanh"):
        assert (np.diff(y[:, 0]) >= 0).all()
        assert y.max() <= 1
    if activation == "sigmoid":
        assert y.min() >= 0
    if activation == "tanh":
        assert y.min() >= -1
        assert np.array_equal(y[::-1], -y)


SITU = [(1, 1, 0.715818), (8, 50, 92.90375), (-8, 50, -0.0311657), (30, 100, 99.93287), (np.inf, np.inf, 100.0),
        (-np.inf, 1, 0.0), (np.nan, 1, np.nan)]  # fmt: skip


def situ_group(dtype, residency="packed"):
    columns = [np.array([row[i] for row in SITU], np.float32)[:, None] for i in range(2)]
    return nn.fuse_linears(
        *(bound_linear(column, dtype=dtype, residency=residency) for column in columns), activation="situ"
    )


@pytest.mark.parametrize("residency", oracles.RESIDENCIES)
def test_c006_situ_caps_both_halves_in_float32(residency):
    y = np.asarray(situ_group(clika_runtime.float32, residency)(np.ones((1, 1), np.float32)))[0]
    expected = np.array([row[2] for row in SITU])
    assert np.allclose(y, expected, rtol=2e-6, atol=1e-30, equal_nan=True)
    # The bfloat16 result is the float32 one, rounded once.
    y16 = situ_group(clika_runtime.bfloat16, residency)(np.ones((1, 1), ml_dtypes.bfloat16))
    assert same_bits(np.asarray(y16)[0], oracles.to_bfloat16(y))


def test_c006_caps_are_fixed_and_not_silently_ignored():
    parts = [bound_linear(np.ones((2, 1), np.float32)) for _ in range(2)]
    with pytest.raises(TypeError):
        nn.fuse_linears(*parts, activation="situ", b1=2.0)
    assert np.isfinite(np.asarray(nn.fuse_linears(*parts, activation="situ")(np.ones((1, 1), np.float32)))).all()


def test_c007_gate_comes_first_and_unknown_parameters_are_refused():
    def part(value):
        return bound_linear(np.full((3, 1), value, np.float32))

    x = np.ones((1, 1), np.float32)
    in_order = np.asarray(nn.fuse_linears(part(1), part(2), activation="swiglu")(x))
    reversed_order = np.asarray(nn.fuse_linears(part(2), part(1), activation="swiglu")(x))
    assert np.allclose(in_order, 1.4621172, rtol=1e-6)
    assert np.allclose(reversed_order, 1.7615942, rtol=1e-6)
    for keyword in ({"limit": 7.0}, {"alpha": 1.702}, {"gated": "swiglu"}):
        with pytest.raises(TypeError):
            nn.fuse_linears(part(1), part(2), activation="swiglu", **keyword)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_c008_a_row_is_the_same_at_every_batch_size(dtype):
    rng = np.random.default_rng(8)
    numpy_dtype = np.float32 if dtype == "float32" else ml_dtypes.bfloat16
    weight = rng.standard_normal((1000, 1000), np.float32)
    row = rng.standard_normal((1, 1000), np.float32).astype(numpy_dtype)
    layers = {
        residency: bound_linear(weight, dtype=getattr(clika_runtime, dtype), residency=residency)
        for residency in oracles.RESIDENCIES
    }
    alone = np.asarray(layers["packed"](row))
    for _ in oracles.thread_counts():
        for layer in layers.values():
            for rows in (1, 2, 3, 4, 7, 8, 16, 17, 64):
                x = row.repeat(rows, axis=0)
                for _repeat in range(20 if rows == 3 else 2):
                    y = np.asarray(layer(x))
                    assert same_bits(y, alone.repeat(rows, axis=0))


@pytest.mark.parametrize("activation", [None, "relu"])
@pytest.mark.parametrize("bias_dtype", [np.float32, ml_dtypes.bfloat16])
def test_c009_bfloat16_is_rounded_once(activation, bias_dtype):
    # 1 + 2^-8 is halfway between two bfloat16: rounding before the bias would go down to 1.
    weight = np.tile(np.array([1, 2**-8], ml_dtypes.bfloat16), (33, 1))
    bias = np.full(33, 2**-10, bias_dtype)
    x = np.ones((3, 2), ml_dtypes.bfloat16)
    options = {"dtype": clika_runtime.bfloat16, "activation": activation}
    y = same_everywhere(lambda r: bound_linear(weight, bias, residency=r, **options), x)
    assert y.dtype == ml_dtypes.bfloat16
    assert (y.astype(np.float32) == 1.0078125).all()
    y = same_everywhere(lambda _: bound_conv(weight[:, :, None], bias, **options), x[None], nn.fuse_convs)
    assert (y.astype(np.float32) == 1.0078125).all()


BITS = np.array([0x3E89CCD5, 0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF, 0x7F800001, 0xFFFFFFFF, 0x00000001,
                 0x80000001, 0x00018000, 0xFF7FFFFF], np.uint32)  # fmt: skip


@pytest.mark.parametrize("residency", oracles.RESIDENCIES)
def test_c010_float32_weights_round_to_bfloat16(residency):
    weight = BITS.view(np.float32)[:, None]
    expected = oracles.to_bfloat16(weight)
    assert expected[:4, 0].astype(np.float32).view(np.uint32).tolist() == [
        0x3E8A0000,
        0x3F800000,
        0x3F820000,
        0x3F810000,
    ]
    layer = bound_linear(weight, dtype=clika_runtime.bfloat16, residency=residency)
    assert same_bits(layer.state_dict()["weight"], expected)
    # Each output column is one weight times 1, exact in float32.
    y = np.asarray(layer(np.ones((1, 1), np.float32)))[0]
    assert same_bits(y, (expected[:, 0].astype(np.float32) + np.float32(0)))
    assert same_bits(layer.state_dict()["weight"], expected)


def test_c012_nothing_old_leaks_into_a_result():
    rng = np.random.default_rng(12)
    cases = []
    for rows, outputs, inputs in ((7, 19, 5), (1, 1, 1), (33, 65, 130)):
        x = rng.standard_normal((rows, inputs), np.float32)
        weight = rng.standard_normal((outputs, inputs), np.float32)
        cases.append((bound_linear(weight), x))
        gate = [bound_linear(rng.standard_normal((outputs, inputs), np.float32)) for _ in range(2)]
        cases.append((nn.fuse_linears(*gate, activation="swiglu"), x))
    image = rng.standard_normal((1, 5, 7, 3), np.float32)
    cases.append((bound_conv(rng.standard_normal((19, 3, 3, 3), np.float32), padding=1), image))
    expected = [np.array(layer(x)) for layer, x in cases]
    for y in expected:
        assert np.isfinite(y).all()
    for _ in range(100):
        for (layer, x), want in zip(cases, expected, strict=True):
            poison = [np.full(want.shape, np.nan, np.float32) for _ in range(8)]
            del poison
            assert np.array_equal(np.asarray(layer(x)), want)
    gc.collect()
