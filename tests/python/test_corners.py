"""Corners of groups and formulas that only particular values reach."""

import inspect

import clika_runtime as cr
import numpy as np
import pytest
from clika_runtime import nn
from conftest import same_bits, twin


@pytest.mark.parametrize("other", [{"dilation": 2}, {"stride": 2}, {"padding": 1}, {"kernel": (3, 1)}])
def test_convolutions_of_another_geometry_do_not_share_a_kernel(make, other):
    group = nn.fuse_convs(make.conv(2, 3), make.conv(2, 3, **({"kernel": 3} | other)))
    assert not group.fused
    with pytest.raises(ValueError, match="output grid"):
        group(make.array(1, 9, 9, 2))


def test_a_part_without_a_bias_keeps_the_sign_of_a_zero():
    # The product is too small for any float and rounds to -0, which a bias of +0 would turn into +0.
    tiny = np.full((1, 1), 1e-30, np.float32)
    without = nn.Linear(1, 1, bias=False).bind(weight=tiny)
    with_bias = nn.Linear(1, 1).bind(weight=tiny, bias=np.zeros(1, np.float32))
    expected = np.concatenate([np.asarray(twin(part)(-tiny)) for part in (without, with_bias)], axis=1)
    assert list(np.signbit(expected[0])) == [True, False]
    group = nn.fuse_linears(without, with_bias)
    assert group.fused
    same_bits(group(-tiny), expected)


def test_a_dissolved_per_call_group_leaves_no_joined_weight(make):
    parts = [make.linear(4, 4, residency="per_call") for _ in range(3)]
    nn.fuse_linears(*parts)
    joined = [part.weight.numpy() for part in parts]
    parts[0].load_state_dict(parts[0].state_dict())
    for part, before in zip(parts, joined, strict=True):
        same_bits(part.weight, before)
        assert not np.shares_memory(part.weight.numpy(), before)


def test_dissolved_groups_over_the_same_parts_keep_their_activations(make):
    parts = [make.linear(6, 5), make.linear(6, 4)]
    x = make.array(3, 6)
    plain = np.concatenate([np.asarray(twin(part)(x)) for part in parts], axis=1)
    groups = []
    for activation in ("relu", "relu2"):
        groups.append(nn.fuse_linears(*parts, activation=activation))
        parts[0].load_state_dict(parts[0].state_dict())
    same_bits(groups[0](x), np.maximum(plain, 0))
    same_bits(groups[1](x), np.maximum(plain, 0) ** 2)
    same_bits(groups[0](x), np.maximum(plain, 0))
    same_bits(parts[1](x), plain[:, 5:])


def test_an_activation_order_on_one_part_alone_is_served_side_by_side(make):
    parts = [make.woq(64, 5, "int4_g16"), make.woq(64, 7, "int4_g16")]
    order = np.random.default_rng(1).permutation(np.arange(64) // 16).astype(np.int32)
    state = {name: tensor.numpy() for name, tensor in parts[1].state_dict().items()}
    parts[1].load_state_dict(state | {"weight_g_idx": order})
    x = make.array(3, 64)
    expected = np.concatenate([np.asarray(twin(part)(x)) for part in parts], axis=1)
    for ordered in (parts, parts[::-1]):
        group = nn.fuse_linears(*ordered)
        assert not group.fused
        outputs = cr.split_with_sizes(group(x), group.split_sizes)
        same_bits(cr.concat(outputs if ordered is parts else outputs[::-1]), expected)
        for part in parts:
            part.load_state_dict(part.state_dict())


def test_int8_codes_stay_within_127_where_the_scale_is_subnormal():
    # 190 / 127 rounds to one unit of the least subnormal: the quotient is 190, the code 127.
    unit = np.float32(2.0**-149)
    layer = nn.QLinearWoQ(1, 1, bias=False, scheme="int8_f32", compute="int8")
    layer.bind(weight=np.ones((1, 1), np.int8), weight_scale=np.ones((1, 1), np.float32))
    same_bits(layer(np.full((1, 1), 190 * unit)), np.full((1, 1), 127 * unit))
    same_bits(layer(np.full((1, 1), -190 * unit)), np.full((1, 1), -127 * unit))


def test_plain_numbers_bind_the_one_value_parameters_of_a_qlinear():
    layer = nn.QLinear(2, 1, bias=False)
    layer.bind(
        weight=np.array([[1, 2]], np.int8), weight_scale=np.ones(1, np.float32), input_scale=0.5, input_zero_point=3
    )
    assert layer(np.array([[5, 4]], np.uint8)).numpy().tolist() == [[0.5 * (2 * 1 + 1 * 2)]]
    with pytest.raises(cr.ClikaRTError, match=r"input_zero_point.*int32"):
        layer.bind(input_zero_point=2**40)


def test_an_alias_of_an_activation_is_found_by_its_value():
    assert nn.Activation("swish") is nn.Activation.silu
    with pytest.raises(ValueError, match="swash"):
        nn.Activation("swash")


def test_the_tensor_functions_show_their_signatures():
    assert list(inspect.signature(cr.split_with_sizes).parameters) == ["x", "sizes", "dim"]
    assert inspect.signature(cr.concat).parameters["dim"].default == -1
