"""fuse_convs, one test a promise."""

import clika_runtime as cr
import numpy as np
import pytest
from clika_runtime import ClikaRTError, nn
from conftest import same_bits, twin


def side_by_side(parts, x):
    return np.concatenate([np.asarray(part(x)) for part in parts], axis=-1)


SPATIAL = {nn.Conv1d: (11,), nn.Conv2d: (7, 9), nn.Conv3d: (4, 5, 6)}


@pytest.mark.parametrize("cls", SPATIAL)
@pytest.mark.parametrize("bias", [True, False])
def test_maps_to_the_sum_of_channels_in_order(make, cls, bias):
    """Every spatial rank: the channels of the parts follow one another, bit for bit."""
    parts = [make.conv(5, out, 3, bias, cls, padding=1, stride=2) for out in (4, 7)]
    alone = [twin(part) for part in parts]
    group = nn.fuse_convs(*parts)
    assert isinstance(group, nn.Conv)
    x = make.array(2, *SPATIAL[cls], 5)
    with cr.count_dispatches() as count:
        y = group(x)
    assert count.total == 1
    assert group.fused
    same_bits(y, side_by_side(alone, x))
    assert list(group.split_sizes) == [4, 7]
    for piece, part in zip(cr.split_with_sizes(y, group.split_sizes), alone, strict=True):
        same_bits(piece, part(x))


@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
def test_every_padding_mode_fuses(make, mode):
    parts = [make.conv(3, 4, 3, padding=1, padding_mode=mode) for _ in range(2)]
    alone = [twin(part) for part in parts]
    group = nn.fuse_convs(*parts)
    x = make.array(1, 6, 5, 3)
    same_bits(group(x), side_by_side(alone, x))
    assert group.fused


def test_conv_and_its_spellings_share_a_group(make):
    parts = [make.conv(3, 4, (1, 1), cls=nn.Conv), make.conv(3, 5, 1)]
    alone = [twin(part) for part in parts]
    group = nn.fuse_convs(*parts)
    x = make.array(2, 5, 4, 3)
    same_bits(group(x), side_by_side(alone, x))
    assert group.fused


OTHERS = {
    "kernel on the same grid": ({"kernel": 3, "padding": 1}, {"kernel": 1}),
    "padding mode": ({"padding": 1}, {"padding": 1, "padding_mode": "reflect"}),
    "grouped": ({"groups": 2}, {"groups": 2}),
    "mixed biases": ({"bias": True}, {"bias": False}),
    "dtype": ({}, {"dtype": cr.bfloat16}),
    "dilation": ({"dilation": 2, "padding": 2}, {"padding": 1}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_cannot_share_a_kernel_serves_side_by_side(make, name):
    """Same output; only the dispatches differ, and explain() says why."""
    parts = [make.conv(4, 6, **options) for options in OTHERS[name]]
    alone = [twin(part) for part in parts]
    group = nn.fuse_convs(*parts)
    x = make.array(2, 6, 7, 4)
    with cr.count_dispatches() as count:
        y = group(x)
    assert not group.fused
    assert count.total >= 2
    same_bits(y, side_by_side(alone, x))
    assert len(group.explain()) > 20


class Heads(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.score, self.box = make.conv(8, 2, 1), make.conv(8, 4, 1)


def test_the_state_dict_stays_the_checkpoints(make):
    model = Heads(make)
    before = {name: np.array(t) for name, t in model.state_dict().items()}
    model.heads = nn.fuse_convs(model.score, model.box)
    for _ in range(2):
        after = model.state_dict()
        assert list(after) == list(before) == ["score.weight", "score.bias", "box.weight", "box.bias"]
        for name, value in before.items():
            same_bits(after[name], value)
        model.heads(make.array(1, 3, 3, 8))
    assert model.heads.state_dict() == {}
    same_bits(model.box.weight, before["box.weight"])
    same_bits(model.box.bias, before["box.bias"])


def test_parts_refuse_until_a_load_dissolves_the_group(make):
    model = Heads(make)
    model.heads = nn.fuse_convs(model.score, model.box)
    x = make.array(1, 3, 3, 8)
    with pytest.raises(ClikaRTError):
        model.score(x)
    model.heads(x)
    with pytest.raises(ClikaRTError):
        model.box(x)
    model.score.load_state_dict(model.score.state_dict())
    assert not model.heads.fused
    same_bits(model.heads(x), side_by_side([model.score, model.box], x))


def test_a_pointwise_activation(make):
    parts = [make.conv(3, 4) for _ in range(2)]
    x = make.array(1, 5, 5, 3)
    expected = np.maximum(side_by_side([twin(part) for part in parts], x), 0)
    same_bits(nn.fuse_convs(*parts, activation="relu")(x), expected)


def test_parts_keep_their_own_activation(make):
    parts = [make.conv(3, 4, activation="silu") for _ in range(2)]
    alone = [twin(part) for part in parts]
    x = make.array(1, 5, 5, 3)
    same_bits(nn.fuse_convs(*parts, activation="silu")(x), side_by_side(alone, x))


def test_the_name_is_in_the_repr(make):
    assert "stem" in repr(nn.fuse_convs(make.conv(3, 4), make.conv(3, 4), name="stem"))


def test_another_kind_of_argument_is_a_type_error(make):
    with pytest.raises(TypeError, match="Linear"):
        nn.fuse_convs(make.conv(3, 4), make.linear(3, 4))
    with pytest.raises(TypeError):
        nn.fuse_convs(make.conv(3, 4), None)


def test_fewer_than_two_is_a_value_error(make):
    with pytest.raises(ValueError):
        nn.fuse_convs(make.conv(3, 4))
    with pytest.raises(ValueError):
        nn.fuse_convs()


def test_unbound_and_packed_parts_are_refused(make):
    with pytest.raises(ClikaRTError):
        nn.fuse_convs(make.conv(3, 4), nn.Conv2d(3, 4, 3))
    packed = make.conv(3, 4, name="stem")
    packed(make.array(1, 5, 5, 3))
    with pytest.raises(ClikaRTError, match="stem"):
        nn.fuse_convs(packed, make.conv(3, 4))


def test_disagreeing_activations_are_refused(make):
    relu, gelu = (lambda a: make.conv(3, 4, activation=a)), "gelu"
    with pytest.raises(ClikaRTError):
        nn.fuse_convs(relu("relu"), make.conv(3, 4, activation=gelu))
    with pytest.raises(ClikaRTError):
        nn.fuse_convs(relu("relu"), make.conv(3, 4))
    with pytest.raises(ClikaRTError):
        nn.fuse_convs(relu("relu"), relu("relu"), activation=gelu)


@pytest.mark.parametrize("gated", ["swiglu", "geglu", "reglu", "situ"])
def test_a_gated_activation_is_refused(make, gated):
    with pytest.raises(ClikaRTError, match=gated):
        nn.fuse_convs(make.conv(3, 4, bias=False), make.conv(3, 4, bias=False), activation=gated)
