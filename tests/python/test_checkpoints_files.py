"""Files and folders of safetensors, plain and of other formats, and the one door to all of them."""

import inspect
import json
import sys

import ml_dtypes
import numpy as np
import pytest
from clika_runtime import ClikaRTError, Tensor, checkpoints, nn
from conftest import same_bits
from ecosystems import columns, round_trips
from safetensors.numpy import save_file

SCHEMES = [
    "int8",
    "int8_g16",
    "int8_g16_asym_f32",
    "int8_g16_min",
    "int4_g16",
    "int4_g16_asym_bf16",
    "int4_g16_min_f32",
    "int2_g16_asym",
    "nf4_g32",
    "mxfp4",
    "fp8_e4m3",
]


def arrays(module):
    return {name: np.array(tensor) for name, tensor in module.state_dict().items()}


def random_layer(rng, inputs, outputs, scheme, bias=True):
    scheme = nn.QuantScheme.parse(scheme)
    groups = 1 if scheme.group_size < 0 else -(-inputs // scheme.group_size)
    signed = scheme.bits == 8 and scheme.symmetric and scheme.codebook is None
    width = -(-inputs * scheme.bits // 8)
    scale = 0.01 + rng.random((outputs, groups))
    if isinstance(scheme.scale_dtype, str):
        scale = rng.integers(120, 130, scale.shape).astype(np.uint8)
    else:
        name = scheme.scale_dtype.name
        scale = scale.astype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
    state = {
        "weight": rng.integers(0, 112, (outputs, width)).astype(np.int8 if signed else np.uint8),
        "weight_scale": scale,
    }
    if scheme.minimum:
        state["weight_minimum"] = rng.standard_normal(scale.shape).astype(scale.dtype)
    elif not scheme.symmetric:
        state["weight_zero_point"] = rng.integers(0, 1 << scheme.bits, scale.shape).astype(np.uint8)
    if bias:
        state["bias"] = rng.standard_normal(outputs).astype(np.float32)
    layer = nn.QLinearWoQ(inputs, outputs, bias, scheme=scheme)
    layer.load_state_dict(state)
    return layer


# Plain files.


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("inputs", [32, 33])
def test_a_saved_model_comes_back(rng, tmp_path, scheme, inputs):
    model = nn.Sequential(random_layer(rng, inputs, 6, scheme), random_layer(rng, 6, 4, scheme, bias=False))
    model(np.zeros((1, inputs), np.float32))  # packs: what is saved is read back from the packs
    checkpoints.safetensors.save(tmp_path / "model.safetensors", model)
    checkpoint = checkpoints.open(tmp_path / "model.safetensors")
    x = rng.standard_normal((3, inputs), np.float32)
    first, second = (checkpoints.load_linear(checkpoint, name) for name in ("0", "1"))
    same_bits(second(first(x)), model(x))
    for name, tensor in arrays(model).items():
        assert np.asarray(checkpoint[name]).tobytes() == tensor.tobytes()


def test_odd_nibbles_go_through_files_untouched(rng, tmp_path):
    """Field case C036: the unused nibble is whatever it was, before and after."""
    for unused in (0x00, 0xF0):
        layer = random_layer(rng, 17, 2, "int4", bias=False)
        state = arrays(layer)
        state["weight"][:, -1] = state["weight"][:, -1] & 15 | unused
        layer.load_state_dict(state)
        checkpoints.safetensors.save(tmp_path / "q.safetensors", layer)
        again = checkpoints.load_linear(tmp_path / "q.safetensors")
        np.testing.assert_array_equal(columns(again), columns(layer))
        np.testing.assert_array_equal(again.weight, layer.weight)
        np.testing.assert_array_equal(again.weight, state["weight"])


def test_a_scheme_can_be_passed(rng, tmp_path):
    layer = random_layer(rng, 33, 6, "int4_g16_asym", bias=False)
    save_file({f"q.{name}": array for name, array in arrays(layer).items()}, tmp_path / "q.safetensors")
    linear = checkpoints.read_linear(tmp_path / "q.safetensors", "q", scheme="int4_g16_asym", in_features=33)
    np.testing.assert_array_equal(columns(linear.layer()), columns(layer))
    round_trips(linear)


def test_a_linear_is_a_pair_too(rng):
    layer = random_layer(rng, 32, 6, "int8")
    scheme, state = checkpoints.read_linear(arrays(layer), scheme="int8")
    made = nn.QLinearWoQ(32, 6, scheme=scheme)
    made.load_state_dict(state)
    same_bits(made(np.eye(32, dtype=np.float32)), layer(np.eye(32, dtype=np.float32)))


PLAIN_REFUSALS = [
    ({}, r'nothing states the scheme; pass scheme="int4_g128", say, or save with this module'),
    ({"scheme": "int8"}, r"weight: found uint8\[6, 16\], expected int8 of rank 2"),
    ({"scheme": "int4_g8"}, r"weight_scale: .*found float16\[6, 2\], expected float16\[6, 4\]"),
    ({"scheme": "int4_g16_asym"}, "missing: weight_zero_point"),
    ({"scheme": "int4_g16", "metadata": {"clika_runtime.schemes": "["}}, "the metadata's .* is not what save writes"),
    ({"scheme": "int4_g16", "in_features": 30}, r"found uint8\[6, 16\], expected uint8\[6, 15\]"),
]


@pytest.mark.parametrize(("arguments", "message"), PLAIN_REFUSALS)
def test_what_does_not_fit_the_scheme_is_refused(rng, arguments, message):
    state = {f"q.{name}": array for name, array in arrays(random_layer(rng, 32, 6, "int4_g16")).items()}
    with pytest.raises(ClikaRTError, match=rf"(?s)q \(safetensors\): .*{message}"):
        checkpoints.read_linear(state, "q", **arguments)


# Files and folders.


def gptq_tensors(rng, prefix, dtype=np.float16):
    return {
        f"{prefix}.qweight": rng.integers(-(2**31), 2**31, (4, 16)).astype(np.int32),
        f"{prefix}.qzeros": np.full((1, 2), 0x77777777, np.int32),
        f"{prefix}.scales": (0.01 + rng.random((1, 16))).astype(dtype),
        f"{prefix}.g_idx": np.zeros(32, np.int32),
    }


CONFIG = {"quant_method": "gptq", "bits": 4, "group_size": -1}


@pytest.fixture
def folder(rng, tmp_path):
    save_file(gptq_tensors(rng, "a.q"), tmp_path / "model-00001-of-00002.safetensors")
    save_file(gptq_tensors(rng, "b.q", ml_dtypes.bfloat16), tmp_path / "model-00002-of-00002.safetensors")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", {"model_type": "llama", "quantization_config": CONFIG}),
        ("config.json", {"compression_config": CONFIG}),
        ("quantize_config.json", CONFIG),
        ("quant_config.json", CONFIG),
    ],
)
def test_a_folder_brings_its_shards_and_its_config(folder, name, content):
    (folder / name).write_text(json.dumps(content))
    checkpoint = checkpoints.open(folder)
    assert checkpoint.config == CONFIG
    assert sorted(checkpoint) == sorted(f"{p}.q.{n}" for p in "ab" for n in ("qweight", "qzeros", "scales", "g_idx"))
    assert str(checkpoints.read_linear(checkpoint, "a.q").scheme) == "int4"  # 7 and one more
    assert str(checkpoints.read_linear(checkpoint, "b.q").scheme) == "int4_bf16"
    assert checkpoints.open(folder / "model-00001-of-00002.safetensors").config == CONFIG
    with pytest.raises(ClikaRTError, match=r"c\.q: no format is recognised by the names of its tensors"):
        checkpoints.load_linear(checkpoint, "c.q")


def test_arguments_come_before_the_config(folder):
    (folder / "quantize_config.json").write_text(json.dumps(CONFIG))
    linear = checkpoints.read_linear(folder, "a.q", version=2)
    assert (linear.state["weight_zero_point"] == 7).all()
    assert (
        checkpoints.read_linear(folder, "a.q", config=CONFIG | {"checkpoint_format": "gptq_v2"}).scheme == linear.scheme
    )


def test_without_a_config_there_is_none(folder):
    assert checkpoints.open(folder).config == {}
    with pytest.raises(ClikaRTError, match=r"a\.q \(GPTQ\): nothing says how zero points are stored"):
        checkpoints.read_linear(folder, "a.q")


def test_a_config_that_is_no_json_is_refused(folder):
    (folder / "config.json").write_text("{")
    with pytest.raises(ClikaRTError, match=r"config\.json: cannot be read as JSON"):
        checkpoints.open(folder)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "bfloat16", "int64"])
def test_dtypes_that_numpy_lacks_are_read(rng, tmp_path, name):
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    tensors = {
        "before": np.arange(3, dtype=np.float32),
        "it": rng.integers(0, 256, (3, 4 * dtype.itemsize), np.uint8).view(dtype),
        "after": np.arange(5, dtype=np.int8),
    }
    save_file(tensors, tmp_path / "x.safetensors")
    checkpoint = checkpoints.open(tmp_path / "x.safetensors")
    for key, array in tensors.items():
        assert checkpoint[key].dtype == array.dtype
        assert checkpoint[key].shape == array.shape
        assert checkpoint[key].tobytes() == array.tobytes()


@pytest.mark.parametrize("content", [b"", b"short", b"\xff" * 64])
def test_a_damaged_file_is_refused(tmp_path, content):
    (tmp_path / "x.safetensors").write_bytes(content)
    with pytest.raises(ClikaRTError, match=r"x\.safetensors: cannot be read as safetensors"):
        checkpoints.open(tmp_path / "x.safetensors")


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(ClikaRTError, match="there is no such file or folder"):
        checkpoints.load_linear(tmp_path / "model.gguf", "q")
    with pytest.raises(ClikaRTError, match=r"found no \*\.safetensors"):
        checkpoints.open(tmp_path)


@pytest.mark.parametrize("call", [checkpoints.open, lambda path: checkpoints.safetensors.save(path, nn.Linear(1, 1))])
def test_without_the_package_the_remedy_is_named(tmp_path, monkeypatch, call):
    (tmp_path / "x.safetensors").write_bytes(b"")
    for name in ("safetensors", "safetensors.numpy"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ClikaRTError, match=r"needs the package safetensors, .*pip install safetensors"):
        call(tmp_path / "x.safetensors")


# The door.


def test_sources_of_every_kind_give_one_layer(rng):
    tensors = gptq_tensors(rng, "q")
    want = columns(checkpoints.load_linear(tensors, "q", version=1))
    torch = pytest.importorskip("torch")
    for convert in (Tensor.from_data, torch.from_numpy):
        converted = {name: convert(array) for name, array in tensors.items()}
        np.testing.assert_array_equal(columns(checkpoints.load_linear(converted, "q", version=1)), want)


def test_loaded_layers_fuse(rng):
    tensors = gptq_tensors(rng, "q") | gptq_tensors(rng, "k")
    q, k = (checkpoints.load_linear(tensors, name, version=1) for name in ("q", "k"))
    x = rng.standard_normal((2, 32), np.float32)
    alone = np.concatenate([q(x).numpy(), k(x).numpy()], 1)
    fused = nn.fuse_linears(*(checkpoints.load_linear(tensors, name, version=1) for name in ("q", "k")))
    same_bits(fused(x), alone)
    assert fused.fused
    assert [part.name for part in fused.parts] == ["q", "k"]


def test_options_reach_the_layer(rng):
    layer = checkpoints.load_linear(
        gptq_tensors(rng, "q"), "q", version=1, activation="relu", residency="per_call", name="n"
    )
    assert (layer.activation, layer.residency, layer.name) == (nn.Activation.relu, "per_call", "n")


@pytest.mark.parametrize("name", ["GPTQ", "exl2", ""])
def test_an_unknown_format_is_a_value_error(name):
    if name:
        with pytest.raises(ValueError, match=f'format "{name}" is not known; expected one of gptq, awq'):
            checkpoints.read_linear({}, "q", format=name)
    else:
        with pytest.raises(ClikaRTError, match="the checkpoint: no format is recognised"):
            checkpoints.read_linear({})


def test_arguments_that_a_reader_does_not_take_are_type_errors(rng):
    with pytest.raises(TypeError, match="scheme"):
        checkpoints.read_linear(gptq_tensors(rng, "q"), "q", version=1, scheme="int4")


@pytest.mark.parametrize("value", ["text", object(), np.array(["a"])])
def test_what_is_no_tensor_is_refused(rng, value):
    tensors = gptq_tensors(rng, "q") | {"q.scales": value}
    with pytest.raises(ClikaRTError, match=r"q\.scales|scales: found"):
        checkpoints.gptq.read(tensors, "q", version=1)


def test_all_that_is_public_is_documented():
    for name in checkpoints.__all__:
        assert inspect.getdoc(getattr(checkpoints, name)), name
    for module in ("awq", "compressed_tensors", "gguf", "gptq", "safetensors", "torchao"):
        assert "ClikaRTError" in getattr(checkpoints, module).read.__doc__
