"""Pack-quantized tensors, packed by compressed-tensors' own code, into layers."""

import numpy as np
import pytest
from clika_runtime import ClikaRTError, checkpoints
from ecosystems import module_of, round_trips, same_columns
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="compressed-tensors packs PyTorch tensors (python/requirements-torch.txt)")
packing = module_of("compressed_tensors", "compressors/pack_quantized/helpers.py")
compressed_tensors = checkpoints.compressed_tensors


class Case:
    """Signed codes and zero points, the weight they stand for, and what the package makes of them."""

    def __init__(self, rng, rows, inputs, bits=4, group=16, symmetric=True, order=None, dtype=torch.float16):
        groups = 1 if group == -1 else -(-inputs // group)
        size = inputs if group == -1 else group
        low, high = -(1 << (bits - 1)), 1 << (bits - 1)
        self.order = np.arange(inputs) // size if order is None else order
        self.codes = rng.integers(low, high, (rows, inputs))
        self.zeros = np.zeros((rows, groups), int) if symmetric else rng.integers(low, high, (rows, groups))
        self.scales = torch.from_numpy(0.01 + rng.random((rows, groups))).to(dtype)
        packed = packing.pack_to_int32(torch.from_numpy(self.codes.astype(np.int8)), bits)
        self.tensors = {
            "q.weight_packed": packed,
            "q.weight_scale": self.scales,
            "q.weight_shape": torch.tensor([rows, inputs]),
        }
        if not symmetric:
            zeros = torch.from_numpy(self.zeros.astype(np.int8))
            self.tensors["q.weight_zero_point"] = packing.pack_to_int32(zeros, bits, packed_dim=0)
        if order is not None:
            self.tensors["q.weight_g_idx"] = torch.from_numpy(order.astype(np.int32))

    @property
    def weight(self):
        scales = self.scales.double().numpy()
        return scales[:, self.order] * (self.codes - self.zeros[:, self.order])


def config(bits=4, group=16, symmetric=True, format="pack-quantized"):
    weights = {"num_bits": bits, "type": "int", "symmetric": symmetric, "strategy": "group", "group_size": group}
    return {
        "quant_method": "compressed-tensors",
        "format": format,
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    }


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize(("rows", "inputs", "group"), [(16, 64, 16), (5, 48, 16), (3, 33, -1), (9, 40, 32)])
def test_weights_are_the_packers(rng, rows, inputs, group, bits, symmetric):
    case = Case(rng, rows, inputs, bits, group, symmetric)
    linear = checkpoints.read_linear(case.tensors, "q", num_bits=bits, group_size=group)
    size = "" if group == -1 else f"_g{group}"
    assert str(linear.scheme) == f"int{bits}{size}" + ("" if symmetric else "_asym")
    assert (linear.out_features, linear.in_features) == (rows, inputs)
    same_columns(linear.layer(), case.weight)
    round_trips(linear)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 9),
    st.integers(1, 70),
    st.sampled_from([2, 4, 8]),
    st.sampled_from([-1, 1, 3, 16, 32]),
    st.booleans(),
    st.booleans(),
    st.integers(0, 1000),
)
def test_any_shape(rows, inputs, bits, group, symmetric, shuffled, seed):
    rng = np.random.default_rng(seed)
    order = rng.permutation(np.arange(inputs) // (inputs if group == -1 else group)) if shuffled else None
    case = Case(rng, rows, inputs, bits, group, symmetric, order)
    linear = compressed_tensors.read(case.tensors, "q", num_bits=bits, group_size=group)
    same_columns(linear.layer(), case.weight)


def test_bytes_are_taken_as_they_are(rng):
    case = Case(rng, 4, 32)
    stored = compressed_tensors.read(case.tensors, "q").state["weight"]
    assert stored.tobytes() == case.tensors["q.weight_packed"].numpy().tobytes()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_scales_keep_their_dtype(rng, dtype):
    case = Case(rng, 4, 32, dtype=dtype)
    linear = compressed_tensors.read(case.tensors, "q")
    assert str(linear.scheme) == "int4_g16_" + {torch.bfloat16: "bf16", torch.float32: "f32"}[dtype]
    same_columns(linear.layer(), case.weight)
    round_trips(linear)


def test_one_scale_for_the_tensor_is_repeated(rng):
    case = Case(rng, 4, 32, group=-1)
    case.scales = case.scales[:1].reshape(1)
    case.tensors["q.weight_scale"] = case.scales
    case.scales = case.scales.repeat(4)[:, None]
    same_columns(compressed_tensors.read(case.tensors, "q").layer(), case.weight)


@pytest.mark.parametrize("bits", [4, 8])
def test_zero_points_that_are_not_packed(rng, bits):
    case = Case(rng, 5, 32, bits, symmetric=False)
    case.tensors["q.weight_zero_point"] = torch.from_numpy(case.zeros.astype(np.int8))
    linear = compressed_tensors.read(case.tensors, "q")
    same_columns(linear.layer(), case.weight)


def test_zero_points_of_0_make_a_symmetric_scheme(rng):
    case = Case(rng, 8, 32, symmetric=False)
    case.zeros[:] = 0
    case.tensors["q.weight_zero_point"] = packing.pack_to_int32(torch.zeros(8, 2, dtype=torch.int8), 4, packed_dim=0)
    assert str(compressed_tensors.read(case.tensors, "q").scheme) == "int4_g16"
    kept = compressed_tensors.read(case.tensors, "q", symmetric=False)
    assert str(kept.scheme) == "int4_g16_asym"
    same_columns(kept.layer(), case.weight)


def test_activation_order_is_kept(rng):
    """Field case C037."""
    case = Case(rng, 4, 48, order=rng.permutation(np.arange(48) // 16), symmetric=False)
    linear = compressed_tensors.read(case.tensors, "q")
    same_columns(linear.layer(), case.weight)
    round_trips(linear)


@pytest.mark.parametrize("index", [np.full(32, -1), np.arange(32) // 16])
def test_an_index_that_says_nothing_is_dropped(rng, index):
    case = Case(rng, 4, 32)
    case.tensors["q.weight_g_idx"] = index.astype(np.int32)
    assert "weight_g_idx" not in compressed_tensors.read(case.tensors, "q").state


def test_codes_read_in_order():
    """Field case C036: sixteen codes k - 8, a scale of 1."""
    codes = torch.arange(16, dtype=torch.int8)[None] - 8
    tensors = {
        "weight_packed": packing.pack_to_int32(codes, 4),
        "weight_scale": torch.ones(1, 1),
        "weight_shape": torch.tensor([1, 16]),
    }
    layer = compressed_tensors.read(tensors, num_bits=4).layer()
    np.testing.assert_array_equal(layer(np.eye(16, dtype=np.float32)).numpy()[:, 0], np.arange(16) - 8)


def test_the_config_is_heeded(rng):
    case = Case(rng, 4, 40, group=32)
    linear = checkpoints.read_linear(case.tensors, "q", config=config(group=32))
    assert str(linear.scheme) == "int4_g32"
    same_columns(linear.layer(), case.weight)


# The formats "int-quantized" and "float-quantized": codes as they are.


@pytest.mark.parametrize("group", [16, -1])
@pytest.mark.parametrize("symmetric", [True, False])
def test_codes_that_are_not_packed(rng, group, symmetric):
    case = Case(rng, 5, 32, 8, group, symmetric)
    tensors = {"q.weight": torch.from_numpy(case.codes.astype(np.int8)), "q.weight_scale": case.scales}
    if not symmetric:
        tensors["q.weight_zero_point"] = torch.from_numpy(case.zeros.astype(np.int8))
    linear = checkpoints.read_linear(tensors, "q", config=config(8, group, symmetric, "int-quantized"))
    same_columns(linear.layer(), case.weight)
    round_trips(linear)


def test_codes_that_are_floats(rng):
    codes = torch.from_numpy(rng.standard_normal((5, 32))).to(torch.float8_e4m3fn)
    scales = torch.from_numpy(0.01 + rng.random((5, 1))).to(torch.bfloat16)
    tensors = {"q.weight": codes, "q.weight_scale": scales}
    linear = checkpoints.read_linear(tensors, "q", config=config(8, -1, format="float-quantized"))
    assert str(linear.scheme) == "fp8_e4m3_bf16"
    same_columns(linear.layer(), codes.double().numpy() * scales.double().numpy())
    round_trips(linear)
    with pytest.raises(ClikaRTError, match="8-bit floats have no zero points"):
        compressed_tensors.read(tensors, "q", symmetric=False)


REFUSALS = [
    ({"num_bits": 3}, "found 3-bit codes; codes of 2, 4 and 8 bits are served"),
    ({"num_bits": 8}, r"weight_packed: found int32\[4, 4\], expected \[4, 8\] for \[4, 32\], 8 bits"),
    ({"group_size": 8}, "found 2 groups, expected 4 for 32 inputs and group_size 8"),
    ({"config": config(format="marlin-24")}, 'found the format "marlin-24", expected one of pack-quantized, int'),
    ({"symmetric": True}, "found a zero point of .*, expected 8 everywhere in a symmetric weight"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSALS)
def test_refusals_name_the_layer_and_the_remedy(rng, arguments, message):
    case = Case(rng, 4, 32, symmetric=False)
    with pytest.raises(ClikaRTError, match=r"q \(compressed-tensors\): " + message):
        compressed_tensors.read(case.tensors, "q", **arguments)


@pytest.mark.parametrize("bits", [1, 3, 5, 6])
def test_other_widths_are_refused_by_the_packed_shape(rng, bits):
    case = Case(rng, 4, 32, bits)
    with pytest.raises(ClikaRTError, match=f"found {bits}-bit codes"):
        compressed_tensors.read(case.tensors, "q")


def test_a_short_row_that_tells_no_width_asks_for_it(rng):
    case = Case(rng, 4, 4, group=-1)
    with pytest.raises(ClikaRTError, match="4 codes in 1 words do not tell the width of a code; pass num_bits"):
        compressed_tensors.read(case.tensors, "q")
    same_columns(compressed_tensors.read(case.tensors, "q", num_bits=4).layer(), case.weight)


@pytest.mark.parametrize("name", ["weight_scale", "weight_shape", "weight_zero_point", "weight_g_idx"])
def test_shapes_that_do_not_fit_are_named(rng, name):
    case = Case(rng, 4, 32, symmetric=False, order=rng.permutation(np.arange(32) // 16))
    found = case.tensors[f"q.{name}"]
    case.tensors[f"q.{name}"] = torch.cat([found, found])
    with pytest.raises(ClikaRTError, match=rf"{name}: found .*, expected \["):
        compressed_tensors.read(case.tensors, "q")


def test_a_zero_point_outside_the_codes_is_refused(rng):
    case = Case(rng, 4, 32)
    case.tensors["q.weight_zero_point"] = np.full((4, 2), 8, np.int8)
    with pytest.raises(ClikaRTError, match="weight_zero_point: found 8, expected whole numbers from -8 to 7"):
        compressed_tensors.read(case.tensors, "q")
