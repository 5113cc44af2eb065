"""Field cases, area (b): odd shapes."""

import os
import subprocess
import sys
from pathlib import Path

import clika_runtime
import numpy as np
import oracles
import pytest
from clika_runtime import nn
from oracles import assert_close_conv, assert_close_linear, bound_conv, bound_linear, randn, same_bits

HERE = Path(__file__).resolve().parent
PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


def quantized(bits: int) -> nn.QLinearWoQ:
    """100 inputs, 37 outputs, groups of 32: the last one is short."""
    layer = nn.QLinearWoQ(100, 37, scheme=nn.QuantScheme(bits, True, 32, clika_runtime.float32))
    rng = np.random.default_rng(bits)
    codes = rng.integers(-8, 8, (37, 100), np.int8) if bits == 8 else rng.integers(0, 256, (37, 50), np.uint8)
    layer.bind(weight=codes, weight_scale=np.full((37, 4), 0.5, np.float32), bias=np.zeros(37, np.float32))
    return layer


def integer_linear() -> nn.QLinear:
    layer = nn.QLinear(100, 37)
    layer.bind(
        weight=np.ones((37, 100), np.int8),
        weight_scale=np.ones(37, np.float32),
        input_scale=np.ones(1, np.float32),
        input_zero_point=np.zeros(1, np.int8),
        bias=np.zeros(37, np.float32),
    )
    return layer


EMPTY_BATCHES = {
    "linear": (lambda: bound_linear(randn(37, 100)), (100,), (37,)),
    "one output": (lambda: bound_linear(randn(1, 100)), (100,), (1,)),
    "two leading axes": (lambda: bound_linear(randn(1, 100)), (0, 100), (0, 1)),
    "per_call": (lambda: bound_linear(randn(37, 100), residency="per_call"), (100,), (37,)),
    "int8": (lambda: quantized(8), (100,), (37,)),
    "int4": (lambda: quantized(4), (100,), (37,)),
    "conv1d": (lambda: bound_conv(randn(4, 3, 3)), (9, 3), (7, 4)),
    "conv2d": (lambda: bound_conv(randn(4, 3, 3, 3)), (9, 8, 3), (7, 6, 4)),
    "conv3d": (lambda: bound_conv(randn(4, 3, 3, 3, 3)), (5, 6, 7, 3), (3, 4, 5, 4)),
    "depthwise": (lambda: bound_conv(randn(3, 1, 3), groups=3), (9, 3), (7, 3)),
    "linear group": (lambda: nn.fuse_linears(bound_linear(randn(5, 9)), bound_linear(randn(3, 9))), (9,), (8,)),
    "gated group": (
        lambda: nn.fuse_linears(bound_linear(randn(5, 9)), bound_linear(randn(5, 9)), activation="swiglu"),
        (9,),
        (5,),
    ),
    "int4 group": (lambda: nn.fuse_linears(quantized(4), quantized(4)), (100,), (74,)),
    "conv group": (lambda: nn.fuse_convs(bound_conv(randn(5, 2, 3)), bound_conv(randn(3, 2, 3))), (9, 2), (7, 8)),
}


@pytest.mark.parametrize("kind", EMPTY_BATCHES)
def test_c013_zero_rows_as_the_first_call_and_later(kind):
    build, inputs, outputs = EMPTY_BATCHES[kind]
    layer, untouched = build(), build()
    rows = 2 if kind == "two leading axes" else 0
    empty = np.zeros((rows, *inputs), np.float32)
    full = randn(2, *(n or 3 for n in inputs))
    for _ in ("first", "after a warm call"):
        with clika_runtime.count_dispatches() as counter:
            y = layer(empty)
        assert tuple(y.shape) == (rows, *outputs)
        assert y.dtype == clika_runtime.float32
        assert counter.total == 0
        # What an empty batch leaves behind serves a full one.
        assert same_bits(layer(full), untouched(full))
    if "group" in kind and kind != "gated group":
        parts = clika_runtime.split_with_sizes(layer(empty), layer.split_sizes)
        assert [part.shape[-1] for part in parts] == list(layer.split_sizes)


def test_c013_zero_rows_of_quantized_input():
    layer = integer_linear()
    for _ in ("first", "after a warm call"):
        assert tuple(layer(np.zeros((0, 100), np.int8)).shape) == (0, 37)
        assert np.array_equal(np.asarray(layer(np.ones((2, 100), np.int8))), np.full((2, 37), 100, np.float32))


def test_c013_zero_rows_in_a_fresh_process():
    script = (
        f"import sys; sys.path.insert(0, {str(HERE)!r})\n"
        "import numpy as np, test_b_shapes as b\n"
        "for kind, (build, inputs, outputs) in b.EMPTY_BATCHES.items():\n"
        "    rows = 2 if kind == 'two leading axes' else 0\n"
        "    assert tuple(build()(np.zeros((rows, *inputs), np.float32)).shape) == (rows, *outputs), kind\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_c014_zero_inputs_give_the_bias():
    bias = np.array([-1, 0, 1, np.nan, 2], np.float32)
    x = np.zeros((3, 4, 0), np.float32)
    weight = np.zeros((5, 0), np.float32)
    for residency in oracles.RESIDENCIES:
        y = bound_linear(weight, bias, activation="relu", residency=residency)(x)
        expected = np.broadcast_to(np.array([0, 0, 1, np.nan, 2], np.float32), (3, 4, 5))
        assert np.array_equal(np.asarray(y), expected, equal_nan=True)
        assert np.array_equal(np.asarray(bound_linear(weight, residency=residency)(x)), np.zeros((3, 4, 5), np.float32))
    group = nn.fuse_linears(bound_linear(weight, bias), bound_linear(weight, bias))
    assert np.array_equal(np.asarray(group(x)), np.broadcast_to(np.tile(bias, 2), (3, 4, 10)), equal_nan=True)


def test_c014_zero_outputs_give_nothing():
    layer = bound_linear(np.zeros((0, 4), np.float32))
    assert tuple(layer(np.zeros((3, 4), np.float32)).shape) == (3, 0)
    group = nn.fuse_linears(bound_linear(np.zeros((0, 4), np.float32)), bound_linear(np.ones((2, 4), np.float32)))
    assert np.array_equal(np.asarray(group(np.ones((3, 4), np.float32))), np.full((3, 2), 4, np.float32))


@pytest.mark.parametrize("fused", [False, True], ids=["alone", "group"])
def test_c015_linear_input_of_a_wrong_rank_or_width(fused):
    def build(width):
        parts = [bound_linear(np.ones((2, width), np.float32), name=name) for name in ("left", "right")]
        return nn.fuse_linears(*parts, name="pair") if fused else parts[0]

    named = "pair|left|right" if fused else "left"
    with pytest.raises(ValueError, match=named):
        build(1)(np.float32(1).reshape(()))
    with pytest.raises(ValueError, match=rf"(?s)({named}).*5|5.*({named})"):
        build(3)(np.ones((2, 5), np.float32))
    # One axis is a row: [in] to [out].
    assert tuple(build(3)(np.ones(3, np.float32)).shape) == ((4,) if fused else (2,))


@pytest.mark.parametrize("mode", PADDING_MODES)
@pytest.mark.parametrize("fused", [False, True], ids=["alone", "group"])
def test_c015_conv_input_of_a_wrong_rank_or_layout(mode, fused):
    def build(weight):
        parts = [bound_conv(weight, padding=1, padding_mode=mode, name=name) for name in ("left", "right")]
        return nn.fuse_convs(*parts, name="pair") if fused else parts[0]

    named = "pair|left|right" if fused else "left"
    with pytest.raises(ValueError, match=named) as without_batch:
        build(randn(10, 1, 3, 3, 3))(np.zeros((10, 10, 10, 1), np.float32))
    assert "batch" in str(without_batch.value)
    assert "10, 10, 10, 1" in str(without_batch.value)
    with pytest.raises(ValueError, match=named) as channels_first:
        build(randn(4, 3, 3, 3))(np.zeros((1, 3, 28, 28), np.float32))
    assert "3, 28, 28" in str(channels_first.value)


def test_c017_a_kernel_larger_than_its_input_is_refused():
    grouped = bound_conv(randn(4, 3, 3, 3), kind=nn.Conv2d, groups=2, name="grouped")
    assert tuple(grouped(np.zeros((1, 3, 4, 6), np.float32)).shape) == (1, 1, 2, 4)
    for shape in ((1, 2, 2, 6), (1, 4, 2, 6), (1, 0, 4, 6)):
        with pytest.raises(ValueError, match="grouped") as refused:
            grouped(np.zeros(shape, np.float32))
        assert "3" in str(refused.value)
    assert tuple(grouped(np.zeros((1, 3, 3, 6), np.float32)).shape) == (1, 1, 1, 4)
    dilated = bound_conv(randn(2, 1, 3), kind=nn.Conv1d, dilation=4)
    with pytest.raises(ValueError, match="9"):
        dilated(np.zeros((1, 8, 1), np.float32))
    assert tuple(dilated(np.zeros((1, 9, 1), np.float32)).shape) == (1, 1, 2)
    group = nn.fuse_convs(*(bound_conv(randn(2, 1, 3), dilation=4) for _ in range(2)))
    with pytest.raises(ValueError, match="9"):
        group(np.zeros((1, 8, 1), np.float32))
    assert tuple(group(np.zeros((1, 9, 1), np.float32)).shape) == (1, 1, 4)


SAME = [
    ((3, 5), (2, 3), ((2, 2), (6, 6))),
    ((2, 4), (1, 3), ((0, 1), (4, 5))),
    ((2,), (1,), ((0, 1),)),
    ((3, 2, 1), (1, 2, 4), ((1, 1), (1, 1), (0, 0))),
]


@pytest.mark.parametrize("mode", PADDING_MODES)
@pytest.mark.parametrize(("kernel", "dilation", "pads"), SAME)
def test_c018_same_padding_with_even_kernels_and_dilation(kernel, dilation, pads, mode):
    spatial = {1: (13,), 2: (28, 31), 3: (6, 7, 5)}[len(kernel)]
    x, weight, bias = randn(2, *spatial, 3), randn(8, 3, *kernel), randn(8)
    layer = bound_conv(weight, bias, dilation=dilation, padding="same", padding_mode=mode)
    y = np.asarray(layer(x))
    assert y.shape == (2, *spatial, 8)
    assert_close_conv(y, x, weight, bias, dilation=dilation, pads=pads, mode=mode)
    assert same_bits(y, bound_conv(weight, bias, dilation=dilation, padding=pads, padding_mode=mode)(x))


def test_c018_same_padding_with_a_stride_is_refused():
    with pytest.raises((ValueError, clika_runtime.ClikaRTError), match="same"):
        nn.Conv2d(3, 8, 3, stride=2, padding="same")


def check_padding(x, weight, pad: int, mode: str, *, limit: int | None = None, dilation: int = 1) -> None:
    """The result is NumPy's; with a `limit`, the padding is refused instead and the message has both numbers."""
    layer = bound_conv(weight, padding=pad, dilation=dilation, padding_mode=mode, name="padded")
    if limit is None:
        pads = ((pad, pad),) * (weight.ndim - 2)
        assert_close_conv(layer(x), x, weight, pads=pads, mode=mode, dilation=dilation)
        return
    with pytest.raises(ValueError, match="padded") as refused:
        layer(x)
    assert str(pad) in str(refused.value)
    assert str(limit) in str(refused.value)


def test_c020_limits_of_the_padding_modes():
    x, weight = randn(1, 10, 10, 1), randn(1, 1, 3, 3)
    # A circle may be walked more than once; a reflection ends at the far edge, as in PyTorch.
    check_padding(x, weight, 15, "circular", dilation=15)
    check_padding(x, weight, 33, "circular")
    check_padding(x, weight, 10, "circular")
    check_padding(x, weight, 9, "reflect")
    check_padding(x, weight, 10, "reflect", limit=10)
    check_padding(x, weight, 50, "replicate")
    thin = randn(1, 1, 1)
    check_padding(randn(1, 1, 1), thin, 0, "reflect")
    check_padding(randn(1, 1, 1), thin, 1, "reflect", limit=1)
    for mode in ("circular", "reflect", "replicate"):
        with pytest.raises(ValueError, match="empty"):
            bound_conv(thin, padding=1, padding_mode=mode, name="empty")(np.zeros((1, 0, 1), np.float32))


def largest_code() -> int:
    return max((entry["code_bytes"] for entry in clika_runtime.kernels.list()), default=0)


@pytest.mark.parametrize("mode", ["zeros", "reflect"])
def test_c023_very_large_kernels(mode):
    x, weight, bias = randn(2, 4096, 1), randn(40, 1, 769), randn(40)
    y = bound_conv(weight, bias, stride=64, padding=384, padding_mode=mode)(x)
    assert tuple(y.shape) == (2, 64, 40)
    assert_close_conv(y, x, weight, bias, stride=64, pads=((384, 384),), mode=mode)
    x, weight = randn(1, 2, 1030, 3), randn(8, 3, 1, 1025)
    assert_close_conv(bound_conv(weight)(x), x, weight)
    assert largest_code() < 64 * 1024


def test_c023_groups_of_64():
    x = randn(3, 24)
    weights = [randn(1 + i % 5, 24, seed=i) for i in range(64)]
    group = nn.fuse_linears(*map(bound_linear, weights))
    with clika_runtime.count_dispatches() as counter:
        y = np.asarray(group(x))
    assert counter.total == 1
    assert_close_linear(y, x, np.concatenate(weights))
    assert same_bits(y, np.concatenate([np.asarray(bound_linear(w)(x)) for w in weights], axis=-1))
    assert largest_code() < 64 * 1024


def test_c024_the_epilogue_reaches_every_channel_group():
    layer = bound_conv(
        np.zeros((8, 2, 3, 3), np.float32), np.full(8, -1, np.float32), kind=nn.Conv2d, groups=4, activation="relu"
    )
    for _ in oracles.thread_counts():
        assert not np.asarray(layer(randn(2, 6, 5, 8))).any()


@pytest.mark.parametrize(("inputs", "outputs", "groups"), [
    (5, 10, 5), (3, 3, 3), (9, 9, 3), (15, 6, 3), (18, 18, 2), (34, 34, 2), (17, 17, 17), (20, 60, 4),
])  # fmt: skip
def test_c024_grouped_convolutions(inputs, outputs, groups):
    x, weight, bias = randn(2, 7, 6, inputs), randn(outputs, inputs // groups, 3, 3), randn(outputs)
    layer = bound_conv(weight, bias, kind=nn.Conv2d, groups=groups, padding=1)
    first = np.asarray(layer(x))
    assert_close_conv(first, x, weight, bias, pads=((1, 1), (1, 1)), groups=groups)
    for _ in oracles.thread_counts():
        assert same_bits(layer(x), first)


@pytest.mark.parametrize(("inputs", "outputs", "groups"), [(3, 7, 3), (7, 3, 3), (4, 4, 0)])
def test_c024_channels_that_do_not_divide_are_refused(inputs, outputs, groups):
    with pytest.raises(ValueError, match=str(groups)) as refused:
        nn.Conv2d(inputs, outputs, 3, groups=groups)
    if groups:
        assert "7" in str(refused.value)


@pytest.mark.parametrize("side", ["after", "before"])
@pytest.mark.parametrize("emitter", ["auto", "portable"])
def test_c025_no_read_outside_a_buffer(side, emitter):
    # A crash must not take the other tests with it.
    done = subprocess.run(
        [sys.executable, str(HERE / "guarded.py"), side], capture_output=True, text=True,
        env={**os.environ, "CLIKART_EMITTER": emitter},
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-500:]}\n{done.stderr[-3000:]}"
