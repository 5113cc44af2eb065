"""copy, deepcopy, pickle and spawned processes."""

import copy
import multiprocessing
import pickle

import clika_runtime as cr
import numpy as np
import pytest
from clika_runtime import nn
from conftest import same_bits


class Attention(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.q, self.k = make.linear(32, 32, name="q"), make.linear(32, 8)
        self.qk = nn.fuse_linears(self.q, self.k, name="qk", activation="relu")
        self.note = {"kept": [1, 2]}

    def forward(self, x):
        return self.qk(x)


COPIES = {"deepcopy": copy.deepcopy, "pickle": lambda m: pickle.loads(pickle.dumps(m))}
SCHEMES = ["int8_g32", "int4_g32_asym"]


def layers(make):
    return [
        make.linear(16, 8, dtype="bfloat16", activation="gelu", residency="per_call", name="a"),
        make.linear(16, 8, bias=False, activation="swiglu"),
        *[make.woq(64, 8, scheme) for scheme in SCHEMES],
        make.conv(3, 4, 3, padding="same", activation="relu"),
        make.conv(4, 4, 3, cls=nn.Conv1d, padding=((1, 2),), padding_mode="reflect", groups=2, stride=2),
    ]


def an_input(layer, make):
    if isinstance(layer, nn.Conv):
        return make.array(1, *[6] * len(layer.kernel_size), layer.in_channels)
    return make.array(2, layer.in_features)


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("run", [False, True])
def test_layers(make, how, run):
    for layer in layers(make):
        x = an_input(layer, make)
        if run:
            layer(x)
        other = COPIES[how](layer)
        assert type(other) is type(layer)
        assert repr(other) == repr(layer)
        same_bits(other(x), layer(x))
        assert list(other.state_dict()) == list(layer.state_dict())


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("run", [False, True])
def test_a_model_with_a_group(make, how, run):
    """The copy's group consists of the copy's layers; the two do not share a weight."""
    model = Attention(make)
    x = make.array(3, 32)
    before = np.array(Attention.forward(copy.deepcopy(model), x))
    if run:
        model(x)
    other = COPIES[how](model)
    assert other.qk.parts == (other.q, other.k)
    assert other.qk.parts[0] is other.q
    assert other.qk.fused
    assert (other.qk.name, other.qk.activation, other.note) == ("qk", "relu", {"kept": [1, 2]})
    assert other.note is not model.note
    same_bits(other(x), before)
    other.load_state_dict({name: np.zeros_like(np.asarray(t)) for name, t in other.state_dict().items()})
    assert not np.any(other(x).numpy())
    same_bits(model(x), before)


@pytest.mark.parametrize("how", COPIES)
def test_a_dissolved_group_stays_dissolved(make, how):
    model = Attention(make)
    model.q.load_state_dict(model.q.state_dict())
    x = make.array(3, 32)
    other = COPIES[how](model)
    assert not other.qk.fused
    same_bits(other(x), model(x))
    same_bits(other.q(x), model.q(x))


@pytest.mark.parametrize("how", COPIES)
def test_a_conv_group(make, how):
    group = nn.fuse_convs(make.conv(3, 4), make.conv(3, 2))
    x = make.array(1, 6, 6, 3)
    other = COPIES[how](group)
    assert other.fused
    same_bits(other(x), group(x))


@pytest.mark.parametrize("how", COPIES)
def test_a_part_alone_becomes_a_layer_of_its_own(make, how):
    model = Attention(make)
    q = COPIES[how](model.q)
    same_bits(q.weight, model.q.weight)
    q(make.array(1, 32))


@pytest.mark.parametrize("how", COPIES)
def test_an_unbound_layer(how):
    other = COPIES[how](nn.Linear(4, 3, name="empty"))
    assert (other.state, other.name, other.out_features) == ("unbound", "empty", 3)


@pytest.mark.parametrize("how", COPIES)
def test_containers(make, how):
    model = nn.Sequential(make.linear(4, 4), nn.Sequential(make.linear(4, 2)), nn.ModuleList([make.linear(2, 2)]))
    other = COPIES[how](model)
    assert repr(other) == repr(model)
    x = make.array(1, 4)
    same_bits(other[:2](x), model[:2](x))


@pytest.mark.parametrize("how", COPIES)
def test_a_tied_layer_stays_tied(make, how):
    model = nn.Module()
    model.a = make.linear(2, 2)
    model.b = model.a
    other = COPIES[how](model)
    assert other.a is other.b


class Labelled(nn.Linear):
    def __init__(self, width):
        super().__init__(width, width, bias=False)
        self.label = "kept"


@pytest.mark.parametrize("how", COPIES)
def test_a_subclass_of_a_layer(make, how):
    layer = Labelled(3).bind(weight=make.array(3, 3))
    other = COPIES[how](layer)
    assert type(other) is Labelled
    assert other.label == "kept"
    x = make.array(1, 3)
    same_bits(other(x), layer(x))


def test_a_shallow_copy_of_a_layer_serves_on_its_own(make):
    layer = make.linear(4, 3)
    other = copy.copy(layer)
    x = make.array(2, 4)
    before = np.array(layer(x))
    same_bits(other(x), before)
    layer.load_state_dict({"weight": make.array(3, 4), "bias": make.array(3)})
    same_bits(other(x), before)


def test_a_shallow_copy_of_a_container_shares_its_children(make):
    model = Attention(make)
    other = copy.copy(model)
    assert other.qk is model.qk
    x = make.array(1, 32)
    same_bits(other(x), model(x))


def test_a_group_is_not_copied_without_its_parts(make):
    with pytest.raises(TypeError, match="deepcopy"):
        copy.copy(Attention(make).qk)


@pytest.mark.parametrize("run", [False, True])
def test_a_pickle_is_as_large_as_the_weights(make, run):
    group = nn.fuse_linears(*[make.linear(128, 128) for _ in range(3)])
    if run:
        group(make.array(1, 128))
    weights = 3 * (128 * 128 + 128) * 4
    assert weights < len(pickle.dumps(group)) < 1.02 * weights + 4096


def test_a_pickle_is_the_same_in_every_process(make):
    """No address is in it: two pickles of equal models are equal bytes."""
    model = Attention(make)
    assert pickle.dumps(copy.deepcopy(model)) == pickle.dumps(copy.deepcopy(model))


def _run_elsewhere(model, x):
    return model(x).numpy()


def test_a_spawned_process(make):
    group = nn.fuse_linears(make.linear(16, 8), make.linear(16, 8))
    x = make.array(2, 16)
    expected = group(x).numpy()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        same_bits(pool.apply(_run_elsewhere, (group, x)), expected)


def test_schemes_are_values():
    scheme = nn.QuantScheme.parse("int4_g128_asym")
    assert copy.deepcopy(scheme) == pickle.loads(pickle.dumps(scheme)) == scheme
    assert pickle.loads(pickle.dumps(nn.Activation.gelu)) is nn.Activation.gelu
    assert pickle.loads(pickle.dumps(cr.float16)) is cr.float16
