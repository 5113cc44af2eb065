"""torchao's own tensors, flattened by its own code, into layers."""

import json

import ecosystems
import numpy as np
import pytest
from clika_runtime import ClikaRTError, checkpoints
from ecosystems import columns, round_trips, same_columns

torch = pytest.importorskip("torch", reason="torchao is PyTorch's (python/requirements-torch.txt)")
ecosystems.installed_file("torchao", "__init__.py")

from safetensors.torch import save_file  # noqa: E402
from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict  # noqa: E402
from torchao.quantization import (  # noqa: E402
    Float8Tensor,
    Int4Tensor,
    Int8Tensor,
    IntxUnpackedToInt8Tensor,
    MappingType,
    PerRow,
    PerTensor,
)
from torchao.quantization.quant_primitives import dequantize_affine  # noqa: E402


def weights(rng, rows=6, inputs=64, dtype=torch.float32):
    return torch.from_numpy(0.3 + rng.standard_normal((rows, inputs))).to(dtype)


def flattened(weight):
    """What torchao writes for one layer "l.q"."""
    return flatten_tensor_state_dict({"l.q.weight": weight})


def definition(weight):
    """(qdata - zero) * scale in float64, checked against torchao's own in float32."""
    repeat = weight.block_size[1]
    scale, zero = weight.scale.double().numpy(), 0
    if weight.zero_point is not None:
        zero = np.broadcast_to(weight.zero_point.double().numpy(), scale.shape).repeat(repeat, 1)
    exact = scale.repeat(repeat, 1) * (weight.qdata.numpy() - zero)
    theirs = dequantize_affine(weight.qdata, weight.block_size, weight.scale.float(), weight.zero_point, torch.int8)
    np.testing.assert_array_equal(theirs.numpy(), exact.astype(np.float32))
    return exact


@pytest.mark.parametrize("mapping", [MappingType.SYMMETRIC, MappingType.ASYMMETRIC])
@pytest.mark.parametrize(("granularity", "rows"), [(PerRow(), 6), (PerTensor(), 6), (PerTensor(), 1)])
def test_int8(rng, mapping, granularity, rows):
    weight = Int8Tensor.from_hp(weights(rng, rows), granularity, mapping)
    tensors, metadata = flattened(weight)
    linear = checkpoints.read_linear(tensors, "l.q", metadata=metadata)
    assert str(linear.scheme) == ("int8_f32" if mapping == MappingType.SYMMETRIC else "int8_asym_f32")
    same_columns(linear.layer(), definition(weight))
    round_trips(linear)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("mapping", [MappingType.SYMMETRIC, MappingType.ASYMMETRIC])
@pytest.mark.parametrize(("target", "group"), [(torch.int2, 32), (torch.int4, 32), (torch.int4, 64), (torch.int8, 16)])
def test_intx(rng, dtype, mapping, target, group):
    weight = IntxUnpackedToInt8Tensor.from_hp(weights(rng, dtype=dtype), (1, group), target, mapping_type=mapping)
    tensors, metadata = flattened(weight)
    linear = checkpoints.read_linear(tensors, "l.q", metadata=metadata)
    assert linear.scheme.bits == {torch.int2: 2, torch.int4: 4, torch.int8: 8}[target]
    assert linear.scheme.group_size == (-1 if group == 64 else group)
    assert linear.scheme.symmetric == (not weight.zero_point.any())
    same_columns(linear.layer(), definition(weight))
    round_trips(linear)


def with_zeros(rng, zeros):
    weight = weights(rng, 4, 32)
    scale = torch.full((4, 1), 0.25)
    return IntxUnpackedToInt8Tensor.from_hp(
        weight,
        (1, 32),
        torch.int4,
        intx_choose_qparams_algorithm=None,
        custom_scale=scale,
        custom_zero_point=torch.full((4, 1), zeros),
    )


@pytest.mark.parametrize("zero", [-8.0, 0.0, 7.0])
def test_whole_zero_points_of_a_float_dtype_are_codes(rng, zero):
    weight = with_zeros(rng, zero)
    tensors, metadata = flattened(weight)
    assert tensors["l.q._weight_zero_point"].dtype == torch.float32
    same_columns(checkpoints.read_linear(tensors, "l.q", metadata=metadata).layer(), definition(weight))


@pytest.mark.parametrize("zero", [7.5, -0.25, 8.0, -9.0, float("nan")])
def test_zero_points_that_are_no_codes_are_refused(rng, zero):
    """Field case C031."""
    weight = with_zeros(rng, 0.0)
    weight.zero_point[:] = zero
    tensors, metadata = flattened(weight)
    message = rf"l\.q \(torchao\): _weight_zero_point: found {zero:g}, expected whole numbers from -8 to 7 for 4-bit"
    with pytest.raises(ClikaRTError, match=message):
        checkpoints.read_linear(tensors, "l.q", metadata=metadata)


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("granularity", [PerRow(), PerTensor()])
def test_float8(rng, kind, granularity):
    weight = Float8Tensor.from_hp(weights(rng), float8_dtype=kind, granularity=granularity)
    tensors, metadata = flattened(weight)
    linear = checkpoints.read_linear(tensors, "l.q", metadata=metadata)
    assert str(linear.scheme) == {torch.float8_e4m3fn: "fp8_e4m3_f32", torch.float8_e5m2: "fp8_e5m2_f32"}[kind]
    same_columns(linear.layer(), weight.qdata.double().numpy() * weight.scale.double().numpy())
    round_trips(linear)


def test_a_file_brings_its_metadata(rng, tmp_path):
    layers = {
        "a": Int8Tensor.from_hp(weights(rng), PerRow()),
        "b": IntxUnpackedToInt8Tensor.from_hp(weights(rng), (1, 32), torch.int4),
        "c": Float8Tensor.from_hp(weights(rng), granularity=PerRow()),
    }
    tensors, metadata = flatten_tensor_state_dict({f"l.{name}.weight": weight for name, weight in layers.items()})
    save_file(tensors, tmp_path / "model.safetensors", metadata=metadata)
    checkpoint = checkpoints.open(tmp_path)
    for name in "ab":
        same_columns(checkpoints.load_linear(checkpoint, f"l.{name}"), definition(layers[name]))
    exact = layers["c"].qdata.double().numpy() * layers["c"].scale.double().numpy()
    same_columns(checkpoints.load_linear(checkpoint, "l.c"), exact)


# Int4Tensor is quantized by a GPU package; the tensors of one are made here: two signed codes a byte, the even input in
# the low nibble, scales and offsets [groups, out], w = code * scale + offset.


def int4(rng, offset, scale=None):
    codes = rng.integers(-8, 8, (6, 64))
    scale = torch.from_numpy(0.01 + rng.random((2, 6))).to(torch.bfloat16) if scale is None else scale
    offset = torch.as_tensor(offset).to(scale.dtype).expand_as(scale)
    weight = Int4Tensor(
        qdata=torch.from_numpy((codes[:, 0::2] & 15 | codes[:, 1::2] << 4).astype(np.int8)),
        scale=scale,
        zero_point=offset,
        block_size=[1, 32],
        shape=torch.Size((6, 64)),
    )
    scales, offsets = (of.double().numpy().T.repeat(32, 1) for of in (scale, offset))
    return flattened(weight), codes * scales + offsets


def test_int4(rng):
    (tensors, metadata), weight = int4(rng, 0.0)
    linear = checkpoints.read_linear(tensors, "l.q", metadata=metadata)
    assert str(linear.scheme) == "int4_g32_bf16"
    same_columns(linear.layer(), weight)
    round_trips(linear)


def test_int4_with_offsets(rng):
    (tensors, metadata), weight = int4(rng, rng.standard_normal((2, 6)))
    linear = checkpoints.read_linear(tensors, "l.q", metadata=metadata)
    assert str(linear.scheme) == "int4_g32_min_f32"
    # The scale's product is rounded, then the sum.
    np.testing.assert_allclose(columns(linear.layer()), weight, rtol=2**-22, atol=2**-22)
    stored = linear.state["weight_minimum"].astype(np.float64) + 8 * linear.state["weight_scale"].astype(np.float64)
    np.testing.assert_array_equal(stored, tensors["l.q._weight_zero_point"].double().numpy().T)
    round_trips(linear)
    with pytest.raises(ClikaRTError, match="found offsets that are added to the weights"):
        checkpoints.read_linear(tensors, "l.q", metadata=metadata, symmetric=True)


@pytest.mark.parametrize(("offset", "scale"), [(1.0, 2.0**-28), (1.0, 2.0**-100), (float("nan"), 1.0)])
def test_offsets_that_are_not_held_exactly_are_refused(rng, offset, scale):
    (tensors, metadata), _ = int4(rng, offset, torch.full((2, 6), scale))
    with pytest.raises(
        ClikaRTError, match=f"found the offset {offset:g} over the scale .*, which float32 does not hold"
    ):
        checkpoints.read_linear(tensors, "l.q", metadata=metadata)


# What else is refused.


@pytest.fixture
def plain(rng):
    tensors, metadata = flattened(Int8Tensor.from_hp(weights(rng), PerRow()))
    return tensors, metadata, json.loads(metadata["l.q.weight"])


def refused(tensors, entry, message):
    with pytest.raises(ClikaRTError, match=r"l\.q \(torchao\): " + message):
        checkpoints.torchao.read(tensors, "l.q", metadata={"l.q.weight": json.dumps(entry)})


def test_metadata_is_needed(plain):
    tensors, _, _ = plain
    with pytest.raises(ClikaRTError, match=r'the metadata has no entry "l\.q\.weight"; pass metadata'):
        checkpoints.read_linear(tensors, "l.q")


def test_metadata_of_another_kind_is_refused(plain):
    tensors, _, _ = plain
    refused(tensors, ["Int8Tensor"], "the metadata's entry .* is not one that torchao writes")
    refused(tensors, {"_type": "Int8Tensor"}, "the metadata's entry .* is not one that torchao writes")


def test_layouts_of_one_kernel_are_refused(plain):
    tensors, _, entry = plain
    refused(tensors, entry | {"_type": "Int4TilePackedTo4dTensor"}, "found a Int4TilePackedTo4dTensor, expected one of")


def test_other_widths_are_refused(plain):
    tensors, _, entry = plain
    data = entry["_data"] | {"target_dtype": {"_type": "torch.dtype", "_data": "int3"}}
    refused(
        tensors,
        {"_type": "IntxUnpackedToInt8Tensor", "_data": data},
        "found codes of int3, expected int2, int4 or int8",
    )


@pytest.mark.parametrize("block", [None, [2, 64], [1, 0], [1, 65], [64], [1, 2.5], ["1", 2]])
def test_blocks_that_do_not_fit_are_refused(plain, block):
    tensors, _, entry = plain
    refused(
        tensors, entry | {"_data": entry["_data"] | {"block_size": block}}, r"found blocks of .*, expected \[1, size\]"
    )


def test_scales_that_do_not_fit_are_refused(plain):
    tensors, _, entry = plain
    data = entry["_data"] | {"block_size": [1, 32]}
    refused(tensors, entry | {"_data": data}, r"_weight_scale: found float32\[6, 1\], expected \[6, 2\]")


def test_a_scale_on_the_activations_is_refused(plain):
    tensors, _, entry = plain
    refused(tensors | {"l.q._weight_act_pre_scale": torch.ones(64)}, entry, "found act_pre_scale")


def test_codes_outside_their_width_are_refused(plain):
    tensors, _, entry = plain
    data = entry["_data"] | {"target_dtype": {"_type": "torch.dtype", "_data": "int4"}}
    message = "_weight_qdata: found .*, expected whole numbers from -8 to 7 for 4-bit codes"
    refused(tensors, {"_type": "IntxUnpackedToInt8Tensor", "_data": data}, message)
