"""Generated kernels as gdb and perf show them."""

import os
import re
import shutil
import subprocess
import sys
import textwrap

import clika_runtime as cr
import pytest

pytestmark = pytest.mark.skipif(
    cr.cpu_info()["isa"] in ("baseline", "sse4"), reason="no code is generated for this CPU"
)

LAYER = """
import numpy as np
from clika_runtime import nn

rng = np.random.default_rng(0)
layer = nn.Linear(512, 512)
layer.bind(weight=rng.standard_normal((512, 512)).astype(np.float32), bias=np.zeros(512, np.float32))
"""

# The kernel reads a page that is taken away.
FAULT = (
    LAYER
    + """
import ctypes, mmap

memory = mmap.mmap(-1, 16 * 2048, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
x = np.frombuffer(memory, np.float32).reshape(16, 512)
layer(x)
libc = ctypes.CDLL(None)
libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
assert libc.mprotect(x.ctypes.data, x.nbytes, 0) == 0
layer(x)
"""
)

# Keeps the CPU inside of the kernel for long enough to be sampled there.
LOOP = (
    LAYER
    + """
import time

x = rng.standard_normal((256, 512)).astype(np.float32)
end = time.monotonic() + 1
while time.monotonic() < end:
    layer(x)
print(next(k["signature"] for k in __import__("clika_runtime").kernels.list() if k["code_bytes"]))
"""
)


def environment(tmp_path, **settings):
    return {
        **os.environ,
        "CLIKART_NUM_THREADS": "1",
        "CLIKART_EMITTER": "",
        "CLIKART_CACHE_DIR": str(tmp_path / "cache"),
        "CLIKART_PERF_DIR": str(tmp_path),
        **settings,
    }


def run(command, env):
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)


@pytest.mark.skipif(shutil.which("gdb") is None, reason="no gdb on this machine")
@pytest.mark.parametrize("loaded", [False, True], ids=["compiled", "loaded"])
def test_gdb_names_the_frame_of_a_kernel(tmp_path, loaded):
    env = environment(tmp_path, CLIKART_PERF_MAP="gdb", PYTHONFAULTHANDLER="")
    if loaded:
        run([sys.executable, "-c", LAYER + "layer(np.zeros((1, 512), np.float32))"], env)
        assert list((tmp_path / "cache").rglob("*.o"))
    commands = ["set confirm off", "run", "bt 2"]
    options = [option for command in commands for option in ("-ex", command)]
    done = run(["gdb", "-nx", "-batch", *options, "--args", sys.executable, "-c", FAULT], env)
    if re.search("ptrace: Operation not permitted|Couldn't get registers", done.stderr):
        pytest.skip("gdb may not trace processes here")
    (frame,) = re.findall(r"^#0 .*$", done.stdout, re.M)
    assert re.search(r"in kind=float .* n=512 k=512 .*@\w+/\w+:entry_\d+ \(\)", frame), done.stdout
    assert re.search(r"^#1 .* clikart::|^#1 .* in Call<clikart::", done.stdout, re.M), done.stdout


def record(tmp_path, listing):
    """A recording of LOOP, and the signature of its kernel."""
    if shutil.which("perf") is None:
        pytest.skip("no perf on this machine")
    data = tmp_path / "perf.data"
    perf = ["perf", "record", "-q", "-k", "mono", "-e", "cpu-clock:u", "-o", str(data)]
    if run([*perf, "true"], os.environ).returncode != 0:
        pytest.skip("perf may not record here")
    done = run([*perf, sys.executable, "-c", LOOP], environment(tmp_path, CLIKART_PERF_MAP=listing))
    assert done.returncode == 0, done.stderr
    return data, done.stdout.strip()


def symbols(data):
    done = run(["perf", "script", "-i", str(data), "-F", "pid,ip,sym"], os.environ)
    assert done.returncode == 0, done.stderr
    return done.stdout, set(re.findall(r"^\s*\d+\s+[0-9a-f]+ (.+?)\s*$", done.stdout, re.M))


def test_a_perf_map_names_samples(tmp_path):
    data, signature = record(tmp_path, "map")
    text, names = symbols(data)
    pid = re.search(r"^\s*(\d+)", text, re.M).group(1)
    os.remove(f"/tmp/perf-{pid}.map")
    assert signature in names


def test_a_jitdump_names_samples(tmp_path):
    data, signature = record(tmp_path, "jitdump")
    joined = tmp_path / "joined.data"
    done = run(["perf", "inject", "--jit", "-i", str(data), "-o", str(joined)], os.environ)
    assert done.returncode == 0, done.stderr
    assert signature in symbols(joined)[1]


READ_BACK = textwrap.dedent("""
    import ctypes, glob, os, struct, sys
    layer(np.zeros((1, 512), np.float32))
    (path,) = glob.glob(os.environ["CLIKART_PERF_DIR"] + f"/clikart-jitdump-*/jit-{os.getpid()}.dump")
    dump = open(path, "rb").read()
    magic, version, at, machine = struct.unpack_from("<4I", dump)
    assert (magic, version, at, machine) == (0x4A695444, 1, 40, 62)
    names = []
    while at < len(dump):
        kind, size = struct.unpack_from("<2I", dump, at)
        _, address, length, index = struct.unpack_from("<4Q", dump, at + 24)
        assert (kind, index) == (0, len(names))
        name, code = dump[at + 56 : at + size - length - 1], dump[at + size - length : at + size]
        assert ctypes.string_at(address, length) == code  # as it lies in memory
        names.append(name.decode())
        at += size
    import clika_runtime as cr
    assert names == [k["signature"] for k in cr.kernels.list()], names
    assert len(names) == 1
""")


def test_a_jitdump_holds_the_code_of_memory(tmp_path):
    done = run([sys.executable, "-c", LAYER + READ_BACK], environment(tmp_path, CLIKART_PERF_MAP="jitdump"))
    assert done.returncode == 0, done.stderr


def test_nothing_is_listed_unasked(tmp_path):
    program = LAYER + "layer(np.zeros((1, 512), np.float32)); import os; print(os.getpid())"
    done = run([sys.executable, "-c", program], environment(tmp_path, CLIKART_PERF_MAP=""))
    assert done.returncode == 0, done.stderr
    assert not os.path.exists(f"/tmp/perf-{done.stdout.strip()}.map")
    assert not list(tmp_path.glob("clikart-jitdump-*"))
