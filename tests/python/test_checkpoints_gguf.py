"""GGUF blocks, written and read by llama.cpp's own package, into layers."""

import sys

import numpy as np
import pytest
from clika_runtime import ClikaRTError, checkpoints
from ecosystems import round_trips, same_columns

package = pytest.importorskip("gguf", reason="see python/requirements-formats.txt")
QuantType = package.GGMLQuantizationType
GgufTensor = checkpoints.gguf.GgufTensor

# What the package can quantize to, and what it only reads.
WRITTEN = {
    "Q8_0": "int8_g32",
    "Q4_0": "int4_g32",
    "Q4_1": "int4_g32_min",
    "Q5_0": "int8_g32",
    "Q5_1": "int8_g32_min",
    "MXFP4": "mxfp4",
}
SCHEMES = WRITTEN | {
    "Q2_K": "int2_g16_min_f32",
    "Q4_K": "int4_g32_min_f32",
    "Q5_K": "int8_g32_min_f32",
    "Q6_K": "int8_g16_f32",
}
# Where each type's block has float16 fields.
HALFS = {
    "Q8_0": (0,),
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "MXFP4": (),
    "Q2_K": (80, 82),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}


def quantized(rng, kind, rows=5, inputs=96):
    """A tensor by the package, and its weight as the package reads it."""
    data = package.quants.quantize(rng.standard_normal((rows, inputs), np.float32), QuantType[kind])
    return GgufTensor(kind, data), package.quants.dequantize(data, QuantType[kind])


def random_blocks(rng, kind, rows=3, blocks=2):
    """Blocks of random bytes, the f16 fields finite, and their weight as the package reads it."""
    size = package.GGML_QUANT_SIZES[QuantType[kind]][1]
    data = rng.integers(0, 256, (rows, blocks, size), np.uint8)
    for field in HALFS[kind]:
        values = np.ldexp(rng.standard_normal((rows, blocks, 1)), -4).astype(np.float16)
        data[..., field : field + 2] = values.view(np.uint8)
    if kind == "MXFP4":
        data[..., 0] = rng.integers(0, 255, (rows, blocks))
    data = data.reshape(rows, -1)
    return GgufTensor(kind, data), package.quants.dequantize(data, QuantType[kind])


@pytest.mark.parametrize("kind", WRITTEN)
def test_what_the_package_quantizes_is_what_layers_compute_with(rng, kind):
    tensor, weight = quantized(rng, kind)
    linear = checkpoints.gguf.read({"blk.0.attn_q.weight": tensor}, "blk.0.attn_q")
    assert str(linear.scheme) == SCHEMES[kind]
    assert (linear.out_features, linear.in_features) == weight.shape
    same_columns(linear.layer(), weight)
    round_trips(linear)


@pytest.mark.parametrize("kind", SCHEMES)
def test_any_bytes_of_a_block_are_read_as_the_package_reads_them(rng, kind):
    tensor, weight = random_blocks(rng, kind)
    linear = checkpoints.gguf.read({"weight": tensor})
    assert str(linear.scheme) == SCHEMES[kind]
    same_columns(linear.layer(), weight)
    round_trips(linear)


def test_every_scale_of_mxfp4_is_exact():
    """e8m0 from the least (a subnormal) to the greatest; the package doubles the codes and halves the scales."""
    data = np.zeros((255, 17), np.uint8)
    data[:, 0] = np.arange(255)
    data[:, 1:] = np.arange(16) | np.arange(16)[::-1] << 4
    with np.errstate(over="ignore"):  # 6 * 2^127
        weight = package.quants.dequantize(data, QuantType.MXFP4)
    same_columns(checkpoints.gguf.read({"weight": GgufTensor("MXFP4", data)}).layer(), weight)


def test_a_scale_that_is_no_number_is_refused(rng):
    tensor, _ = random_blocks(rng, "MXFP4")
    tensor.data[2, 17] = 255
    with pytest.raises(ClikaRTError, match="found the scale 255 in row 2, block 1, which is no number in e8m0"):
        checkpoints.gguf.read({"weight": tensor})


def test_nibbles_of_a_block_read_in_order():
    """Field case C036: code k for k below 16, then the same upwards; a scale of 1."""
    one = np.array([1], np.float16).view(np.uint8)
    data = np.concatenate([one, np.arange(16, dtype=np.uint8) * 0x11])[None]
    layer = checkpoints.gguf.read({"weight": GgufTensor("Q4_0", data)}).layer()
    columns = layer(np.eye(32, dtype=np.float32)).numpy()[:, 0]
    np.testing.assert_array_equal(columns, np.tile(np.arange(16) - 8, 2))


# Files.


@pytest.fixture
def file(rng, tmp_path):
    """A file of the package's own writer, and the weight of each of its tensors."""
    path = tmp_path / "model.gguf"
    writer = package.GGUFWriter(path, "llama")
    weights = {}
    for name, kind in (("q", "Q4_0"), ("k", "Q8_0"), ("v", "MXFP4"), ("o", "Q6_K")):
        tensor, weights[name] = quantized(rng, kind) if kind in WRITTEN else random_blocks(rng, kind)
        writer.add_tensor(f"blk.0.attn_{name}.weight", tensor.data, raw_dtype=QuantType[kind])
    writer.add_tensor("blk.0.attn_q.bias", np.arange(5, dtype=np.float32))
    writer.add_tensor("norm.weight", np.ones((4, 4), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path, weights


def test_a_file_is_read(file):
    path, weights = file
    checkpoint = checkpoints.open(path)
    for name in ("k", "v", "o"):
        same_columns(checkpoints.load_linear(checkpoint, f"blk.0.attn_{name}"), weights[name])
    layer = checkpoints.load_linear(path, "blk.0.attn_q")
    np.testing.assert_array_equal(layer.bias.numpy(), np.arange(5))
    assert layer.name == "blk.0.attn_q"


def test_the_packages_own_reader_is_a_source(file):
    path, weights = file
    tensors = {tensor.name: tensor for tensor in package.GGUFReader(path).tensors}
    same_columns(checkpoints.load_linear(tensors, "blk.0.attn_k"), weights["k"])


@pytest.mark.parametrize("dtype", [np.float16, "bfloat16"])
def test_biases_of_16_bits_are_widened(rng, dtype):
    tensor, _ = quantized(rng, "Q8_0")
    bias = np.array([0.5, -1, 2, 3, -0.25], np.float32)
    stored = (
        GgufTensor("F16", bias.astype(np.float16))
        if dtype == np.float16
        else GgufTensor("BF16", package.quants.quantize(bias[None], QuantType.BF16)[0])
    )
    linear = checkpoints.gguf.read({"q.weight": tensor, "q.bias": stored}, "q")
    np.testing.assert_array_equal(linear.state["bias"], bias)


def test_a_bias_of_another_type_is_refused(rng):
    tensor, _ = quantized(rng, "Q8_0")
    for bias in (GgufTensor("BF16", np.zeros(5, np.uint8)), GgufTensor("Q8_0", np.zeros(34, np.uint8))):
        with pytest.raises(ClikaRTError, match=r"bias: found uint8\[\d+\], expected float16 or bfloat16 or float32"):
            checkpoints.gguf.read({"weight": tensor, "bias": bias})


@pytest.mark.parametrize("kind", ["Q2_K", "Q4_K", "Q6_K"])
def test_an_infinite_scale_of_a_block_is_the_packages(rng, kind):
    tensor, _ = random_blocks(rng, kind, blocks=1)
    field = HALFS[kind][0]
    tensor.data[0, field : field + 2] = np.array([np.inf], np.float16).view(np.uint8)
    linear = checkpoints.gguf.read({"weight": tensor})
    with np.errstate(invalid="ignore"):
        scale = linear.state["weight_scale"][0]
        assert (np.isinf(scale) | np.isnan(scale)).all()
    assert np.isfinite(linear.state["weight_scale"][1:]).all()


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [("F32", "load it into a Linear"), ("IQ4_NL", "quantize the model"), ("Q3_K", "quantize the model")],
)
def test_other_types_are_refused_by_name(kind, remedy):
    tensor = GgufTensor(kind, np.zeros((2, 44), np.uint8))
    with pytest.raises(
        ClikaRTError, match=rf"q \(GGUF\): q\.weight: found the type {kind}, expected one of .*{remedy}"
    ):
        checkpoints.gguf.read({"q.weight": tensor}, "q")


@pytest.mark.parametrize(
    "data",
    [np.zeros((2, 33), np.uint8), np.zeros(34, np.uint8), np.zeros((2, 34), np.int8), np.zeros((0, 34), np.uint8)],
)
def test_data_that_is_not_whole_blocks_is_refused(data):
    with pytest.raises(ClikaRTError, match=r"weight: found .*, expected uint8 \[out, bytes\], bytes a multiple of 34"):
        checkpoints.gguf.read({"weight": GgufTensor("Q8_0", data)})


def test_a_missing_tensor_is_named(file):
    with pytest.raises(ClikaRTError, match=r"there is no tensor blk\.1\.attn_q\.weight"):
        checkpoints.load_linear(file[0], "blk.1.attn_q")


@pytest.mark.parametrize("length", [0, 3, 20, 400])
def test_a_damaged_file_is_refused(file, length):
    path, _ = file
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ClikaRTError, match=r"model\.gguf: cannot be read as GGUF"):
        checkpoints.open(path)


def test_without_the_package_the_remedy_is_named(file, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ClikaRTError, match=r"needs the package gguf, .*pip install gguf"):
        checkpoints.open(file[0])
