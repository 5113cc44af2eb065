"""fuse_linears, one test a promise."""

import copy
import gc

import clika_runtime as cr
import numpy as np
import pytest
from clika_runtime import ClikaRTError, nn
from conftest import same_bits, twin


@pytest.fixture
def qkv(make):
    return make.linear(64, 64), make.linear(64, 16), make.linear(64, 16)


def side_by_side(parts, x):
    return np.concatenate([np.asarray(part(x)) for part in parts], axis=-1)


def test_returns_a_linear(qkv):
    assert isinstance(nn.fuse_linears(*qkv), nn.Linear)


@pytest.mark.parametrize("lead", [(), (1,), (5,), (2, 3), (2, 0, 3)])
def test_maps_inputs_to_the_sum_of_outputs_in_order(qkv, make, lead):
    """Any leading shape; the parts' outputs follow one another, and no bit differs from the parts alone."""
    alone = [twin(part) for part in qkv]
    group = nn.fuse_linears(*qkv)
    x = make.array(*lead, 64)
    y = group(x)
    assert y.shape == (*lead, 96)
    same_bits(y, side_by_side(alone, x))


def test_order_is_the_order_given(make):
    a, b = make.linear(8, 3), make.linear(8, 5)
    x = make.array(2, 8)
    expected = side_by_side([twin(b), twin(a)], x)
    same_bits(nn.fuse_linears(b, a)(x), expected)


def test_split_with_sizes_takes_the_output_apart(qkv, make):
    alone = [twin(part) for part in qkv]
    group = nn.fuse_linears(*qkv)
    x = make.array(7, 64)
    assert list(group.split_sizes) == [64, 16, 16]
    for piece, part in zip(cr.split_with_sizes(group(x), group.split_sizes), alone, strict=True):
        same_bits(piece, part(x))


def test_one_dispatch_for_the_group(qkv, make):
    group = nn.fuse_linears(*qkv)
    x = make.array(4, 64)
    with cr.count_dispatches() as count:
        group(x)
    assert count.total == 1
    assert sum(count.by_kernel.values()) == 1


class Attention(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.q, self.k, self.v = make.linear(32, 32), make.linear(32, 8), make.linear(32, 8, bias=False)

    def fuse(self):
        self.qkv = nn.fuse_linears(self.q, self.k, self.v, name="qkv")
        return self

    def forward(self, x):
        return self.qkv(x)


@pytest.mark.parametrize("run", [False, True])
def test_the_state_dict_stays_the_checkpoints(make, run):
    """Same names and bytes before the fuse, after it, and after the pack has been used."""
    model = Attention(make)
    before = {name: np.array(t) for name, t in model.state_dict().items()}
    assert list(before) == ["q.weight", "q.bias", "k.weight", "k.bias", "v.weight"]
    model.fuse()
    if run:
        model(make.array(3, 32))
    after = model.state_dict()
    assert list(after) == list(before)
    for name, value in before.items():
        same_bits(after[name], value)


def test_the_group_lists_no_parameters(qkv):
    group = nn.fuse_linears(*qkv)
    assert group.state_dict() == {}
    assert list(group.parameters()) == []


def test_a_view_from_before_the_fuse_is_storage_free(qkv):
    """It still answers its metadata; its data are refused."""
    view = qkv[1].weight
    nn.fuse_linears(*qkv)
    assert not view.has_storage
    assert (view.shape, view.dtype, view.ndim, view.nbytes) == ((16, 64), cr.float32, 2, 4096)
    assert "storage-free" in repr(view)
    with pytest.raises(ClikaRTError):
        view.numpy()


def test_an_export_from_before_the_fuse_keeps_its_memory(qkv):
    array = qkv[1].weight.numpy()
    kept = array.copy()
    nn.fuse_linears(*qkv)
    gc.collect()
    same_bits(array, kept)


def test_part_weight_reads_its_rows_back(qkv, make):
    weights = [np.array(part.weight) for part in qkv]
    biases = [np.array(part.bias) for part in qkv]
    group = nn.fuse_linears(*qkv)
    for _ in range(2):
        for part, weight, bias in zip(qkv, weights, biases, strict=True):
            same_bits(part.weight, weight)
            same_bits(part.bias, bias)
        group(make.array(2, 64))


@pytest.mark.parametrize(
    ("residencies", "expected"),
    [(("packed",) * 2, "packed"), (("per_call",) * 2, "per_call"), (("packed", "per_call"), "packed")],
)
def test_the_residency_is_the_parts_own_or_packed(make, residencies, expected):
    parts = [make.linear(24, 10, residency=r) for r in residencies]
    alone = [twin(part) for part in parts]
    group = nn.fuse_linears(*parts)
    assert group.residency == expected
    x = make.array(5, 24)
    same_bits(group(x), side_by_side(alone, x))


def test_parts_refuse_to_be_called(qkv, make):
    group = nn.fuse_linears(*qkv, name="qkv")
    x = make.array(1, 64)
    for _ in range(2):
        for part in qkv:
            with pytest.raises(ClikaRTError):
                part(x)
        group(x)


@pytest.mark.parametrize("run", [False, True])
def test_a_load_over_a_part_dissolves_the_group(qkv, make, run):
    """From then on every part serves again, and the group serves them side by side with the new weights."""
    x = make.array(3, 64)
    group = nn.fuse_linears(*qkv)
    if run:
        group(x)
    assert group.fused
    new = make.array(16, 64)
    qkv[1].load_state_dict({"weight": new, "bias": np.zeros(16, np.float32)})
    assert not group.fused
    same_bits(qkv[1].weight, new)
    same_bits(group(x), side_by_side(qkv, x))
    with cr.count_dispatches() as count:
        group(x)
    assert count.total >= 3


def test_dissolved_parts_may_be_fused_again(qkv, make):
    nn.fuse_linears(*qkv)
    qkv[0].load_state_dict(qkv[0].state_dict())
    x = make.array(2, 64)
    alone = [twin(part) for part in qkv]
    same_bits(nn.fuse_linears(*qkv)(x), side_by_side(alone, x))


def test_a_load_that_reaches_no_part_leaves_the_group_alone(make):
    model = Attention(make).fuse()
    model.other = make.linear(4, 4)
    model.load_state_dict({"other.weight": make.array(4, 4)}, strict=False)
    assert model.qkv.fused


def test_unequal_widths_fuse_and_the_forward_says_which_part(make):
    """The group is made, side by side; an input that one part cannot take is a ValueError."""
    group = nn.fuse_linears(make.linear(8, 4), make.linear(9, 4))
    assert isinstance(group, nn.Linear)
    assert not group.fused
    with pytest.raises(ValueError, match="9"):
        group(make.array(2, 8))


def test_mixed_schemes_serve_side_by_side(make):
    parts = [make.woq(64, 16, "int8_g32"), make.woq(64, 8, "int4_g32_asym")]
    alone = [twin(part) for part in parts]
    group = nn.fuse_linears(*parts)
    assert not group.fused
    assert len(group.explain()) > 20
    x = make.array(3, 64)
    with cr.count_dispatches() as count:
        y = group(x)
    assert count.total >= 2
    same_bits(y, side_by_side(alone, x))


def test_one_scheme_shares_one_matmul(make):
    parts = [make.woq(64, 16, "int4_g32_asym"), make.woq(64, 24, "int4_g32_asym")]
    alone = [twin(part) for part in parts]
    group = nn.fuse_linears(*parts)
    assert isinstance(group, nn.Linear)
    x = make.array(3, 64)
    with cr.count_dispatches() as count:
        y = group(x)
    assert group.fused
    assert count.total == 1
    same_bits(y, side_by_side(alone, x))
    assert list(parts[0].state_dict()) == ["weight", "weight_scale", "weight_zero_point", "bias"]
    for part, other in zip(parts, alone, strict=True):
        for name, tensor in other.state_dict().items():
            same_bits(part.state_dict()[name], tensor)


def test_parts_of_different_dtypes_serve_side_by_side(make):
    parts = [make.linear(16, 8), make.linear(16, 8, dtype=cr.bfloat16)]
    alone = [twin(part) for part in parts]
    group = nn.fuse_linears(*parts)
    assert not group.fused
    x = make.array(3, 16)
    same_bits(group(x), side_by_side(alone, x))


def test_mixed_biases_fuse(make):
    parts = [make.linear(16, 8), make.linear(16, 8, bias=False)]
    alone = [twin(part) for part in parts]
    group = nn.fuse_linears(*parts)
    x = make.array(3, 16)
    same_bits(group(x), side_by_side(alone, x))
    assert group.fused
    assert parts[1].bias is None


def test_a_pointwise_activation_is_applied_once_over_all(qkv, make):
    x = make.array(3, 64)
    expected = np.maximum(side_by_side([twin(part) for part in qkv], x), 0)
    group = nn.fuse_linears(*qkv, activation="relu")
    same_bits(group(x), expected)
    assert group.activation == "relu"


@pytest.mark.parametrize("gated", ["swiglu", "geglu", "reglu", "situ"])
def test_a_gated_activation_halves_the_width(make, gated):
    """The first half is the gate: the group equals one Linear of the joined weight with that activation."""
    gate, up = make.linear(32, 12, bias=False), make.linear(32, 12, bias=False)
    whole = nn.Linear(32, 24, bias=False, activation=gated)
    whole.bind(weight=np.concatenate([gate.weight.numpy(), up.weight.numpy()]))
    group = nn.fuse_linears(gate, up, activation=gated)
    x = make.array(5, 32)
    y = group(x)
    assert y.shape == (5, 12)
    same_bits(y, whole(x))


def test_the_gate_comes_first(make):
    one = lambda v: nn.Linear(1, 1, bias=False).bind(weight=np.full((1, 1), v, np.float32))  # noqa: E731
    x = np.ones((1, 1), np.float32)
    assert nn.fuse_linears(one(1.0), one(2.0), activation="swiglu")(x).item() == pytest.approx(1.4621172, abs=1e-6)
    assert nn.fuse_linears(one(2.0), one(1.0), activation="swiglu")(x).item() == pytest.approx(1.7615942, abs=1e-6)


def test_parts_with_one_activation_keep_it(make):
    parts = [make.linear(16, 8, activation="gelu") for _ in range(2)]
    alone = [twin(part) for part in parts]
    group = nn.fuse_linears(*parts)
    x = make.array(3, 16)
    same_bits(group(x), side_by_side(alone, x))
    assert group.activation == "gelu"


def test_the_activation_may_repeat_the_parts_own(make):
    parts = [make.linear(16, 8, activation="silu") for _ in range(2)]
    alone = [twin(part) for part in parts]
    x = make.array(3, 16)
    same_bits(nn.fuse_linears(*parts, activation="swish")(x), side_by_side(alone, x))


def test_the_name_is_in_the_repr(qkv):
    group = nn.fuse_linears(*qkv, name="encoder.qkv")
    assert "encoder.qkv" in repr(group)
    assert group.name == "encoder.qkv"


# What is refused.


@pytest.mark.parametrize("wrong", [None, "q", 3, np.zeros((2, 2)), nn.Sequential()])
def test_another_kind_of_argument_is_a_type_error(make, wrong):
    with pytest.raises(TypeError, match="argument 1"):
        nn.fuse_linears(make.linear(4, 4), wrong)


def test_a_conv_is_a_type_error(make):
    with pytest.raises(TypeError, match="Conv2d"):
        nn.fuse_linears(make.linear(4, 4), make.conv(4, 4))


def test_a_qlinear_is_a_type_error(make):
    with pytest.raises(TypeError, match="QLinear"):
        nn.fuse_linears(make.linear(4, 4), nn.QLinear(4, 4))


def test_a_list_is_a_type_error_with_the_remedy(qkv):
    with pytest.raises(TypeError, match=r"\*layers"):
        nn.fuse_linears(list(qkv))


def test_fewer_than_two_is_a_value_error(make):
    with pytest.raises(ValueError):
        nn.fuse_linears()
    with pytest.raises(ValueError):
        nn.fuse_linears(make.linear(4, 4))


def refused(match, *parts, **options):
    """A refusal leaves every part as it was."""
    states = [part.state for part in parts]
    with pytest.raises(ClikaRTError, match=match):
        nn.fuse_linears(*parts, **options)
    assert [part.state for part in parts] == states


def test_an_unbound_part(make):
    refused("k_proj", make.linear(4, 4), nn.Linear(4, 4, name="k_proj"))


def test_a_packed_part(make):
    packed = make.linear(4, 4, name="v_proj")
    packed(make.array(1, 4))
    refused("v_proj", make.linear(4, 4), packed)


def test_biases_under_a_gate(make):
    refused("bias", make.linear(4, 4), make.linear(4, 4, bias=False), activation="swiglu")


def test_different_activations(make):
    refused("relu.*gelu|gelu.*relu", make.linear(4, 4, activation="relu"), make.linear(4, 4, activation="gelu"))


def test_an_activation_on_some_parts_only(make):
    refused("relu", make.linear(4, 4, activation="relu"), make.linear(4, 4))


def test_a_gated_part(make):
    refused("swiglu", make.linear(4, 4, bias=False, activation="swiglu"), make.linear(4, 4, bias=False))


def test_another_activation_than_the_parts(make):
    parts = [make.linear(4, 4, activation="relu") for _ in range(2)]
    refused("relu.*gelu|gelu.*relu", *parts, activation="gelu")


def test_the_same_layer_twice(make):
    layer = make.linear(4, 4)
    refused("twice", layer, layer)


def test_a_layer_of_a_live_group(make):
    q, k, v = (make.linear(4, 4) for _ in range(3))
    group = nn.fuse_linears(q, k)
    refused("group", q, v)
    assert group.fused


def test_a_group_as_a_part(make):
    group = nn.fuse_linears(make.linear(4, 4), make.linear(4, 4))
    refused("group", group, make.linear(4, 4))


def test_an_odd_width_under_a_gate(make):
    refused("7", make.linear(4, 4, bias=False), make.linear(4, 3, bias=False), activation="swiglu")


def test_an_unknown_activation_is_a_value_error(qkv):
    with pytest.raises(ValueError, match="swiglu"):
        nn.fuse_linears(*qkv, activation="swigloo")


def test_a_name_that_is_no_string_is_a_type_error(qkv):
    with pytest.raises(TypeError):
        nn.fuse_linears(*qkv, name=3)


def test_parts_outlive_the_group(qkv, make):
    weights = [np.array(part.weight) for part in qkv]
    group = nn.fuse_linears(*qkv)
    group(make.array(2, 64))
    del group
    gc.collect()
    for part, weight in zip(qkv, weights, strict=True):
        same_bits(part.weight, weight)


def test_the_group_outlives_its_parts(make):
    parts = [make.linear(16, 8) for _ in range(2)]
    alone = [twin(part) for part in parts]
    group = nn.fuse_linears(*parts)
    del parts
    gc.collect()
    x = make.array(2, 16)
    same_bits(group(x), side_by_side(alone, x))
    assert [part.out_features for part in group.parts] == [8, 8]


def test_a_failed_load_leaves_the_group_alone(make):
    model = Attention(make).fuse()
    x = make.array(2, 32)
    before = np.array(model(x))
    state = {name: np.zeros_like(np.asarray(t)) for name, t in model.state_dict().items()}
    state["v.weight"] = np.zeros((8, 31), np.float32)
    with pytest.raises(ClikaRTError, match=r"v\.weight"):
        model.load_state_dict(state)
    assert model.qkv.fused
    same_bits(model(x), before)


def test_a_copy_has_its_own_group(make):
    model = Attention(make).fuse()
    other = copy.deepcopy(model)
    assert other.qkv.parts[0] is other.q
    x = make.array(2, 32)
    same_bits(other(x), model(x))
