"""Modules: registration, the tree, state dicts, containers, subclasses."""

import gc
import weakref

import clika_runtime as cr
import numpy as np
import pytest
from clika_runtime import ClikaRTError, nn
from conftest import same_bits


class Block(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.up = make.linear(4, 8)
        self.down = make.linear(8, 4, bias=False)
        self.scale = 2.0

    def forward(self, x, *, twice=False):
        y = self.down(self.up(x))
        return self.down(self.up(y)) if twice else y


class Model(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.blocks = nn.ModuleList(Block(make) for _ in range(2))
        self.head = make.linear(4, 2)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@pytest.fixture
def model(make):
    return Model(make)


NAMES = [
    *["blocks.0.up.weight", "blocks.0.up.bias", "blocks.0.down.weight"],
    *["blocks.1.up.weight", "blocks.1.up.bias", "blocks.1.down.weight", "head.weight", "head.bias"],
]


def test_attributes_register_children(model):
    assert [name for name, _ in model.named_children()] == ["blocks", "head"]
    assert list(model.children())[1] is model.head
    paths = [path for path, _ in model.named_modules()]
    assert paths[:4] == ["", "blocks", "blocks.0", "blocks.0.up"]
    assert len(paths) == len(list(model.modules())) == 9
    assert next(model.named_modules("net"))[0] == "net"


def test_a_forward_through_the_tree(model, make):
    x = make.array(3, 4)
    y = x
    for block in model.blocks:
        y = block.down(block.up(y))
    same_bits(model(x), model.head(y))
    same_bits(model.blocks[0](x, twice=True), model.blocks[0](model.blocks[0](x)))


def test_names_of_parameters(model):
    assert list(model.state_dict()) == NAMES
    assert [name for name, _ in model.named_parameters()] == NAMES
    assert len(list(model.parameters())) == len(NAMES)
    assert next(iter(model.state_dict(prefix="net."))) == "net.blocks.0.up.weight"
    assert next(model.named_parameters("net"))[0] == "net.blocks.0.up.weight"
    assert all(isinstance(tensor, cr.Tensor) for tensor in model.state_dict().values())


def test_replacing_and_removing_children(model, make):
    model.head = make.linear(4, 3)
    assert model(make.array(1, 4)).shape == (1, 3)
    assert [name for name, _ in model.named_children()] == ["blocks", "head"]
    with pytest.raises(TypeError, match="head"):
        model.head = 3
    model.head = None
    assert model.head is None
    assert [name for name, _ in model.named_children()] == ["blocks"]
    model.tail = make.linear(4, 3)
    del model.tail
    assert not hasattr(model, "tail")
    assert [name for name, _ in model.named_children()] == ["blocks"]
    with pytest.raises(AttributeError):
        del model.tail


def test_plain_attributes_are_plain(model):
    model.blocks[0].scale = 3.0
    assert model.blocks[0].scale == 3.0
    with pytest.raises(AttributeError, match="nothing"):
        _ = model.nothing


def test_the_python_side_of_a_child_lives_with_its_parent(make):
    parent = nn.Module()
    parent.child = Block(make)
    parent.child.note = "kept"
    gc.collect()
    assert next(parent.children()).note == "kept"
    assert next(parent.children()) is parent.child
    gone = weakref.ref(parent.child)
    del parent
    gc.collect()
    assert gone() is None


def test_a_module_that_refers_to_itself_is_collected(make):
    class Loop(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = make.linear(2, 2)
            self.hook = lambda: self

    loop = Loop()
    gone = weakref.ref(loop.inner)
    del loop
    gc.collect()
    assert gone() is None


def test_init_has_to_be_called_first():
    class Late(nn.Module):
        def __init__(self):
            self.layer = nn.Linear(2, 2)

    with pytest.raises(AttributeError, match="__init__"):
        Late()


def test_names_with_a_dot_are_refused(make):
    with pytest.raises(ValueError, match=r"a\.b"):
        setattr(nn.Module(), "a.b", make.linear(2, 2))


def test_a_module_without_forward_says_so():
    with pytest.raises(NotImplementedError, match="Module"):
        nn.Module()(1)
    with pytest.raises(NotImplementedError, match="ModuleList"):
        nn.ModuleList()(1)


def test_a_shared_layer_appears_under_each_name_once_as_a_module(make):
    model = nn.Module()
    model.a = make.linear(2, 2, bias=False)
    model.b = model.a
    assert list(model.state_dict()) == ["a.weight", "b.weight"]
    assert [name for name, _ in model.named_parameters()] == ["a.weight"]
    assert len(list(model.modules())) == 2


# Loading.


def values(model):
    return {name: np.array(tensor) for name, tensor in model.state_dict().items()}


def unchanged(model, before):
    after = values(model)
    assert list(after) == list(before)
    for name in before:
        same_bits(after[name], before[name])


def test_a_load_copies(model, make):
    state = {name: make.array(*value.shape) for name, value in values(model).items()}
    report = model.load_state_dict(state)
    assert report.missing_keys == report.unexpected_keys == []
    assert "matched" in repr(report)
    kept = {name: value.copy() for name, value in state.items()}
    for value in state.values():
        value[:] = 0
    unchanged(model, kept)


def test_assign_keeps_the_memory(make):
    layer = nn.Linear(4, 3, bias=False, residency="per_call")
    weight = make.array(3, 4)
    layer.load_state_dict({"weight": weight}, assign=True)
    assert np.shares_memory(layer.weight.numpy(), weight)
    x = make.array(2, 4)
    before = np.array(layer(x))
    weight *= 2
    same_bits(layer(x), before * 2)


def test_assign_needs_the_exact_dtype(make):
    layer = nn.Linear(4, 3, bias=False)
    with pytest.raises(ClikaRTError, match="weight"):
        layer.load_state_dict({"weight": make.array(3, 4).astype(np.float16)}, assign=True)
    assert layer.state == "unbound"


def test_floats_convert_on_load(make):
    layer = nn.Linear(4, 3, bias=False, dtype=cr.bfloat16)
    weight = make.array(3, 4)
    layer.load_state_dict({"weight": weight})
    import ml_dtypes

    same_bits(layer.weight, weight.astype(ml_dtypes.bfloat16))


WRONG = {
    "missing": lambda s: s.pop("head.bias"),
    "unexpected": lambda s: s.update(extra=np.zeros(3, np.float32)),
    "misspelt": lambda s: s.update({"model.head.bias": s.pop("head.bias")}),
    "shape": lambda s: s.update({"head.weight": np.zeros((2, 5), np.float32)}),
    "integer": lambda s: s.update({"head.weight": np.zeros((2, 4), np.int32)}),
    "float64": lambda s: s.update({"head.weight": np.zeros((2, 4))}),
    "None": lambda s: s.update({"head.weight": None}),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("run", [False, True])
def test_a_wrong_load_changes_nothing(model, make, name, run):
    """The error names the entry, wherever in the mapping it is."""
    x = make.array(1, 4)
    if run:
        model(x)
    before, output = values(model), np.array(model(x))
    state = {key: np.zeros_like(value) for key, value in before.items()}
    WRONG[name](state)
    with pytest.raises(ClikaRTError, match=r"head|extra"):
        model.load_state_dict(state)
    unchanged(model, before)
    same_bits(model(x), output)


def test_one_error_lists_all(model):
    state = values(model)
    del state["head.bias"]
    del state["blocks.1.up.weight"]
    state["stray"] = np.zeros(1, np.float32)
    with pytest.raises(ClikaRTError) as error:
        model.load_state_dict(state)
    for name in ("head.bias", "blocks.1.up.weight", "stray"):
        assert name in str(error.value)


def test_strict_false_reports(model, make):
    before = values(model)
    new = make.array(2, 4)
    report = model.load_state_dict({"head.weight": new, "stray": make.array(1)}, strict=False)
    assert report.unexpected_keys == ["stray"]
    missing, unexpected = report
    assert (missing, unexpected) == (report.missing_keys, ["stray"])
    assert set(report.missing_keys) == set(NAMES) - {"head.weight"}
    unchanged(model, before | {"head.weight": new})


@pytest.mark.parametrize("wrong", [None, 3, [1, 2], {1: np.zeros(1, np.float32)}])
def test_a_state_dict_is_a_mapping_of_names(model, wrong):
    with pytest.raises(TypeError):
        model.load_state_dict(wrong)


def test_a_safetensors_round_trip(model, tmp_path):
    from safetensors.numpy import load_file, save_file

    save_file({name: t.numpy() for name, t in model.state_dict().items()}, tmp_path / "m.safetensors")
    state = load_file(tmp_path / "m.safetensors")
    before = values(model)
    model.load_state_dict(state, assign=True)
    unchanged(model, before)


# Containers.


def test_sequential(make):
    parts = [make.linear(4, 8, activation="relu"), make.linear(8, 2)]
    net = nn.Sequential(*parts)
    x = make.array(3, 4)
    same_bits(net(x), parts[1](parts[0](x)))
    assert (len(net), net[0], net[-1]) == (2, parts[0], parts[1])
    assert list(net) == parts
    assert list(net.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert isinstance(net[:1], nn.Sequential)
    same_bits(net[:1](x), parts[0](x))
    net.append(make.linear(2, 1))
    assert net(x).shape == (3, 1)


def test_sequential_calls_python_modules(make):
    class Twice(nn.Module):
        def forward(self, x):
            return x.numpy() * 2

    layer = make.linear(4, 2)
    x = make.array(3, 4)
    same_bits(nn.Sequential(layer, Twice())(x), layer(x).numpy() * 2)


def test_module_list(make):
    items = nn.ModuleList([make.linear(2, 2)])
    items.append(make.linear(2, 3)).extend([make.linear(3, 1)])
    assert [layer.out_features for layer in items] == [2, 3, 1]
    assert items[1].out_features == 3
    with pytest.raises(IndexError):
        _ = items[3]
    for wrong in (3, None, nn.Linear):
        with pytest.raises(TypeError, match="ModuleList"):
            items.append(wrong)


def test_repr_shows_the_tree(model):
    text = repr(model)
    assert text.startswith("Model(\n  (blocks): ModuleList(\n    (0): Block(\n      (up): Linear(")
    assert repr(nn.Module()) == "Module()"


# Subclasses of layers.


def test_a_subclass_that_overrides_forward_is_honoured(make):
    class Doubled(nn.Linear):
        def forward(self, x):
            return super().forward(x).numpy() * 2

    layer = Doubled(4, 2, False, name="doubled")
    layer.bind(weight=make.array(2, 4))
    plain = nn.Linear(4, 2, False).bind(weight=layer.weight)
    x = make.array(3, 4)
    same_bits(layer(x), plain(x).numpy() * 2)
    same_bits(nn.Sequential(layer)(x), plain(x).numpy() * 2)
    assert repr(layer).startswith("Doubled(")
    assert isinstance(layer, nn.Linear)
