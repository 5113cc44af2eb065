"""QLinear against int64 arithmetic in NumPy, and the life of its packed weight."""

import clika_runtime as cr
import numpy as np
import pytest
from clika_runtime import nn
from conftest import same_bits

INPUTS = {"int8": (np.int8, -128), "uint8": (np.uint8, 0)}


def random_parameters(rng, inputs, outputs, bias=True):
    """Scales are powers of two and biases short, so that float64 holds every sum exactly."""
    return {
        "weight": rng.integers(-128, 128, (outputs, inputs)).astype(np.int8),
        "weight_scale": (2.0 ** rng.integers(-6, 2, outputs)).astype(np.float32),
        "input_scale": np.full(1, 2.0**-4, np.float32),
        "input_zero_point": np.full(1, 7, np.int32),
    } | ({"bias": (rng.integers(-4000, 4000, outputs) / 64).astype(np.float32)} if bias else {})


def codes(rng, kind, *shape):
    dtype, low = INPUTS[kind]
    return rng.integers(low, low + 256, shape).astype(dtype)


def reference(x, parameters):
    """Rule 6 up to the activation: the integer sum rounded to float32 once, then one fma."""
    centered = x.astype(np.int64) - int(parameters["input_zero_point"][0])
    sums = (centered @ parameters["weight"].astype(np.int64).T).astype(np.float32).astype(np.float64)
    scale = (parameters["input_scale"] * parameters["weight_scale"]).astype(np.float64)
    return (sums * scale + parameters.get("bias", np.zeros(1)).astype(np.float64)).astype(np.float32)


def requantized(y, x, scale, zero_point):
    _, low = INPUTS[x.dtype.name]
    code = np.rint((y / np.float32(scale)).astype(np.float32)).astype(np.float64) + zero_point
    return np.clip(code, low, low + 255).astype(x.dtype)


@pytest.fixture(params=[1, 2], ids="{} threads".format)
def threads(request):
    before = cr.get_num_threads()
    cr.set_num_threads(request.param)
    yield request.param
    cr.set_num_threads(before)


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(1, 1, 1), (3, 17, 33), (40, 130, 70), (150, 1027, 600)])
def test_sums_are_exact(rng, threads, kind, rows, inputs, outputs):
    parameters = random_parameters(rng, inputs, outputs)
    layer = nn.QLinear(inputs, outputs).bind(**parameters)
    x = codes(rng, kind, rows, inputs)
    same_bits(layer(x), reference(x, parameters))
    # A row alone is that row of the batch.
    same_bits(layer(x[rows // 2 :][:1]), reference(x[rows // 2 :][:1], parameters))


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("zero_point", [-128, 0, 127, 255])
def test_outputs_are_requantized(rng, kind, zero_point):
    parameters = random_parameters(rng, 90, 40)
    quantization = {"output_scale": np.full(1, 37.0, np.float32), "output_zero_point": np.full(1, zero_point, np.int32)}
    layer = nn.QLinear(90, 40).bind(**parameters, **quantization)
    x = codes(rng, kind, 21, 90)
    y = layer(x)
    assert y.dtype == (cr.int8 if kind == "int8" else cr.uint8)
    assert np.array_equal(np.asarray(y), requantized(reference(x, parameters), x, 37.0, zero_point))


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("zero_point", [-128, 255])
def test_sums_go_on_beyond_32_bits(kind, zero_point):
    inputs = 70_000
    dtype, low = INPUTS[kind]
    parameters = {
        "weight": np.stack([np.full(inputs, 127, np.int8), np.full(inputs, -128, np.int8)]),
        "weight_scale": np.ones(2, np.float32),
        "input_scale": np.ones(1, np.float32),
        "input_zero_point": np.full(1, zero_point, np.int32),
    }
    layer = nn.QLinear(inputs, 2, bias=False).bind(**parameters)
    x = np.stack([np.full(inputs, low, dtype), np.full(inputs, low + 255, dtype)])
    same_bits(layer(x), reference(x, parameters))


@pytest.mark.parametrize("activation", ["relu", "reglu"])
def test_activations(rng, activation):
    parameters = random_parameters(rng, 50, 24, bias=activation == "relu")
    layer = nn.QLinear(50, 24, bias=activation == "relu", activation=activation).bind(**parameters)
    x = codes(rng, "uint8", 9, 50)
    sums = reference(x, parameters)
    if activation == "relu":
        same_bits(layer(x), np.maximum(sums, 0))
    else:
        same_bits(layer(x), np.maximum(sums[:, :12], 0) * sums[:, 12:])


def test_any_layout_of_the_input(rng):
    parameters = random_parameters(rng, 33, 20)
    layer = nn.QLinear(33, 20).bind(**parameters)
    wide = codes(rng, "int8", 4, 5, 66)
    for x in (wide[..., :33], wide[:, ::2, 33:], wide[::-1, :, 1:34], wide[..., ::2]):
        same_bits(layer(x), reference(x, parameters))


def test_the_pack_is_the_one_copy_of_the_weight(rng):
    parameters = random_parameters(rng, 130, 50)
    layer = nn.QLinear(130, 50).bind(**parameters)
    held = layer.weight
    x = codes(rng, "int8", 3, 130)
    y = layer(x)
    with pytest.raises(cr.ClikaRTError):
        held.numpy()
    assert (held.shape, held.dtype) == ((50, 130), cr.int8)
    assert np.array_equal(np.asarray(layer.weight), parameters["weight"])
    state = {name: tensor.numpy() for name, tensor in layer.state_dict().items()}
    same_bits(nn.QLinear(130, 50).bind(**state)(x), y)


def test_loading_after_the_first_forward(rng):
    layer = nn.QLinear(65, 31).bind(**random_parameters(rng, 65, 31))
    x = codes(rng, "uint8", 6, 65)
    layer(x)
    parameters = random_parameters(rng, 65, 31)
    layer.load_state_dict(parameters)
    same_bits(layer(x), reference(x, parameters))
    # One parameter alone keeps the others, the packed weight included.
    layer.load_state_dict({"input_zero_point": np.full(1, -9, np.int32)}, strict=False)
    parameters["input_zero_point"][0] = -9
    same_bits(layer(x), reference(x, parameters))


def test_a_generated_kernel_serves_it(rng):
    layer = nn.QLinear(64, 32).bind(**random_parameters(rng, 64, 32))
    layer(codes(rng, "int8", 2, 64))
    if cr.cpu_info()["isa"] not in ("baseline", "sse4"):
        assert "emitter xbyak" in layer.explain()


def test_groups_take_no_quantized_input(rng):
    parts = [nn.QLinear(64, 5).bind(**random_parameters(rng, 64, 5)) for _ in range(2)]
    with pytest.raises(TypeError):
        nn.fuse_linears(*parts)
    with pytest.raises(TypeError):
        nn.fuse_convs(*parts)
    # Refused, and served as before.
    x = codes(rng, "int8", 2, 64)
    assert parts[0](x).shape == (2, 5)
