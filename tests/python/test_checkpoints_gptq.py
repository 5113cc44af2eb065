"""GPTQ tensors, packed by GPTQModel's own code, into layers."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from clika_runtime import ClikaRTError, checkpoints
from ecosystems import functions_of, round_trips, same_columns

torch = pytest.importorskip("torch", reason="GPTQModel packs PyTorch tensors (python/requirements-torch.txt)")
gptq = checkpoints.gptq


class PackedLinear(SimpleNamespace):
    """What GPTQModel's methods know of a linear."""

    def register_buffer(self, name, value):
        setattr(self, name, value)

    def qzero_format(self, format):
        self.version = format


class _Nothing:
    pass


@pytest.fixture(scope="module")
def model():
    """GPTQModel's packer, and its conversion from version 2 to version 1."""
    limits = SimpleNamespace(threadpool_limits=lambda count: torch.no_grad())
    once = SimpleNamespace(info=SimpleNamespace(once=lambda text: None))
    torch_names = {"t": torch, "nn": torch.nn, "np": np, "math": math, "_ConvNd": torch.nn.modules.conv._ConvNd}
    conv1d = SimpleNamespace(pytorch_utils=SimpleNamespace(Conv1D=_Nothing))
    pack = functions_of(
        "gptqmodel",
        "nn_modules/qlinear/__init__.py",
        "pack_original",
        THREADPOOLCTL=limits,
        transformers=conv1d,
        **torch_names,
    )
    convert = functions_of(
        "gptqmodel",
        "utils/model.py",
        "convert_gptq_v2_to_v1_format_module",
        BaseQuantLinear=PackedLinear,
        torch=torch,
        log=once,
    )
    return SimpleNamespace(pack=pack.pack_original, to_version_1=convert.convert_gptq_v2_to_v1_format_module)


class Case:
    """Codes, scales and zero points, the weight they stand for, and what GPTQModel makes of it."""

    def __init__(self, model, rng, inputs, rows, bits=4, group=16, zeros=None, order=None, version=2):
        groups = -(-inputs // group)
        top = 1 << bits
        self.order = np.arange(inputs) // group if order is None else np.asarray(order)
        self.codes = rng.integers(0, top, (rows, inputs))
        self.zeros = rng.integers(1, top, (rows, groups)) if zeros is None else np.broadcast_to(zeros, (rows, groups))
        # Powers of two times small integers: what the packer divides it gets back exactly.
        self.scales = np.ldexp(rng.integers(1, 8, (rows, groups)) / 8, rng.integers(-6, 0, (rows, groups)))
        self.weight = self.scales[:, self.order] * (self.codes - self.zeros[:, self.order])
        packed = PackedLinear(bits=bits, maxq=top - 1, planar=False, pack_dtype=torch.int32)
        packed.pack_dtype_bits, packed.pack_factor = 32, 32 // bits
        packed.pack_np_math_dtype, packed.pack_np_dtype = np.uint32, np.int32
        linear = torch.nn.Linear(inputs, rows, bias=False)
        linear.weight.data = torch.from_numpy(self.weight.astype(np.float32))
        model.pack(
            packed,
            linear,
            torch.from_numpy(self.scales.astype(np.float32)),
            torch.from_numpy(self.zeros.astype(np.float32)),
            torch.from_numpy(self.order.astype(np.int32)),
        )
        if version == 1:
            model.to_version_1(packed, SimpleNamespace(bits=bits, pack_dtype=torch.int32))
        names = ("qweight", "qzeros", "scales", "g_idx")
        self.tensors = {f"model.q.{name}": getattr(packed, name).contiguous() for name in names}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("bits", "inputs", "rows", "group"),
    [(4, 64, 16, 16), (4, 40, 24, 32), (8, 48, 12, 16), (8, 32, 8, 32), (2, 64, 16, 16)],
)
def test_weights_are_the_packers(model, rng, version, bits, inputs, rows, group):
    case = Case(model, rng, inputs, rows, bits, group, version=version)
    linear = gptq.read(case.tensors, "model.q", version=version, group_size=group)
    assert str(linear.scheme) == f"int{bits}_g{group}_asym"
    assert (linear.in_features, linear.out_features) == (inputs, rows)
    same_columns(linear.layer(), case.weight)
    round_trips(linear)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_zero_points_in_the_middle_make_a_symmetric_scheme(model, rng, version, bits):
    case = Case(model, rng, 32, 16, bits, zeros=1 << (bits - 1), version=version)
    linear = gptq.read(case.tensors, "model.q", version=version)
    assert str(linear.scheme) == f"int{bits}_g16"
    assert set(linear.state) == {"weight", "weight_scale"}
    same_columns(linear.layer(), case.weight)
    round_trips(linear)
    kept = gptq.read(case.tensors, "model.q", version=version, symmetric=False)
    assert str(kept.scheme) == f"int{bits}_g16_asym"
    same_columns(kept.layer(), case.weight)


def test_activation_order_is_kept(model, rng):
    order = rng.permutation(np.arange(64) // 16)
    case = Case(model, rng, 64, 16, order=order)
    linear = gptq.read(case.tensors, "model.q", version=2)
    np.testing.assert_array_equal(linear.state["weight_g_idx"], order)
    same_columns(linear.layer(), case.weight)
    round_trips(linear)


def test_columns_of_an_order_read_their_own_scale():
    """Field case C037: one code, four groups, a scale of its own for each."""
    order = [3, 0, 1, 2, 0, 3, 2, 1]
    scales = [1, 10, 100, 1000]
    tensors = {
        "qweight": np.full((1, 8), 0x11111111, np.int32),
        "qzeros": np.zeros((4, 1), np.int32),
        "scales": np.tile(np.array(scales, np.float16)[:, None], (1, 8)),
        "g_idx": np.array(order, np.int32),
    }
    layer = gptq.read(tensors, version=2, bits=4).layer()
    np.testing.assert_array_equal(layer(np.eye(8, dtype=np.float32)).numpy()[:, 0], [scales[g] for g in order])


def test_an_implied_order_is_dropped(model, rng):
    case = Case(model, rng, 48, 8)
    assert "weight_g_idx" not in gptq.read(case.tensors, "model.q", version=2).state


def test_without_an_order_groups_are_consecutive(model, rng):
    case = Case(model, rng, 48, 32)
    del case.tensors["model.q.g_idx"]
    same_columns(gptq.read(case.tensors, "model.q", version=2).layer(), case.weight)


@pytest.mark.parametrize("group", [4, -1, None])
def test_an_index_outside_the_groups_is_refused(model, rng, group):
    case = Case(model, rng, 32, 8, order=np.arange(32) // 16)
    case.tensors["model.q.g_idx"][5] = 2 if group is None else group
    with pytest.raises(
        ClikaRTError, match=r"model\.q \(GPTQ\): g_idx: found group -?\d at position 5, expected 0 to 1"
    ):
        gptq.read(case.tensors, "model.q", version=2)


# Field case C031: zero points at the ends of the range.


@pytest.mark.parametrize(("bits", "ends"), [(2, (1, 3)), (4, (1, 15)), (8, (1, 255))])
@pytest.mark.parametrize("version", [1, 2])
def test_zero_points_at_the_ends(model, rng, bits, ends, version):
    zeros = rng.choice(ends, (16, 2))
    case = Case(model, rng, 32, 16, bits, zeros=zeros, version=version)
    linear = gptq.read(case.tensors, "model.q", version=version)
    np.testing.assert_array_equal(linear.state["weight_zero_point"], zeros)
    same_columns(linear.layer(), case.weight)


def test_a_zero_point_of_0_is_read_from_version_2(model, rng):
    case = Case(model, rng, 32, 16, zeros=rng.choice((0, 15), (16, 2)))
    same_columns(gptq.read(case.tensors, "model.q", version=2).layer(), case.weight)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_a_zero_point_that_wrapped_is_refused_in_version_1(model, rng, bits):
    zeros = np.full((16, 2), 3)
    zeros[5, 1] = 0  # less one: borrows from its neighbour in the word
    case = Case(model, rng, 32, 16, bits, zeros=zeros, version=1)
    top = (1 << bits) - 1
    with pytest.raises(ClikaRTError, match=rf"found {top} stored for group 1, output 5: .* {top + 1} .*gptq_v2"):
        gptq.read(case.tensors, "model.q", version=1)


# What a config says.


def test_the_config_says_the_version(model, rng):
    for version, name in ((1, "gptq"), (2, "gptq_v2")):
        case = Case(model, rng, 32, 8, version=version)
        config = {"quant_method": "gptq", "bits": 4, "group_size": 16, "checkpoint_format": name}
        same_columns(checkpoints.load_linear(case.tensors, "model.q", config=config), case.weight)


def test_a_config_without_a_checkpoint_format_is_version_1(model, rng):
    case = Case(model, rng, 32, 8, version=1)
    same_columns(gptq.read(case.tensors, "model.q", config={"bits": 4, "group_size": 16}).layer(), case.weight)


def test_group_size_minus_1_is_the_whole_row(model, rng):
    case = Case(model, rng, 32, 8, group=32)
    linear = gptq.read(case.tensors, "model.q", version=2, config={"bits": 4, "group_size": -1})
    assert str(linear.scheme) == "int4_asym"
    same_columns(linear.layer(), case.weight)


REFUSALS = [
    ({}, r"nothing says how zero points are stored; pass version=1 .* version=2"),
    ({"version": 3}, "version is 3, expected 1 or 2"),
    ({"config": {"checkpoint_format": "marlin"}}, 'checkpoint_format "marlin" is not read; expected one of gptq'),
    ({"version": 2, "bits": 3}, "found 3-bit codes; codes of 2, 4 and 8 bits are served"),
    ({"version": 2, "bits": 8}, r"qweight: found int32\[4, 8\], expected \[8, 8\] for 32 inputs of 8 bits"),
    ({"version": 2, "group_size": 8}, "found 2 groups, expected 4 for 32 inputs and group_size 8"),
    ({"version": 2, "group_size": 0}, "group_size is 0, expected at least 1, or -1"),
    ({"version": 2, "config": {"group_size": "16"}}, "group_size is '16', expected at least 1, or -1"),
    ({"version": 2, "in_features": 40}, "g_idx: found 32 inputs, expected in_features, 40"),
    ({"version": 2, "symmetric": True}, "found a zero point of .*, expected 8 everywhere .* symmetric=False"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSALS)
def test_refusals_name_the_layer_and_the_remedy(model, rng, arguments, message):
    case = Case(model, rng, 32, 8, zeros=3)
    with pytest.raises(ClikaRTError, match=r"model\.q \(GPTQ\): " + message):
        gptq.read(case.tensors, "model.q", **arguments)


@pytest.mark.parametrize("missing", ["qweight", "qzeros", "scales"])
def test_a_missing_tensor_is_named(model, rng, missing):
    case = Case(model, rng, 32, 8)
    del case.tensors[f"model.q.{missing}"]
    with pytest.raises(
        ClikaRTError, match=rf"there is no tensor model\.q\.{missing}; found under this name: model\.q\."
    ):
        gptq.read(case.tensors, "model.q", version=2)


@pytest.mark.parametrize("empty", ["qweight", "qzeros", "scales", "g_idx"])
def test_an_empty_tensor_is_named(model, rng, empty):
    case = Case(model, rng, 32, 8)
    case.tensors[f"model.q.{empty}"] = case.tensors[f"model.q.{empty}"][:0]
    with pytest.raises(ClikaRTError, match=rf"{empty}: found .*\[0.*, not empty"):
        gptq.read(case.tensors, "model.q", version=2)


def test_a_wrong_dtype_is_named(model, rng):
    case = Case(model, rng, 32, 8)
    case.tensors["model.q.qweight"] = case.tensors["model.q.qweight"].numpy().astype(np.int64)
    with pytest.raises(
        ClikaRTError, match=r"qweight: found int64\[4, 8\], expected int32 or uint32 of rank 2, not empty"
    ):
        gptq.read(case.tensors, "model.q", version=2)


@pytest.mark.parametrize("order", [np.arange(40) // 32, np.arange(40)[::-1] // 32])
def test_an_index_tells_the_size_of_a_group_too(model, rng, order):
    case = Case(model, rng, 40, 8, group=32, order=order)
    linear = gptq.read(case.tensors, "model.q", version=2)
    assert linear.scheme.group_size == 32
    same_columns(linear.layer(), case.weight)


@pytest.mark.parametrize("inputs", [40, 96])
def test_groups_that_tell_no_size_ask_for_it(model, rng, inputs):
    """Two groups of 20 or 48, or a group of 32 or 64 and a short one: not to be guessed."""
    case = Case(model, rng, inputs, 32, group=32 if inputs == 40 else 64)
    del case.tensors["model.q.g_idx"]
    with pytest.raises(ClikaRTError, match=f"2 groups for {inputs} inputs do not tell .* pass group_size"):
        gptq.read(case.tensors, "model.q", version=2)
    stated = gptq.read(case.tensors, "model.q", version=2, group_size=32 if inputs == 40 else 64)
    same_columns(stated.layer(), case.weight)


def test_outputs_that_fill_no_word_ask_for_the_width(model, rng):
    case = Case(model, rng, 32, 5)
    del case.tensors["model.q.g_idx"]
    with pytest.raises(ClikaRTError, match="5 codes in 1 words do not tell the width of a code; pass bits"):
        gptq.read(case.tensors, "model.q", version=2)
    same_columns(gptq.read(case.tensors, "model.q", version=2, bits=4).layer(), case.weight)
