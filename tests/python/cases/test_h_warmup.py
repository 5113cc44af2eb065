"""Field cases, area (h): warm-up, proved by counting what later calls compile."""

import json
import os
import signal
import subprocess
import sys
import threading

import clika_runtime as cr
import ml_dtypes  # noqa: F401 (teaches NumPy the name bfloat16)
import numpy as np
import pytest
from clika_runtime import nn

generates = pytest.mark.skipif(
    cr.cpu_info()["isa"] in ("baseline", "sse4"), reason="no code is generated for this CPU, so none is kept"
)

WIDTH = 64
INPUTS = [((4, WIDTH), "float32"), ((4, WIDTH), "bfloat16")]
ROWS = (1, 2, 7, 16, 33, 128, 512)


def made():
    """Kernels that this process has generated or read from disk."""
    stats = cr.kernels.stats()
    return stats["compiled"] + stats["loaded"]


class Block(nn.Module):
    """A fused group, a gated one, one of two dtypes, weight-only codes, and convolutions."""

    def __init__(self, make, salt):
        super().__init__()
        sizes = (32 + salt, 16, 16)
        self.qkv = nn.fuse_linears(*(make.linear(WIDTH, size) for size in sizes))
        self.mlp = nn.fuse_linears(*(make.linear(WIDTH, 24 + salt, False) for _ in range(2)), activation="swiglu")
        self.mixed = nn.fuse_linears(make.linear(WIDTH, 8 + salt), make.linear(WIDTH, 8, dtype="bfloat16"))
        self.codes = make.woq(WIDTH, 40 + salt, "int4_g32")
        self.half = make.linear(WIDTH, 48 + salt, dtype="bfloat16")
        self.conv = make.conv(WIDTH, 8 + salt, kernel=1)
        self.depthwise = make.conv(WIDTH, WIDTH, groups=WIDTH, activation="relu" if salt % 2 else None)


def call_all(block, dtype):
    """Real calls: every row count, strided and misaligned inputs, images."""
    rng = np.random.default_rng(3)
    for rows in ROWS:
        x = rng.standard_normal((rows, WIDTH), np.float32).astype(dtype)
        for layer in (block.qkv, block.mlp, block.mixed, block.codes, block.half):
            layer(x)
    wide = rng.standard_normal((6, WIDTH + 3), np.float32).astype(dtype)
    block.qkv(wide[:, 3:])  # rows further apart than they are wide, and not at a multiple of anything
    block.half(wide[::2, 1 : WIDTH + 1])
    for size in (1, 5, 9):
        image = rng.standard_normal((2, size + 2, size + 3, WIDTH), np.float32).astype(dtype)
        block.conv(image)
        block.depthwise(image)


def test_c090_real_calls_after_it_compile_nothing(make):
    block = Block(make, 1)
    steps = []
    report = cr.warmup(block, INPUTS, progress=lambda done, total, item: steps.append((done, total, item.seconds)))
    assert report.failed == 0, [item.error for item in report.items if item.error]
    assert [done for done, _, _ in steps] == list(range(1, len(steps) + 1))
    assert {total for _, total, _ in steps} == {len(steps)}
    assert all(seconds >= 0 for _, _, seconds in steps)
    assert report.packed == 4  # groups pack when they are fused
    assert report.compiled + report.loaded + report.cached + report.rejected >= len(report.items) - report.failed
    assert all(item.kernel for item in report.items)
    before, threads = made(), cr.get_num_threads()
    try:
        for count in (1, 2 * threads + 1):
            cr.set_num_threads(count)
            for dtype in ("float32", "bfloat16"):
                call_all(block, dtype)
    finally:
        cr.set_num_threads(threads)
    assert made() == before
    again = cr.warmup(block, INPUTS, progress=False)
    assert (again.compiled, again.loaded, again.packed, again.failed) == (0, 0, 0, 0)
    assert again.cached > 0


@pytest.mark.parametrize("callers", [1, 16])
def test_c090_each_kernel_is_made_once_whoever_asks(make, callers):
    model = nn.ModuleList([make.linear(WIDTH, 300 + 40 * callers + n) for n in range(12)])
    before, reports = made(), []
    threads = [
        threading.Thread(target=lambda: reports.append(cr.warmup(model, [((1, WIDTH), "float32")], progress=False)))
        for _ in range(callers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(reports) == callers
    assert made() == before + len(model) or cr.cpu_info()["isa"] in ("baseline", "sse4")
    assert sum(report.packed for report in reports) == len(model)
    assert sum(report.failed for report in reports) == 0
    for layer in model:
        layer(make.array(3, WIDTH))
    assert made() <= before + len(model)


def test_c090_what_fails_is_listed_and_the_rest_goes_on(make):
    model = nn.ModuleList([make.linear(8, 5), nn.Linear(8, 5, name="empty"), make.linear(8, 6)])
    report = cr.warmup(model, [((1, 8), "float32")], progress=False)
    (failed,) = [item for item in report.items if item.error]
    assert (failed.layer, report.failed) == ("1", 1)
    assert "empty" in failed.error
    assert failed.kernel is None
    assert [layer.state for layer in model] == ["packed", "unbound", "packed"]


def test_c090_cancelling_midway_leaves_everything_usable(make):
    model = nn.ModuleList([make.linear(WIDTH, 900 + n) for n in range(6 * cr.get_num_threads())])

    class EnoughError(Exception):
        pass

    def stop(done, total, item):
        if done == 3:
            raise EnoughError

    with pytest.raises(EnoughError):
        cr.warmup(model, [((1, WIDTH), "float32")], progress=stop)
    states = [layer.state for layer in model]
    assert states.count("packed") >= 3
    assert "bound" in states
    x = make.array(2, WIDTH)
    for layer in model:
        np.testing.assert_allclose(layer(x), x @ np.asarray(layer.weight).T + np.asarray(layer.bias), 1e-3, 1e-3)
    assert cr.warmup(model, [((1, WIDTH), "float32")], progress=False).failed == 0


# In other processes: a warm folder, capped instruction sets, interrupts.

PROGRAM = """
import json, sys
import ml_dtypes  # teaches NumPy the name bfloat16
import numpy as np
import clika_runtime as cr
from clika_runtime import nn

rng = np.random.default_rng(7)
def linear(inputs, outputs, dtype="float32", activation=None):
    layer = nn.Linear(inputs, outputs, dtype=dtype, activation=activation)
    return layer.bind(weight=rng.standard_normal((outputs, inputs)).astype(dtype),
                      bias=rng.standard_normal(outputs).astype(dtype))

layers = {
    dtype: nn.ModuleList([nn.fuse_linears(linear(64, 40, dtype), linear(64, 24, dtype)), linear(64, 40, dtype, "gelu")])
    for dtype in ("float32", "float16", "bfloat16")
}
what, *arguments = sys.argv[1:]
reports = []
if what == "warmup":
    for dtype, model in layers.items():
        reports.append(cr.warmup(model, [((1, 64), dtype)], progress=False))
for dtype, model in layers.items():
    x = np.ones((3, 64), dtype)
    for layer in model:
        layer(x)
if what == "record":
    cr.WarmupManifest.record().save(arguments[0])
stats = cr.kernels.stats()
print(json.dumps({
    "compiled": stats["compiled"], "loaded": stats["loaded"], "target": cr.cpu_info()["target"],
    "kernels": sorted(kernel["signature"] for kernel in cr.kernels.list()),
    "reports": [(r.compiled, r.loaded, r.cached, r.rejected, r.failed) for r in reports],
    "rejections": sorted({text.split(":")[0] for r in reports for item in r.items for text in item.rejections}),
}))
"""
KERNELS = 6


def run(folder, *arguments, **environment):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "CLIKART_CACHE_DIR": str(folder), **environment},
    )
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    return json.loads(done.stdout)


@generates
def test_c090_a_fresh_process_only_loads(tmp_path):
    cold = run(tmp_path, "warmup")
    assert (cold["compiled"], cold["loaded"]) == (KERNELS, 0)
    warm = run(tmp_path, "warmup")
    assert (warm["compiled"], warm["loaded"]) == (0, KERNELS)
    assert warm["reports"] == [[0, 2, 0, 0, 0]] * 3
    assert run(tmp_path, "calls")["compiled"] == 0


def test_c090_what_no_emitter_makes_is_reported_with_its_reason(tmp_path):
    plain = run(tmp_path, "warmup", CLIKART_EMITTER="portable")
    assert plain["reports"] == [[0, 0, 0, 2, 0]] * 3
    assert plain["rejections"] == ["disabled"]


@generates
@pytest.mark.parametrize("made_under", ["", "avx2"])
def test_a_manifest_prepares_the_folder_of_another_machine(tmp_path, made_under):
    """Recorded on one machine, compiled for another: there, nothing is left to compile."""
    manifest = tmp_path / "manifest.txt"
    here = run(tmp_path / "here", "record", manifest, CLIKART_MAX_ISA=made_under)
    run_under = "avx2" if made_under == "" else ""
    there = run(tmp_path / "none", "calls", CLIKART_MAX_ISA=run_under)
    loaded = cr.WarmupManifest.load(manifest)
    assert loaded.target == here["target"]
    assert len(loaded) == KERNELS
    report = loaded.compile(target=there["target"], folder=tmp_path / "fleet", progress=False)
    assert (report.compiled, report.failed) == (KERNELS, 0)
    assert loaded.compile(there["target"], tmp_path / "fleet", False).loaded == KERNELS
    served = run(tmp_path / "fleet", "warmup", CLIKART_MAX_ISA=run_under)
    assert (served["compiled"], served["loaded"]) == (0, KERNELS)
    assert served["kernels"] == there["kernels"]


@generates
def test_a_manifest_keeps_the_settings_of_its_run(tmp_path):
    manifest = tmp_path / "manifest.txt"
    run(tmp_path / "here", "record", manifest, CLIKART_MATH="exact")
    loaded = cr.WarmupManifest.load(manifest)
    assert (loaded.math, loaded.emitter) == ("exact", "auto")
    loaded.compile(folder=tmp_path / "fleet", progress=False)
    assert run(tmp_path / "fleet", "calls", CLIKART_MATH="exact")["compiled"] == 0


@generates
def test_a_manifest_warms_this_process(make, tmp_path):
    make.linear(24, 77)(make.array(1, 24))
    (signature,) = [kernel["signature"] for kernel in cr.kernels.list() if "n=77 " in kernel["signature"]]
    manifest = cr.WarmupManifest()
    manifest.add(signature)
    manifest.add(signature)
    assert len(manifest) == 1
    assert set(manifest.kernels) < set(cr.WarmupManifest.record().kernels)
    cr.kernels.clear()
    steps = []
    report = manifest.compile(progress=lambda done, total, item: steps.append((done, total, item.kernel)), jobs=2)
    assert report.compiled + report.loaded == 1
    assert steps == [(1, 1, signature)]
    before = made()
    make.linear(24, 77)(make.array(1, 24))
    assert made() == before


def test_manifests_as_text_and_files(tmp_path):
    manifest = cr.WarmupManifest()
    manifest.add("kind=float n=8 k=8 x=f32 w=f32 y=f32 act=gelu")
    assert cr.WarmupManifest.parse(str(manifest)) == manifest
    assert manifest != cr.WarmupManifest()
    assert manifest != str(manifest)
    assert repr(manifest) == "WarmupManifest(kernels=1)"
    assert manifest.target is None
    manifest.save(tmp_path / "one")
    assert cr.WarmupManifest.load(str(tmp_path / "one")) == manifest
    (tmp_path / "bad").write_text(str(manifest) + "kernel kind=float\n")
    with pytest.raises(ValueError, match='bad", line 5: "n" is missing'):
        cr.WarmupManifest.load(tmp_path / "bad")
    with pytest.raises(cr.ClikaRTError, match="No such file"):
        cr.WarmupManifest.load(tmp_path / "none")
    with pytest.raises(cr.ClikaRTError, match="No such file"):
        manifest.save(tmp_path / "none" / "here")
    with pytest.raises(ValueError, match="i386"):
        manifest.compile("i386", tmp_path / "cache")
    with pytest.raises(ValueError, match="negative"):
        manifest.compile(jobs=-1)
    with pytest.raises(cr.ClikaRTError, match="kernel cache"):
        manifest.compile("avx2", tmp_path / "one" / "cache")
    with pytest.raises(TypeError):
        cr.WarmupManifest.load(7)


INTERRUPTED = """
import os, signal, sys, threading
import clika_runtime as cr

signal.signal(signal.SIGINT, signal.default_int_handler)
manifest = cr.WarmupManifest()
for n in range(1, 3000):
    manifest.add(f"kind=float n={n} k=8 x=f32 w=f32 y=f32")
folder = sys.argv[1]
done = 0
def progress(finished, total, item):
    global done
    done = finished
    if finished == 5:
        os.kill(os.getpid(), signal.SIGINT)
try:
    manifest.compile(folder=folder or None, progress=progress)
    sys.exit("no KeyboardInterrupt")
except KeyboardInterrupt:
    pass
few = cr.WarmupManifest()
few.add("kind=float n=1 k=8 x=f32 w=f32 y=f32")
report = few.compile(folder=folder or None, progress=False)
print(done, report.failed, report.cached + report.loaded + report.rejected)
"""


@pytest.mark.parametrize("place", ["memory", "folder"])
def test_c084_an_interrupt_ends_the_compilation_of_a_manifest(tmp_path, place):
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path / "cache") if place == "folder" else ""],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "CLIKART_CACHE_DIR": str(tmp_path / "own")},
    )
    assert done.returncode == 0, done.stderr
    told, failed, there = map(int, done.stdout.split())
    assert told <= 6  # the signal is seen after the item that was told of then, or before the next
    assert (failed, there) == (0, 1)
    assert signal.getsignal(signal.SIGINT) is not None
