"""The object that holds LLVM: when it is loaded, what happens without it, and which company it bears."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import clika_runtime
import pytest

HERE = Path(__file__).resolve().parent
PACKAGE = Path(clika_runtime.__file__).parent
OBJECT = "libclikart_llvm.so"

FORWARD = """
import clika_runtime, numpy as np
from clika_runtime import nn
layer = nn.Linear(8, 8, bias=False).bind(weight=np.eye(8, dtype=np.float32))
x = np.arange(8, dtype=np.float32).reshape(1, 8)
"""
SHOW = "print({n for l in open('/proc/self/maps') if 'llvm' in (n := l.split('/')[-1].strip()).lower()} or '')\n"


def run(script, *arguments, **environment):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        # What a disk holds needs no LLVM any more.
        env={**os.environ, "CLIKART_CACHE": "memory", **environment},
    )


def test_only_a_kernel_of_its_own_loads_it():
    used = (
        FORWARD
        + "assert np.array_equal(layer(x).numpy(), x)\nprint(clika_runtime.kernels.list()[0]['emitter'])\n"
        + SHOW
    )
    assert run(used, CLIKART_EMITTER="llvm").stdout.splitlines() == ["llvm", str({OBJECT})]
    assert run(used, CLIKART_EMITTER="portable").stdout.splitlines() == ["portable", ""]


@pytest.mark.parametrize("level", ["baseline", "sse4"])
def test_it_serves_what_the_fast_path_cannot(level):
    done = run(FORWARD + "layer(x); print(clika_runtime.kernels.list()[0])", CLIKART_MAX_ISA=level)
    assert "'emitter': 'llvm'" in done.stdout, done.stderr
    assert f"'isa': '{level}'" in done.stdout


def copy_without_the_object(folder):
    ignored = shutil.ignore_patterns(OBJECT, "__pycache__")
    return Path(shutil.copytree(PACKAGE, folder / "clika_runtime", ignore=ignored))


def test_without_it_the_next_emitter_serves_and_the_reason_is_told(tmp_path):
    copy = copy_without_the_object(tmp_path)
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n" + FORWARD
    served = script + "print(layer(x).numpy().tolist() == x.tolist(), clika_runtime.kernels.stats()['rejections'])"
    done = run(served, CLIKART_EMITTER="llvm")
    assert done.stdout.strip() == "True {'no_llvm': 1}", done.stderr
    refused = run(script + "layer(x)", CLIKART_EMITTER="llvm", CLIKART_STRICT="1")
    assert "no_llvm" in refused.stderr
    assert str(copy / OBJECT) in refused.stderr


def test_an_object_of_another_build_is_refused(tmp_path):
    copy = copy_without_the_object(tmp_path)
    (copy / OBJECT).write_bytes(b"not a library")
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n" + FORWARD + "layer(x)"
    done = run(script, CLIKART_EMITTER="llvm", CLIKART_STRICT="1")
    assert "no_llvm" in done.stderr
    assert str(copy / OBJECT) in done.stderr


def test_nothing_of_llvm_is_exported():
    names = subprocess.run(
        ["nm", "-D", "--defined-only", PACKAGE / OBJECT], capture_output=True, text=True, check=True
    ).stdout
    assert [line.split()[-1] for line in names.splitlines()] == ["clikart_llvm_api"]


@pytest.fixture(scope="session")
def inductor_cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("inductor"))


@pytest.mark.parametrize("order", ["clikart torch system", "torch clikart", "system torch clikart", "system clikart"])
def test_it_bears_other_llvms_in_the_process(order, inductor_cache):
    script = HERE / "llvm_in_process.py"
    done = subprocess.run(
        [sys.executable, script, *order.split()],
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "CLIKART_CACHE": "memory", "TORCHINDUCTOR_CACHE_DIR": inductor_cache},
    )
    assert (done.returncode, done.stdout.strip()) == (0, "ok"), done.stderr[-3000:]
