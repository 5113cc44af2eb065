"""Field cases, area (g): Python interop."""

import gc
import importlib
import os
import subprocess
import sys
import threading
import weakref

import clika_runtime
import ml_dtypes
import numpy as np
import oracles
import pytest
from clika_runtime import Tensor, nn
from dlpack_capsules import BFLOAT, CUDA, INT, Layout, Producer
from oracles import bound_conv, bound_linear, randn, same_bits


def run_python(script: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **environment})


def misaligned(array: np.ndarray, by: int) -> np.ndarray:
    buffer = bytearray(by) + bytearray(np.ascontiguousarray(array).tobytes())
    return np.frombuffer(buffer, array.dtype, array.size, by).reshape(array.shape)


def layouts(array: np.ndarray, tmp_path) -> dict[str, np.ndarray]:
    """One logical array in many memory layouts."""
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    wide[..., ::2] = array
    mapped = np.memmap(tmp_path / "mapped", array.dtype, "w+", shape=array.shape)
    mapped[...] = array
    first = array.ndim // 3
    last = np.ascontiguousarray(array[..., ::-1])
    padded = np.zeros((*array.shape[:-1], array.shape[-1] + 3), array.dtype)
    padded[..., 1:-2] = array
    return {
        "transposed twice": array.T.copy().T,
        "Fortran order": np.asfortranarray(array),
        "rows reversed": np.ascontiguousarray(array[::-1])[::-1],
        "columns reversed": last[..., ::-1],
        "every other column": wide[..., ::2],
        "channels first": np.moveaxis(np.ascontiguousarray(np.moveaxis(array, -1, first)), first, -1),
        "inside a wider array": padded[..., 1:-2],
        "one byte off": misaligned(array, 1),
        "two bytes off": misaligned(array, 2),
        "three bytes off": misaligned(array, 3),
        "memory-mapped": mapped,
    }


SPECIAL = {
    "stride 0": lambda: np.broadcast_to(randn(1, 24), (6, 24)),
    "overlapping": lambda: np.lib.stride_tricks.as_strided(randn(64), (6, 24), (4 * 5, 4)),
    "one row": lambda: np.asfortranarray(randn(1, 24)),
    "one row, reversed": lambda: randn(1, 24)[::-1],
    "stride 0 in the last axis": lambda: np.broadcast_to(randn(6, 1), (6, 24)),
}


def test_c076_input_layouts_of_a_linear(tmp_path):
    x = randn(6, 24)
    layers = {r: bound_linear(randn(16, 24, seed=1), randn(16), residency=r) for r in oracles.RESIDENCIES}
    variants = {**layouts(x, tmp_path), **{name: make() for name, make in SPECIAL.items()}}
    for name, variant in variants.items():
        plain = np.ascontiguousarray(variant)
        before = plain.copy()
        for layer in layers.values():
            assert same_bits(layer(variant), layer(plain)), name
            assert same_bits(layer(Tensor.from_data(variant)), layer(plain)), name
        assert same_bits(np.ascontiguousarray(variant), before), name


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_c076_input_layouts_in_half_precision(tmp_path, dtype):
    x = randn(6, 24).astype(dtype)
    layer = bound_linear(randn(16, 24, seed=1))
    expected = np.asarray(layer(x))
    for name, variant in layouts(x, tmp_path).items():
        assert same_bits(layer(variant), expected), name


def test_c076_input_layouts_of_a_convolution(tmp_path):
    x = randn(2, 7, 6, 3)
    layer = bound_conv(randn(8, 3, 3, 3, seed=1), randn(8), kind=nn.Conv2d)
    expected = np.asarray(layer(x))
    for name, variant in layouts(x, tmp_path).items():
        assert np.array_equal(variant, x), name
        assert same_bits(layer(variant), expected), name


@pytest.mark.parametrize("assign", [False, True], ids=["copied", "assigned"])
@pytest.mark.parametrize("residency", oracles.RESIDENCIES)
def test_c076_weight_layouts(tmp_path, residency, assign):
    x, weight, bias = randn(3, 24), randn(16, 24, seed=1), randn(16, seed=2)
    expected = np.asarray(bound_linear(weight, bias)(x))
    wide = np.zeros(32, np.float32)
    wide[::2] = bias
    biases = {"plain": bias, "every other": wide[::2], "reversed": bias[::-1].copy()[::-1], "off": misaligned(bias, 1)}
    for name, variant in layouts(weight, tmp_path).items():
        for bias_name, bias_variant in biases.items():
            layer = nn.Linear(24, 16, residency=residency)
            layer.load_state_dict({"weight": variant, "bias": bias_variant}, assign=assign)
            assert same_bits(layer(x), expected), (name, bias_name)
            assert same_bits(layer.weight, weight), (name, bias_name)


def test_c076_quantized_parameter_layouts(tmp_path):
    rng = np.random.default_rng(0)
    x = randn(3, 64)
    tensors = {
        "weight": rng.integers(0, 256, (5, 32), np.uint8),
        "weight_scale": rng.random((5, 2), np.float32),
        "weight_zero_point": rng.integers(0, 16, (5, 2), np.uint8),
        "bias": randn(5),
    }

    def build(state):
        layer = nn.QLinearWoQ(64, 5, scheme=nn.QuantScheme(4, False, 32, clika_runtime.float32))
        layer.load_state_dict(state)
        return np.asarray(layer(x))

    expected = build(tensors)
    for parameter in ("weight", "weight_scale", "weight_zero_point"):
        for name, variant in layouts(tensors[parameter], tmp_path).items():
            assert same_bits(build({**tensors, parameter: variant}), expected), (parameter, name)


def test_c076_foreign_byte_order_is_refused():
    swapped = randn(2, 24).astype(">f4")
    with pytest.raises((TypeError, ValueError)):
        Tensor.from_data(swapped)
    with pytest.raises((TypeError, ValueError)):
        bound_linear(randn(16, 24))(swapped)


def test_c078_read_only_inputs_and_weights(tmp_path):
    x, weight = randn(3, 24), randn(16, 24, seed=1)
    expected = np.asarray(bound_linear(weight)(x))
    np.save(tmp_path / "x.npy", x)
    frozen = x.copy()
    frozen.flags.writeable = False
    sources = {
        "flag": frozen,
        "bytes": np.frombuffer(x.tobytes(), np.float32).reshape(3, 24),
        "mapped": np.load(tmp_path / "x.npy", mmap_mode="r"),
    }
    for name, source in sources.items():
        y = np.asarray(bound_linear(weight)(source))
        assert same_bits(y, expected), name
        assert y.flags.writeable
        y[...] = 0  # the output is the caller's own
        assert same_bits(np.asarray(source), x), name
    frozen_weight = weight.copy()
    frozen_weight.flags.writeable = False
    layer = nn.Linear(24, 16, False)
    layer.load_state_dict({"weight": frozen_weight}, assign=True)
    assert same_bits(layer(x), expected)
    # What was read-only does not come back writable.
    shared = np.asarray(Tensor.from_data(frozen))
    assert not shared.flags.writeable or not np.shares_memory(shared, frozen)


def test_c078_dlpack_from_numpy_and_back():
    for x in (randn(3, 24), randn(3, 48)[:, ::2], randn(0, 24), randn(24), np.float32(3).reshape(())):
        tensor = Tensor.from_data(x)
        assert same_bits(np.from_dlpack(tensor), x)
        assert same_bits(Tensor.from_data(tensor), x)
        assert tensor.__dlpack_device__() == (1, 0)


ACCEPTED = {
    "null strides": (Layout(), lambda a: a),
    "strides": (Layout(shape=(4, 3), strides=(1, 4)), lambda a: a.reshape(3, 4).T),
    "byte offset": (Layout(shape=(2, 3), byte_offset=8), lambda a: a.ravel()[2:8].reshape(2, 3)),
    "an empty axis": (Layout(shape=(0, 12)), lambda a: np.zeros((0, 12), np.float32)),
    "no axes": (Layout(shape=()), lambda a: a.ravel()[0].reshape(())),
    "bfloat16": (
        Layout(code=BFLOAT, bits=16, shape=(4, 6)),
        lambda a: a.view(np.uint16).view(ml_dtypes.bfloat16).reshape(4, 6),
    ),
    "int32": (Layout(code=INT), lambda a: a.view(np.int32)),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_c078_capsules_that_are_served(case):
    layout, view = ACCEPTED[case]
    array = randn(2, 6)
    producer = Producer(array, layout)
    tensor = Tensor.from_data(producer)
    assert same_bits(tensor, view(array))
    assert producer.deleted == 0
    view_of_tensor = tensor.numpy()
    del tensor
    gc.collect()
    assert same_bits(view_of_tensor, view(array))
    assert producer.deleted == 0
    del view_of_tensor
    gc.collect()
    assert producer.deleted == 1


REFUSED = {
    "another device": Layout(device=CUDA),
    "vector lanes": Layout(lanes=4),
    "a float of 24 bits": Layout(bits=24),
    "an unknown type code": Layout(code=77),
    "a negative extent": Layout(shape=(-1, 6)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_c078_capsules_that_are_refused(case):
    producer = Producer(randn(2, 6), REFUSED[case])
    with pytest.raises((BufferError, ValueError, TypeError)):
        Tensor.from_data(producer)
    gc.collect()
    assert producer.deleted <= 1
    assert Producer(randn(2, 6)).deleted == 0


def test_c078_a_capsule_is_consumed_once():
    producer = Producer(randn(2, 6))
    capsule = producer.capsule()

    class Twice:
        def __dlpack__(self, **_options):
            return capsule

        def __dlpack_device__(self):
            return (1, 0)

    first = Tensor.from_data(Twice())
    with pytest.raises((BufferError, ValueError, TypeError)):
        Tensor.from_data(Twice())
    assert same_bits(first, producer.array)
    del first
    gc.collect()
    assert producer.deleted == 1


def test_c078_an_export_that_nobody_takes_frees_its_memory():
    array = randn(3, 4)
    tensor = Tensor.from_data(array)
    capsule = tensor.__dlpack__()
    watched = weakref.ref(array)
    del tensor, array
    gc.collect()
    assert watched() is not None
    del capsule
    gc.collect()
    assert watched() is None


def churn() -> None:
    """Overwrites what was freed."""
    gc.collect()
    for size in (64, 1024, 65536, 1 << 20):
        blocks = [np.full(size, np.nan, np.float32) for _ in range(16)]
        del blocks


@pytest.mark.parametrize("residency", oracles.RESIDENCIES)
def test_c080_views_keep_their_memory(residency):
    def make(seed=0):
        return bound_linear(randn(16, 24, seed=seed), randn(16, seed=seed), residency=residency)

    x = randn(3, 24)
    expected = randn(16, 24)
    views = {"of a temporary": np.asarray(make().state_dict()["weight"])}
    views["a slice"] = np.asarray(make().state_dict()["weight"][2:5])
    layer = make()
    layer(x)
    views["packed"] = layer.weight.numpy()
    left, right = make(), make(1)
    group = nn.fuse_linears(left, right)
    group(x)
    views["of a part"] = left.weight.numpy()
    before = left.state_dict()["weight"].numpy()
    del group
    churn()
    views["after the group"] = before
    left.load_state_dict({"weight": randn(16, 24, seed=5), "bias": randn(16)})
    churn()
    views["after a load"] = before
    del left, right, layer
    churn()
    for name, view in views.items():
        want = expected[2:5] if name == "a slice" else expected
        assert same_bits(view, want), name


def test_c080_outputs_never_change():
    layer = bound_linear(randn(16, 24))
    outputs = [(np.asarray(layer(x)), np.array(layer(x))) for x in (randn(4, 24, seed=i) for i in range(20))]
    churn()
    del layer
    churn()
    for kept, copied in outputs:
        assert same_bits(kept, copied)


@pytest.mark.parametrize("assign", [False, True], ids=["copied", "assigned"])
@pytest.mark.parametrize("residency", oracles.RESIDENCIES)
def test_c081_weights_from_temporaries(residency, assign):
    x = randn(3, 24)
    expected = np.asarray(bound_linear(randn(16, 24))(x))
    weight = randn(16, 24)
    watched = weakref.ref(weight)
    layer = nn.Linear(24, 16, False, residency=residency)
    layer.load_state_dict({"weight": weight}, assign=assign)
    del weight
    churn()
    assert (watched() is not None) == assign
    for _ in range(2):
        assert same_bits(layer(x), expected)
        churn()
    if assign:
        # A pack replaces the given memory; per_call works on it for as long as the layer lives.
        assert (watched() is None) == (residency == "packed")
    del layer
    gc.collect()
    assert watched() is None


def test_c081_a_copied_weight_ignores_later_edits():
    x, weight = randn(3, 24), randn(16, 24)
    layer = nn.Linear(24, 16, False, residency="per_call")
    layer.load_state_dict({"weight": weight})
    expected = np.asarray(layer(x))
    weight[...] = 0
    assert same_bits(layer(x), expected)


def test_c081_an_input_dropped_by_another_thread_is_pinned():
    layer = bound_linear(randn(256, 512))
    expected = np.asarray(layer(randn(64, 512)))
    box = {"x": randn(64, 512)}
    stop = threading.Event()

    def replace():
        while not stop.is_set():
            box["x"] = randn(64, 512)
            np.full((64, 512), np.nan, np.float32)

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        for _ in range(50):
            assert same_bits(layer(box["x"]), expected)
    finally:
        stop.set()
        thread.join(60)


class Subclass(np.ndarray):
    def __array_finalize__(self, source):
        self.unit = getattr(source, "unit", "metre")


def test_c082_subclasses_are_plain_arrays():
    x, layer = randn(3, 24), bound_linear(randn(16, 24))
    expected = np.asarray(layer(x))
    unmasked = np.ma.masked_array(x, mask=np.zeros_like(x, bool))
    for variant in (x.view(Subclass), np.ma.masked_array(x), unmasked):
        y = layer(variant)
        assert type(y) is Tensor
        assert type(y.numpy()) is np.ndarray
        assert same_bits(y, expected)


def test_c082_a_mask_is_not_dropped():
    x = np.ma.masked_array(randn(3, 24), mask=np.arange(72).reshape(3, 24) == 5)
    layer = bound_linear(randn(16, 24))
    with pytest.raises(TypeError, match="mask"):
        layer(x)
    with pytest.raises(TypeError, match="mask"):
        Tensor.from_data(x)


def test_c082_lists_of_floats_are_float32():
    layer = bound_linear(np.ones((3, 2), np.float32))
    assert same_bits(layer([[1.0, 2.5]]), layer(np.array([[1, 2.5]], np.float32)))
    assert same_bits(layer((1.0, 2.5)), layer(np.array([1, 2.5], np.float32)))
    with pytest.raises(ValueError):
        layer(1.5)


NO_TENSORS = {
    "objects": np.array([[1.0, 2.0]], object),
    "a structure": np.zeros(2, [("a", np.float32), ("b", np.float32)]),
    "complex": np.zeros((1, 2), np.complex64),
    "text": np.array([["a", "b"]]),
    "bytes": np.array([[b"a", b"b"]]),
    "dates": np.zeros((1, 2), "datetime64[s]"),
    "a string": "text",
    "None": None,
    "a list of integers": [[1, 2]],
    "a list of strings": [["a", "b"]],
    "a dict": {"x": 1},
}


@pytest.mark.parametrize("case", NO_TENSORS)
def test_c082_what_is_no_tensor_is_a_type_error(case):
    layer = bound_linear(np.ones((3, 2), np.float32))
    with pytest.raises(TypeError):
        layer(NO_TENSORS[case])
    with pytest.raises(TypeError):
        Tensor.from_data(NO_TENSORS[case])
    with pytest.raises(clika_runtime.ClikaRTError, match="weight"):
        nn.Linear(2, 3, False).load_state_dict({"weight": NO_TENSORS[case]})


@pytest.mark.parametrize("dtype", [np.int64, np.bool_, np.float64, np.int8, np.uint8, np.int32])
def test_c082_numbers_that_are_no_input_are_refused(dtype):
    layer = bound_linear(np.ones((3, 2), np.float32))
    with pytest.raises((TypeError, ValueError)):
        layer(np.zeros((1, 2), dtype))


INTERRUPTED = """
import os, signal, sys, threading, time
import numpy as np
import clika_runtime
from clika_runtime import nn

def interrupt_soon(delay):
    threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT)).start()

# A shell that starts the tests in the background lets them ignore the signal.
signal.signal(signal.SIGINT, signal.default_int_handler)
handler = signal.getsignal(signal.SIGINT)
layer = nn.Linear(1024, 1024, False)
layer.bind(weight=np.ones((1024, 1024), np.float32))
x = np.ones((256, 1024), np.float32)
layer(x)
what = sys.argv[1]
interrupt_soon(0.2)
started = time.monotonic()
try:
    while time.monotonic() < started + 20:
        if what == "calls":
            layer(x)
        elif what == "first calls":
            clika_runtime.kernels.clear()
            for n in range(1, 65):
                part = nn.Linear(8, n, False)
                part.bind(weight=np.ones((n, 8), np.float32))
                part(np.ones((1, 8), np.float32))
        elif what == "fuses":
            parts = [nn.Linear(256, 256, False) for _ in range(2)]
            for part in parts:
                part.bind(weight=np.ones((256, 256), np.float32))
            nn.fuse_linears(*parts)
        else:
            clika_runtime.kernels.clear()
            model = nn.ModuleList([nn.Linear(8, n, False) for n in range(1, 500)])
            model.load_state_dict({f"{i}.weight": np.ones((i + 1, 8), np.float32) for i in range(499)})
            clika_runtime.warmup(model, [((1, 8), clika_runtime.float32)], progress=False)
    sys.exit("no KeyboardInterrupt")
except KeyboardInterrupt:
    pass
assert signal.getsignal(signal.SIGINT) is handler
assert (layer(x).numpy() == 1024).all()
parts = [nn.Linear(4, 3, False) for _ in range(2)]
for part in parts:
    part.bind(weight=np.ones((3, 4), np.float32))
assert (nn.fuse_linears(*parts)(np.ones((1, 4), np.float32)).numpy() == 4).all()
print("served")
"""


@pytest.mark.parametrize("what", ["calls", "first calls", "fuses", "warm-up"])
def test_c084_an_interrupt_ends_the_work_and_breaks_nothing(what):
    done = run_python(INTERRUPTED, what)
    assert done.stdout == "served\n", done.stderr


def test_c085_import_without_numpy_names_it():
    script = (
        "import sys\n"
        "sys.modules['numpy'] = None\n"
        "try:\n    import clika_runtime\n"
        "except ImportError as error:\n    print('numpy' in str(error).lower())\n"
        "else:\n    print(clika_runtime.__version__ != '')\n"
    )
    assert run_python(script).stdout == "True\n"


def test_c085_repeated_import():
    script = (
        "import importlib, sys, warnings\n"
        "warnings.simplefilter('error')\n"
        "import numpy as np, clika_runtime\n"
        "before = clika_runtime.Tensor\n"
        "importlib.reload(clika_runtime.nn)\n"
        "importlib.reload(clika_runtime)\n"
        "layer = clika_runtime.nn.Linear(4, 3, False)\n"
        "layer.bind(weight=np.ones((3, 4), np.float32))\n"
        "assert (layer(np.ones((1, 4), np.float32)).numpy() == 4).all()\n"
        "for name in [n for n in sys.modules if n.split('.')[0] == 'clika_runtime']: del sys.modules[name]\n"
        "try:\n    import clika_runtime as again\n"
        "except ImportError as error:\n    print('refused' if str(error) else 'silent')\n"
        "else:\n"
        "    layer = again.nn.Linear(4, 3, False)\n"
        "    layer.bind(weight=np.ones((3, 4), np.float32))\n"
        "    print('served' if (layer(np.ones((1, 4), np.float32)).numpy() == 4).all() else 'wrong')\n"
    )
    done = run_python(script)
    assert done.stdout in ("served\n", "refused\n"), done.stderr


def test_c085_a_sub_interpreter_is_served_or_refused():
    script = (
        "import clika_runtime\n"
        "try:\n    import _xxsubinterpreters as interpreters\n"
        "except ImportError:\n    import _interpreters as interpreters\n"
        "one = interpreters.create()\n"
        "try:\n    interpreters.run_string(one, 'import clika_runtime')\n"
        "except Exception as error:\n    print('ImportError' in str(error) or 'ImportError' in type(error).__name__)\n"
        "else:\n    print(True)\n"
        "interpreters.destroy(one)\n"
    )
    done = run_python(script)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "True\n", done.stderr


def test_c085_another_openmp_runtime_changes_nothing():
    script = (
        "import ctypes, sys\n"
        "if sys.argv[1] == 'before': ctypes.CDLL('libgomp.so.1', ctypes.RTLD_GLOBAL)\n"
        "import numpy as np, clika_runtime\n"
        "if sys.argv[1] == 'after': ctypes.CDLL('libgomp.so.1', ctypes.RTLD_GLOBAL)\n"
        "x = (np.arange(64 * 256) % 17 - 8).astype(np.float32).reshape(64, 256) / 7\n"
        "layer = clika_runtime.nn.Linear(256, 64, False)\n"
        "layer.bind(weight=x)\n"
        "print(layer(x).numpy().tobytes().hex())\n"
    )
    results = {when: run_python(script, when) for when in ("never", "before", "after")}
    assert results["never"].stdout != ""
    assert len({done.stdout for done in results.values()}) == 1, results["after"].stderr


def test_c085_the_module_imports_once():
    assert importlib.import_module("clika_runtime") is clika_runtime
    assert clika_runtime.nn is importlib.import_module("clika_runtime.nn")
