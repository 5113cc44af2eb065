"""Field cases, area (c): quantized weights; and C094, the switch between exact and fast."""

import clika_runtime
import numpy as np
import oracles
import pytest
from clika_runtime import nn
from oracles import assert_close_linear, randn, same_bits, same_everywhere

COMPUTES = ("float", "int8")
FORMS = ["int4", "int4_asym", "int8", "int8_asym"]


def scheme_of(form: str, group_size: int, scale_dtype=clika_runtime.float32) -> nn.QuantScheme:
    return nn.QuantScheme(4 if form.startswith("int4") else 8, "asym" not in form, group_size, scale_dtype)


def pack_nibbles(codes: np.ndarray, unused: int = 0) -> np.ndarray:
    """Two codes a byte, the even one in the low nibble; `unused` fills the last byte of odd rows."""
    if codes.shape[1] % 2:
        codes = np.pad(codes, ((0, 0), (0, 1)), constant_values=unused)
    return (codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8)


class Quantized:
    """A weight as integer values `codes`, with scales and zero points [out, groups], and layers that hold it.

    The values of a symmetric 4-bit form are -8 to 7, and 8 is added to store them.
    """

    def __init__(self, form, group_size, codes, scales, zero_points=None, bias=None, scale_dtype=clika_runtime.float32):
        self.scheme = scheme_of(form, group_size, scale_dtype)
        self.codes = np.asarray(codes, np.int64)
        self.scales = np.asarray(scales)
        self.zero_points = None if zero_points is None else np.asarray(zero_points, np.int64)
        self.bias = bias

    @property
    def groups(self):
        depth = self.codes.shape[1]
        return np.arange(depth) // (depth if self.scheme.group_size < 0 else self.scheme.group_size)

    @property
    def weight(self):
        """[out, in] float64."""
        values = self.codes if self.zero_points is None else self.codes - self.zero_points[:, self.groups]
        return self.scales.astype(np.float64)[:, self.groups] * values

    def tensors(self, unused: int = 0):
        if self.scheme.bits == 4:
            codes = pack_nibbles(self.codes + (8 if self.scheme.symmetric else 0), unused)
        else:
            codes = self.codes.astype(np.int8 if self.scheme.symmetric else np.uint8)
        tensors = {"weight": codes, "weight_scale": self.scales.astype(np.float32), "bias": self.bias}
        if self.zero_points is not None:
            tensors["weight_zero_point"] = self.zero_points.astype(np.uint8)
        return {name: tensor for name, tensor in tensors.items() if tensor is not None}

    def layer(self, residency="packed", compute="float", unused=0, **more):
        outputs, inputs = self.codes.shape
        layer = nn.QLinearWoQ(
            inputs, outputs, self.bias is not None, scheme=self.scheme, residency=residency, compute=compute
        )
        return layer.bind(**self.tensors(unused), **more)

    def run(self, x, compute="float"):
        """The output, which is the same everywhere."""
        return same_everywhere(lambda residency: self.layer(residency, compute), x)


def random_quantized(form, rows, depth, group_size, seed=0, bias=None) -> Quantized:
    rng = np.random.default_rng(seed)
    scheme = scheme_of(form, group_size)
    groups = 1 if group_size < 0 else -(-depth // group_size)
    low = 0 if not scheme.symmetric else -(2 ** (scheme.bits - 1))
    codes = rng.integers(low, low + 2**scheme.bits, (rows, depth))
    scales = 2.0 ** rng.integers(-3, 4, (rows, groups)) * rng.choice([1.0, 1.25], (rows, groups))
    zero_points = None if scheme.symmetric else rng.integers(0, 2**scheme.bits, (rows, groups))
    return Quantized(form, group_size, codes, scales, zero_points, bias)


def int8_error(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """What rounding each row of x to 127 steps a side may do to the output."""
    steps = np.abs(x).max(axis=-1, keepdims=True).astype(np.float64) / 127
    exact = (np.abs(x).astype(np.float64) @ np.abs(weight).T) * (x.shape[-1] + 16) * oracles.EPS
    return steps / 2 * np.abs(weight).sum(axis=1) * (1 + 1e-5) + exact


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("depth", "size"), [(40, 32), (33, 32), (65, 32), (96, 32), (144, 48), (80, 64), (7, 3)])
def test_c027_the_last_group_may_be_short(form, depth, size):
    quantized = random_quantized(form, 3, depth, size)
    y = quantized.run(np.eye(depth, dtype=np.float32))
    assert np.array_equal(y.T, quantized.weight)  # every column of the weight, exactly
    x = np.random.default_rng(1).integers(-4, 5, (4, depth)).astype(np.float32)
    assert np.array_equal(quantized.run(x), x.astype(np.float64) @ quantized.weight.T)
    y = quantized.run(x, compute="int8")
    assert (np.abs(y - x.astype(np.float64) @ quantized.weight.T) <= int8_error(x, quantized.weight)).all()


def test_c027_scales_of_1_and_10():
    codes = np.arange(120).reshape(3, 40) % 15 - 7
    quantized = Quantized("int4", 32, codes, [[1, 10], [10, 1], [1, 10]])
    y = quantized.run(np.eye(40, dtype=np.float32))
    for k in (0, 31, 32, 39):
        assert np.array_equal(y[k], codes[:, k] * np.array([1, 10, 1] if k < 32 else [10, 1, 10]))


@pytest.mark.parametrize("compute", COMPUTES)
@pytest.mark.parametrize(("form", "zero_point"), [
    ("int4_asym", 0), ("int4_asym", 1), ("int4_asym", 8), ("int4_asym", 15),
    ("int8_asym", 0), ("int8_asym", 1), ("int8_asym", 128), ("int8_asym", 255),
])  # fmt: skip
def test_c031_zero_points_at_the_ends(form, zero_point, compute):
    top = 15 if form.startswith("int4") else 255
    codes = np.array([[0, top, 0, top, 1, top - 1], [top] * 6, [0] * 6])
    quantized = Quantized(form, 2, codes, np.full((3, 3), 0.5), np.full((3, 3), zero_point))
    # 127 is one step of an int8 row, so the codes of x are exact too.
    y = quantized.run(127 * np.eye(6, dtype=np.float32), compute)
    assert np.array_equal(y.T, 127 * quantized.weight)
    assert quantized.weight[1, 0] == 0.5 * (top - zero_point)
    assert quantized.weight[2, 0] == -0.5 * zero_point


@pytest.mark.parametrize("bad", [
    np.full((2, 2), 16, np.uint8), np.array([[0, 1], [2, 255]], np.uint8), np.full((2, 2), -1, np.int8),
    np.full((2, 2), 7.5, np.float32), np.full((2, 2), 8, np.int32),
], ids=["16", "255", "-1", "7.5", "int32"])  # fmt: skip
def test_c031_other_zero_points_are_refused(bad):
    quantized = random_quantized("int4_asym", 2, 8, 4)
    layer = nn.QLinearWoQ(8, 2, False, scheme=quantized.scheme, name="gate")
    with pytest.raises(clika_runtime.ClikaRTError, match=r"weight_zero_point: .*'gate'"):
        layer.bind(**{**quantized.tensors(), "weight_zero_point": bad})
    assert layer.state == "unbound"
    # Where the scheme has none, a zero point is not dropped in silence.
    symmetric = nn.QLinearWoQ(8, 2, False, scheme="int8")
    with pytest.raises(clika_runtime.ClikaRTError, match="weight_zero_point"):
        symmetric.load_state_dict({
            "weight": np.ones((2, 8), np.int8),
            "weight_scale": np.ones((2, 1), np.float16),
            "weight_zero_point": np.zeros((2, 1), np.int8),
        })  # fmt: skip


@pytest.mark.parametrize("compute", COMPUTES)
@pytest.mark.parametrize("form", FORMS)
def test_c032_a_scale_of_zero_and_scales_that_are_tiny_or_negative(form, compute):
    x = randn(5, 24) * np.float32(1e30)
    quantized = random_quantized(form, 6, 24, 8)
    quantized.scales[:, 1] = [0, -0.0, 0, 1e-40, -2, 1e-38]
    y = quantized.run(x, compute)
    reference = x.astype(np.float64) @ quantized.weight.T
    bound = np.abs(x).astype(np.float64) @ np.abs(quantized.weight).T * (24 + 16) * oracles.EPS
    if compute == "int8":
        bound = int8_error(x, quantized.weight)
    assert np.isfinite(y).all()
    assert (np.abs(y - reference) <= bound).all()
    # A group of scale 0 alone: exactly zero.
    quantized.scales[:] = 0
    assert not quantized.run(x, compute).any()


@pytest.mark.parametrize("compute", COMPUTES)
@pytest.mark.parametrize("form", FORMS)
def test_c032_a_bad_scale_stays_in_its_output(form, compute):
    x = randn(4, 24)
    quantized = random_quantized(form, 37, 24, 8, bias=randn(37))
    clean = quantized.run(x, compute)
    quantized.scales[5, 1], quantized.scales[18, 0], quantized.scales[36, 2] = np.inf, np.nan, -np.inf
    y = quantized.run(x, compute)
    bad = [5, 18, 36]
    assert not np.isfinite(y[:, bad]).any()
    assert same_bits(np.delete(y, bad, axis=1), np.delete(clean, bad, axis=1))


@pytest.mark.parametrize("scheme", ["int4_g16", "int4_g16_asym", "int8_asym", "nf4_g16", "mxfp4", "nvfp4", "fp8_e4m3"])
def test_c032_quantizing_unusual_groups(scheme):
    weight = np.zeros((5, 64), np.float32)
    weight[1], weight[2], weight[3] = 1e-30, 0.7, np.where(np.arange(64) % 2, -3, 2)
    weight[4, 32:] = randn(32)  # groups of zeros beside others
    layer = nn.QLinearWoQ.quantize(oracles.bound_linear(weight), scheme)
    assert np.isfinite(np.asarray(layer.weight_scale).astype(np.float32)).all()
    y = np.asarray(layer(np.eye(64, dtype=np.float32)))
    assert np.isfinite(y).all()
    assert not y[:, 0].any()
    assert np.abs(y[:, 1]).max() < 1e-3
    assert np.abs(y.T - weight)[2:4].max() <= 0.7


@pytest.mark.parametrize("compute", COMPUTES)
@pytest.mark.parametrize("form", FORMS)
def test_c033_rows_of_zeros_and_other_hard_rows(form, compute):
    quantized = random_quantized(form, 19, 40, 16, bias=randn(19))
    x = np.stack([randn(40, seed=i) for i in range(7)])
    x[0], x[1], x[2], x[3] = 0, -0.0, 1e-38, 0
    x[3, 17] = 1e-44
    x[4, 3], x[5, 39] = np.inf, np.nan
    y = quantized.run(x, compute)
    assert np.array_equal(y[0], quantized.bias)
    assert np.array_equal(y[1], quantized.bias)
    assert np.isfinite(y[2:4]).all()
    assert np.allclose(y[2:4], quantized.bias)
    assert not np.isfinite(y[4:6]).any()
    for row in range(7):
        assert same_bits(quantized.run(x[row : row + 1], compute)[0], y[row])


@pytest.mark.parametrize("compute", COMPUTES)
@pytest.mark.parametrize(("form", "codes", "zero_point", "scale", "expected"), [
    ("int8", [127], None, 1 / 127, 64), ("int8", [-127], None, 1 / 127, -64), ("int8", [-128], None, 1 / 128, -64),
    ("int8", [127, -127], None, 1 / 127, 0), ("int8_asym", [255], 0, 1 / 255, 64),
    ("int8_asym", [0], 255, 1 / 255, -64), ("int4", [7], None, 1 / 7, 64), ("int4", [-8], None, 1 / 8, -64),
    ("int4_asym", [15], 0, 1 / 15, 64), ("int4_asym", [0], 15, 1 / 15, -64),
])  # fmt: skip
def test_c034_nothing_saturates_on_the_way(form, codes, zero_point, scale, expected, compute):
    codes = np.resize(codes, (20, 64))
    zero_points = None if zero_point is None else np.full((20, 1), zero_point)
    quantized = Quantized(form, -1, codes, np.full((20, 1), scale, np.float32), zero_points)
    first = None
    for rows in (1, 2, 3, 16):
        for sign in (1, -1):
            y = quantized.run(np.full((rows, 64), sign, np.float32), compute)
            assert np.abs(y - sign * expected).max() <= 1e-4
            first = y[0] if first is None else first
            assert np.array_equal(y * sign, np.tile(first, (rows, 1)))


@pytest.mark.parametrize("form", ["int4", "int4_asym"])
@pytest.mark.parametrize("depth", [16, 17])
def test_c036_the_order_of_nibbles(form, depth):
    stored = (np.arange(depth) + np.arange(2)[:, None]) % 16
    zero_points = None if form == "int4" else np.full((2, 1), 8)
    quantized = Quantized(form, -1, stored - 8 if form == "int4" else stored, np.ones((2, 1)), zero_points)
    x = np.eye(depth, dtype=np.float32)
    y = quantized.run(x)
    assert np.array_equal(y.T, stored - 8)
    # An odd row's last nibble is nobody's: it changes nothing, and a state dict keeps it.
    for residency in oracles.RESIDENCIES:
        for unused in (0x0, 0xF):
            layer = quantized.layer(residency, unused=unused)
            assert same_bits(layer(x), y)
            again = nn.QLinearWoQ(depth, 2, False, scheme=quantized.scheme)
            again.load_state_dict(layer.state_dict())
            assert same_bits(again(x), y)
            for name, tensor in quantized.tensors(unused).items():
                assert same_bits(layer.state_dict()[name], tensor)
                assert same_bits(again.state_dict()[name], tensor)
    assert np.array_equal(quantized.tensors()["weight"][0, :2], [0x10, 0x32])


@pytest.mark.parametrize("compute", COMPUTES)
@pytest.mark.parametrize("form", FORMS)
def test_c037_activation_order(form, compute):
    order = np.array([3, 0, 1, 2, 0, 3, 2, 1], np.int32)
    zero_points = None if "asym" not in form else np.zeros((2, 4))
    quantized = Quantized(form, 2, np.ones((2, 8)), [[1, 10, 100, 1000], [4, 3, 2, 1]], zero_points)
    x = 127 * np.eye(8, dtype=np.float32)
    y = same_everywhere(lambda residency: quantized.layer(residency, compute, weight_g_idx=order), x)
    assert np.array_equal(y.T, 127 * quantized.scales[:, order])
    # The index that says nothing new is taken, and changes no bit.
    natural = np.arange(8, dtype=np.int32) // 2
    x = randn(3, 8)
    y = same_everywhere(lambda residency: quantized.layer(residency, compute, weight_g_idx=natural), x)
    assert same_bits(y, quantized.run(x, compute))


@pytest.mark.parametrize("order", [[3, 0, 1, 2, 0, 3, 2, 4], [3, 0, 1, -1, 0, 3, 2, 1], [0, 0, 1, 1, 2, 2, 3]])
def test_c037_an_index_that_fits_no_group_is_refused(order):
    quantized = random_quantized("int4", 2, 8, 2)
    layer = nn.QLinearWoQ(8, 2, False, scheme=quantized.scheme, name="down")
    state = {**quantized.tensors(), "weight_g_idx": np.array(order, np.int32)}
    for strict in (True, False):
        with pytest.raises(clika_runtime.ClikaRTError, match=r"weight_g_idx: .*'down'"):
            layer.load_state_dict(state, strict=strict)
    assert layer.state == "unbound"


def test_c037_is_kept_by_a_load_that_is_not_strict():
    quantized = Quantized("int8", 2, np.ones((1, 8)), [[1, 10, 100, 1000]])
    layer = nn.QLinearWoQ(8, 1, False, scheme=quantized.scheme)
    order = np.array([3, 0, 1, 2, 0, 3, 2, 1], np.int32)
    layer.load_state_dict({**quantized.tensors(), "weight_g_idx": order, "unknown": order}, strict=False)
    assert np.array_equal(np.asarray(layer(np.eye(8, dtype=np.float32)))[:, 0], quantized.scales[0, order])
    assert same_bits(layer.state_dict()["weight_g_idx"], order)


@pytest.mark.parametrize("compute", COMPUTES)
@pytest.mark.parametrize("form", FORMS)
def test_c038_one_group_a_row_is_a_group_of_all_inputs(form, compute):
    whole, marked = (random_quantized(form, 8, 256, size, seed=3) for size in (256, -1))
    x = randn(3, 256)
    assert np.array_equal(whole.weight, marked.weight)
    assert same_bits(marked.run(x, compute), whole.run(x, compute))


BUFFERS = {
    "scales of one axis": ("weight_scale", np.ones(8, np.float32), r"\[8, 1\]"),
    "scales turned": ("weight_scale", np.ones((1, 8), np.float32), r"\[8, 1\]"),
    "scales of too many groups": ("weight_scale", np.ones((8, 3), np.float32), r"\[8, 1\]"),
    "scales of integers": ("weight_scale", np.ones((8, 1), np.int32), "float32"),
    "codes a byte short": ("weight", np.zeros((8, 127), np.uint8), r"\[8, 128\]"),
    "codes of twice the inputs": ("weight", np.zeros((8, 256), np.uint8), r"\[8, 128\]"),
    "codes one row short": ("weight", np.zeros((7, 128), np.uint8), r"\[8, 128\]"),
    "signed codes": ("weight", np.zeros((8, 128), np.int8), "uint8"),
    "wide codes": ("weight", np.zeros((8, 128), np.int32), "uint8"),
    "a zero point missing": ("weight_zero_point", np.zeros((7, 1), np.uint8), r"\[8, 1\]"),
}


@pytest.mark.parametrize("case", BUFFERS)
def test_c038_buffers_that_do_not_fit_are_refused(case):
    name, tensor, expected = BUFFERS[case]
    quantized = random_quantized("int4_asym", 8, 256, -1)
    layer = nn.QLinearWoQ(256, 8, False, scheme=quantized.scheme, name="proj")
    for assign in (False, True):
        with pytest.raises(clika_runtime.ClikaRTError, match=f"{name}: .*'proj'.*expected .*{expected}"):
            layer.load_state_dict({**quantized.tensors(), name: tensor}, assign=assign)
        assert layer.state == "unbound"
    with pytest.raises((TypeError, clika_runtime.ClikaRTError), match="int64"):
        layer.bind(**{**quantized.tensors(), "weight": np.zeros((8, 128), np.int64)})
    layer.bind(**quantized.tensors())
    x = randn(2, 256)
    assert same_bits(layer(x), quantized.run(x))


@pytest.mark.parametrize("compute", COMPUTES)
def test_c039_sums_of_a_group_beyond_float16(compute):
    for depth in (128, 512):
        ones = np.full((18, -(-depth // 128)), 1e-3, np.float32)
        quantized = Quantized("int4_asym", 128, np.full((18, depth), 9), ones, np.full(ones.shape, 8))
        for dtype in (np.float32, np.float16):
            y = quantized.run(np.full((3, depth), 1000, dtype), compute)
            assert np.abs(y.astype(np.float64) - depth).max() <= depth * (1e-5 if dtype == np.float32 else 2.0**-11)


@pytest.mark.parametrize("compute", COMPUTES)
@pytest.mark.parametrize("sign", [1, -1])
def test_c039_long_sums_of_one_sign(compute, sign):
    cases = {
        ("int4_asym", 15, 0, 4096), ("int4", 7, None, 4096), ("int8", 127, None, 70000), ("int8", -128, None, 70000),
        ("int8_asym", 255, 0, 70000),
    }  # fmt: skip
    for form, code, zero_point, depth in cases:
        zero_points = None if zero_point is None else np.full((2, 1), zero_point)
        quantized = Quantized(form, -1, np.full((2, depth), code), np.ones((2, 1)), zero_points)
        x = np.full((2, depth), sign * 127, np.float32)
        y = quantized.run(x, compute)
        # All terms are integers: an int8 row gives the sum rounded once, float sums round as they grow.
        expected = float(sign * 127 * code * depth)
        tolerance = 0 if compute == "int8" else (depth + 16) * oracles.EPS * abs(expected)
        assert np.abs(y - np.float32(expected)).max() <= tolerance


@pytest.mark.parametrize("form", ["int4", "int4_asym"])
def test_c094_rounding_the_input_is_a_choice(form):
    rng = np.random.default_rng(0)
    codes = rng.integers(-8, 8, (48, 1024)) + (0 if form == "int4" else 8)
    zero_points = None if form == "int4" else np.full((48, 32), 8)
    quantized = Quantized(form, 32, codes, 0.01 + rng.random((48, 32), np.float32), zero_points)
    x = randn(4, 1024)
    x[:, [5, 300, 1000]] *= 1000
    reference = x.astype(np.float64) @ quantized.weight.T
    # As built, a layer sums floats: no outlier costs the other inputs their digits.
    default = quantized.run(x)
    assert_close_linear(default, x, quantized.weight)
    assert np.linalg.norm(default - reference) <= 2.0**-7 * np.linalg.norm(reference)
    fast = quantized.run(x, compute="int8")
    assert (np.abs(fast - reference) <= int8_error(x, quantized.weight)).all()
    assert np.linalg.norm(fast - reference) > 10 * np.linalg.norm(default - reference)


def test_c094_the_choice_shows():
    quantized = random_quantized("int4", 8, 64, 32)
    x = randn(1, 64)
    signatures = {}
    for compute in COMPUTES:
        layer = quantized.layer(compute=compute)
        with clika_runtime.count_dispatches() as counter:
            layer(x)
        (signatures[compute],) = counter.by_kernel
        assert layer.compute == compute
        assert signatures[compute] in layer.explain()
    assert quantized.layer().compute == "float"
    assert signatures["float"] != signatures["int8"]
    assert "compute='int8'" in repr(quantized.layer(compute="int8"))
    # One group computes in one way only.
    mixed = nn.fuse_linears(quantized.layer(), quantized.layer(compute="int8"))
    assert not mixed.fused
