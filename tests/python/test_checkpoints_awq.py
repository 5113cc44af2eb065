"""AWQ tensors, packed by GPTQModel's own code in AWQ's order, into layers."""

import numpy as np
import pytest
from clika_runtime import ClikaRTError, checkpoints
from ecosystems import module_of, round_trips, same_columns

torch = pytest.importorskip("torch", reason="GPTQModel packs PyTorch tensors (python/requirements-torch.txt)")
packing = module_of("gptqmodel", "quantization/awq/utils/packing_utils.py")
awq = checkpoints.awq


def case(rng, inputs, rows, group, zeros=None, dtype=torch.float16):
    """Tensors under "q", and the weight that the packer's own package reads from them, float64 [out, in]."""
    groups = inputs // group
    codes = torch.from_numpy(rng.integers(0, 16, (inputs, rows)))
    zeros = torch.from_numpy(rng.integers(0, 16, (groups, rows)) if zeros is None else np.full((groups, rows), zeros))
    scales = torch.from_numpy(0.01 + rng.random((groups, rows))).to(dtype)
    qweight, qzeros = packing.pack_awq(codes, zeros, 4)
    weight = packing.dequantize_gemm(qweight, qzeros, scales.double(), 4, group).T.numpy()
    np.testing.assert_array_equal(
        weight, scales.double().numpy().T.repeat(group, 1) * (codes.numpy().T - zeros.numpy().T.repeat(group, 1))
    )
    return {"q.qweight": qweight, "q.qzeros": qzeros, "q.scales": scales}, weight


@pytest.mark.parametrize(("inputs", "rows", "group"), [(64, 16, 32), (48, 24, 16), (33, 8, 11), (96, 8, 48)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_are_the_packers(rng, inputs, rows, group, dtype):
    tensors, weight = case(rng, inputs, rows, group, dtype=dtype)
    linear = checkpoints.read_linear(tensors, "q", config={"quant_method": "awq", "group_size": group})
    assert str(linear.scheme) == f"int4_g{group}_asym" + ("" if dtype == torch.float16 else "_bf16")
    same_columns(linear.layer(), weight)
    round_trips(linear)


def test_every_nibble_goes_to_its_output():
    """Field case C036: output o of a word holds the code o, and reads o - 8."""
    tensors = {
        "qweight": np.full((2, 1), 0x75316420, np.int32),  # from the highest nibble: outputs 7 5 3 1 6 4 2 0
        "qzeros": np.full((1, 1), -0x77777778, np.int32),
        "scales": np.ones((1, 8), np.float16),
    }
    layer = awq.read(tensors).layer()
    np.testing.assert_array_equal(layer(np.eye(2, dtype=np.float32)).numpy(), [np.arange(8) - 8] * 2)


def test_zero_points_of_8_make_a_symmetric_scheme(rng):
    tensors, weight = case(rng, 64, 16, 32, zeros=8)
    linear = awq.read(tensors, "q")
    assert str(linear.scheme) == "int4_g32"
    same_columns(linear.layer(), weight)
    kept = awq.read(tensors, "q", symmetric=False)
    assert str(kept.scheme) == "int4_g32_asym"
    same_columns(kept.layer(), weight)


@pytest.mark.parametrize("zero", [0, 1, 15])
def test_zero_points_at_the_ends(rng, zero):
    tensors, weight = case(rng, 32, 8, 16, zeros=zero)
    same_columns(awq.read(tensors, "q").layer(), weight)


def test_a_bias_comes_along(rng):
    tensors, _ = case(rng, 32, 8, 16)
    bias = rng.standard_normal(8).astype(np.float16)
    layer = checkpoints.load_linear(tensors | {"q.bias": bias}, "q")
    assert layer.name == "q"
    np.testing.assert_array_equal(layer(np.zeros((1, 32), np.float32)).numpy()[0], bias.astype(np.float32))


REFUSALS = [
    ({"config": {"bits": 3}}, "found 3-bit codes"),
    ({"config": {"w_bit": 4, "version": "GEMV"}}, 'found the layout "gemv", expected "gemm"'),
    ({"group_size": 8}, "found 2 groups, expected 4 for 32 inputs and group_size 8"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSALS)
def test_refusals_name_the_layer_and_the_remedy(rng, arguments, message):
    tensors, _ = case(rng, 32, 8, 16)
    with pytest.raises(ClikaRTError, match=r"q \(AWQ\): " + message):
        awq.read(tensors, "q", **arguments)


def test_another_layout_is_refused_by_its_shape(rng):
    tensors, _ = case(rng, 32, 8, 16)
    tensors["q.qweight"] = tensors["q.qweight"].T.contiguous()
    with pytest.raises(
        ClikaRTError, match=r'qzeros: found .*|qweight: found int32\[1, 32\], expected \[1, 1\].*"gemm"'
    ):
        awq.read(tensors, "q")


def test_outputs_that_fill_no_word_are_refused(rng):
    tensors, _ = case(rng, 32, 8, 16)
    tensors["q.scales"] = tensors["q.scales"][:, :7].contiguous()
    with pytest.raises(ClikaRTError, match="scales: found 7 outputs, expected a multiple of 8"):
        awq.read(tensors, "q")
