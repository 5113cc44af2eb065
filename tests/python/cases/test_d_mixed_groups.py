"""Field cases, area (d): groups whose parts differ."""

import clika_runtime
import numpy as np
import oracles
import pytest
from clika_runtime import ClikaRTError, nn
from oracles import bound_conv, bound_linear, randn, same_bits


def woq(bits: int, symmetric: bool = True, group_size: int = 32, seed: int = 0) -> nn.QLinearWoQ:
    rng = np.random.default_rng(seed)
    scheme = nn.QuantScheme(bits, symmetric, group_size, clika_runtime.float32)
    layer = nn.QLinearWoQ(64, 5, False, scheme=scheme)
    shape = (5, -(-64 // group_size))
    if bits == 4:
        codes = rng.integers(0, 256, (5, 32), np.uint8)
    else:
        codes = rng.integers(-99, 99, (5, 64), np.int8) if symmetric else rng.integers(0, 256, (5, 64), np.uint8)
    tensors = {"weight": codes, "weight_scale": rng.random(shape, np.float32)}
    if not symmetric:
        tensors["weight_zero_point"] = rng.integers(0, 16, shape, np.uint8)
    layer.bind(**tensors)
    return layer


def dense(outputs=5, *, bias=False, seed=0, dtype="float32", **options) -> nn.Linear:
    return bound_linear(
        randn(outputs, 64, seed=seed), randn(outputs, seed=seed + 1) if bias else None,
        dtype=getattr(clika_runtime, dtype), **options,
    )  # fmt: skip


MIXTURES = {
    "some biases": ([lambda: dense(bias=True), lambda: dense(3, seed=2), lambda: dense(bias=True, seed=4)], 1),
    "float32 and bfloat16": ([dense, lambda: dense(dtype="bfloat16")], None),
    "int4 and int8": ([lambda: woq(4), lambda: woq(8)], None),
    "symmetric and not": ([lambda: woq(4), lambda: woq(4, False)], None),
    "groups of 32 and 64": ([lambda: woq(8), lambda: woq(8, True, 64)], None),
    "dense and int4": ([dense, lambda: woq(4)], None),
    "residencies": ([dense, lambda: dense(3, residency="per_call")], 1),
    "one activation": ([lambda: dense(activation="relu"), lambda: dense(3, activation="relu", seed=2)], 1),
    "int4 alike": ([lambda: woq(4, seed=1), lambda: woq(4, seed=2)], 1),
    "int4 with zero points": ([lambda: woq(4, False, seed=1), lambda: woq(4, False, seed=2)], 1),
}


@pytest.mark.parametrize("mixture", MIXTURES)
def test_c050_mixed_groups_give_what_their_parts_give(mixture):
    makers, dispatches = MIXTURES[mixture]
    x = randn(3, 64, seed=9)
    expected = np.concatenate([np.asarray(make()(x)) for make in makers], axis=-1)
    group = nn.fuse_linears(*(make() for make in makers))
    for _ in oracles.thread_counts():
        with clika_runtime.count_dispatches() as counter:
            assert same_bits(group(x), expected)
        if dispatches is None:
            assert not group.fused
            assert counter.total >= len(makers)
        else:
            assert group.fused
            assert counter.total == dispatches
    assert group.split_sizes == [make().out_features for make in makers]
    if mixture == "residencies":
        assert group.residency == "packed"


def conv(kernel=(3, 3), *, outputs=4, bias=True, groups=1, seed=0, **options) -> nn.Conv:
    weight = randn(outputs, 8 // groups, *kernel, seed=seed)
    return bound_conv(weight, randn(outputs, seed=seed) if bias else None, groups=groups, **options)


CONV_MIXTURES = {
    "alike": ([lambda: conv(padding=1), lambda: conv(padding=1, outputs=3, seed=1)], True),
    "one activation": ([lambda: conv(activation="silu"), lambda: conv(activation="silu", seed=1)], True),
    "another kernel on the same grid": ([lambda: conv(padding=1), lambda: conv((1, 1))], False),
    "another padding mode": ([lambda: conv(padding=1), lambda: conv(padding=1, padding_mode="reflect")], False),
    "another dilation": ([lambda: conv(padding=1), lambda: conv(padding=2, dilation=2)], False),
    "some biases": ([conv, lambda: conv(bias=False)], False),
    "grouped": ([conv, lambda: conv(groups=4)], False),
    "float32 and float16": ([conv, lambda: conv(dtype=clika_runtime.float16)], False),
}


@pytest.mark.parametrize("mixture", CONV_MIXTURES)
def test_c050_mixed_convolution_groups_give_what_their_parts_give(mixture):
    makers, fused = CONV_MIXTURES[mixture]
    x = randn(2, 6, 5, 8, seed=9)
    expected = np.concatenate([np.asarray(make()(x)) for make in makers], axis=-1)
    group = nn.fuse_convs(*(make() for make in makers))
    assert group.fused == fused
    for _ in oracles.thread_counts():
        with clika_runtime.count_dispatches() as counter:
            assert same_bits(group(x), expected)
        assert counter.total == 1 if fused else counter.total >= 2


def test_c050_bad_convolution_groups_are_refused():
    with pytest.raises(ClikaRTError, match="swiglu"):
        nn.fuse_convs(conv(), conv(), activation="swiglu")
    with pytest.raises(ClikaRTError):
        nn.fuse_convs(conv(activation="relu"), conv())
    with pytest.raises(ValueError):
        nn.fuse_convs(conv())
    with pytest.raises(TypeError):
        nn.fuse_convs(conv(), dense())


def test_c050_activations_must_agree():
    for activations in (("relu", "gelu", None), ("relu", None), ("swiglu", "swiglu"), ("relu", "gelu")):
        outputs = 4
        parts = [dense(outputs, activation=activation) for activation in activations]
        with pytest.raises(ClikaRTError):
            nn.fuse_linears(*parts)
        for part in parts:
            assert part(randn(2, 64)).shape[0] == 2
    with pytest.raises(ClikaRTError, match="gelu"):
        nn.fuse_linears(dense(activation="relu"), dense(activation="relu"), activation="gelu")


def test_c050_bad_groups_are_named():
    narrow = bound_linear(randn(5, 32), name="narrow")
    group = nn.fuse_linears(dense(name="wide"), narrow)
    assert not group.fused
    with pytest.raises(ValueError, match="narrow"):
        group(randn(2, 64))
    with pytest.raises(ValueError, match="wide"):
        group(randn(2, 32))
    with pytest.raises(ValueError):
        nn.fuse_linears(dense())
    with pytest.raises(ValueError):
        nn.fuse_linears()
    with pytest.raises(TypeError):
        nn.fuse_linears(dense(), "layer")
    with pytest.raises(TypeError):
        nn.fuse_linears([dense(), dense()])
    with pytest.raises(TypeError):
        nn.fuse_linears(dense(), nn.QLinear(64, 5))


def test_c050_gated_groups_split_the_concatenated_width_in_half():
    x = randn(3, 64, seed=9)
    with pytest.raises(ValueError):
        nn.fuse_linears(dense(), activation="swiglu")
    with pytest.raises(ClikaRTError, match="11"):
        nn.fuse_linears(dense(5), dense(6), activation="swiglu")
    with pytest.raises(ClikaRTError, match="bias"):
        nn.fuse_linears(dense(bias=True), dense(bias=True), activation="swiglu")
    for sizes in ((2, 1, 1), (6, 2), (3, 3)):
        parts = [dense(size, seed=size) for size in sizes]
        wide = np.concatenate([np.asarray(dense(size, seed=size)(x)) for size in sizes], axis=-1)
        half = wide.shape[-1] // 2
        y = np.asarray(nn.fuse_linears(*parts, activation="reglu")(x))
        gate, up = wide[:, :half], wide[:, half:]
        assert same_bits(y, np.where(gate > 0, gate, np.float32(0)) * up)
