"""Whatever a checkpoint's tensors are: a layer, or a ClikaRTError that names it, and nothing else."""

import json

import numpy as np
import pytest
from clika_runtime import ClikaRTError, checkpoints
from hypothesis import given, settings
from hypothesis import strategies as st

GgufTensor = checkpoints.gguf.GgufTensor
TORCHAO = json.dumps({"_type": "Int8Tensor", "_data": {"block_size": [1, 16]}})


def words(*shape):
    return np.zeros(shape, np.int32)


def halfs(*shape):
    return np.ones(shape, np.float16)


# A layer from 32 to 16 in two groups, in each format: its tensors, and what its reader is told.
LAYERS = {
    "gptq": (
        {"qweight": words(4, 16), "qzeros": words(2, 2), "scales": halfs(2, 16), "g_idx": words(32)},
        {"version": 2, "group_size": 16},
    ),
    "awq": ({"qweight": words(32, 2), "qzeros": words(2, 2), "scales": halfs(2, 16)}, {}),
    "compressed-tensors": (
        {
            "weight_packed": words(16, 4),
            "weight_shape": np.array([16, 32]),
            "weight_scale": halfs(16, 2),
            "weight_zero_point": words(2, 2),
            "weight_g_idx": words(32),
        },
        {"num_bits": 4, "group_size": 16},
    ),
    "torchao": (
        {
            "_weight_qdata": np.zeros((16, 32), np.int8),
            "_weight_scale": halfs(16, 2),
            "_weight_zero_point": np.zeros((16, 2), np.int8),
        },
        {"metadata": {"q.weight": TORCHAO}},
    ),
    "gguf": ({"weight": GgufTensor("Q8_0", np.zeros((16, 34), np.uint8))}, {}),
    "safetensors": (
        {
            "weight": np.zeros((16, 16), np.uint8),
            "weight_scale": halfs(16, 2),
            "weight_zero_point": np.zeros((16, 2), np.uint8),
        },
        {"scheme": "int4_g16_asym"},
    ),
}
DTYPES = ["int8", "uint8", "int32", "int64", "float16", "float32", "float64", "bool"]
SHAPES = st.lists(st.sampled_from([0, 1, 2, 4, 16, 17, 32, 34]), max_size=3)


def loaded(name, other):
    """The error's text where the layer with `other` tensors is refused, else None."""
    tensors, arguments = LAYERS[name]
    tensors = {f"q.{key}": value for key, value in tensors.items()}
    try:
        checkpoints.load_linear(tensors | other, "q", format=name, **arguments)
    except ClikaRTError as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", LAYERS)
def test_the_layers_are_read(name):
    assert loaded(name, {}) is None


@pytest.mark.parametrize("name", LAYERS)
@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_other_tensor_is_read_or_refused(name, data):
    key = data.draw(st.sampled_from([*LAYERS[name][0], "bias"]))
    value = np.full(data.draw(SHAPES), data.draw(st.integers(0, 5))).astype(data.draw(st.sampled_from(DTYPES)))
    if name == "gguf":
        value = GgufTensor(data.draw(st.sampled_from(["Q8_0", "Q2_K", "MXFP4", "F32", "BF16"])), value)
    refusal = loaded(name, {f"q.{key}": value})
    assert refusal is None or refusal.startswith("q (")


@pytest.mark.parametrize("name", LAYERS)
def test_a_bias_of_another_width_is_refused(name):
    bias = np.zeros(17, np.float32)
    value = GgufTensor("F32", bias) if name == "gguf" else bias
    assert "found float32[17], expected" in loaded(name, {"q.bias": value})


def stored(tensors, name, arguments):
    state = checkpoints.load_linear(tensors, "q", format=name, **arguments).state_dict()
    return {key: np.asarray(value) for key, value in state.items()}


@pytest.mark.parametrize("name", [name for name in LAYERS if name not in ("gguf", "safetensors")])
def test_another_byte_order_has_the_same_values(name):
    tensors, arguments = LAYERS[name]
    rng = np.random.default_rng(1)
    codes = {"qweight", "qzeros", "weight_packed", "weight_zero_point"}
    tensors = {
        f"q.{key}": rng.integers(-(2**31), 2**31, value.shape).astype(np.int32) if key in codes else value
        for key, value in tensors.items()
    }
    if "q.g_idx" in tensors:
        tensors["q.g_idx"] = (rng.permutation(32) // 16).astype(np.int32)
    native = stored(tensors, name, arguments)
    swapped = stored(
        {key: value.astype(value.dtype.newbyteorder(">")) for key, value in tensors.items()}, name, arguments
    )
    assert native.keys() == swapped.keys()
    for key, value in native.items():
        np.testing.assert_array_equal(swapped[key], value)
