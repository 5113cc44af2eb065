"""Field case C058: places that refuse executable memory, as Python programs meet them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import clika_runtime as cr
import pytest

pytestmark = pytest.mark.skipif(
    cr.cpu_info()["isa"] in ("baseline", "sse4"), reason="no code is generated for this CPU"
)

POLICIES = """
import ctypes, errno, json, os, resource, struct, sys

libc = ctypes.CDLL(None, use_errno=True)

def prctl(*arguments):
    if libc.prctl(*map(ctypes.c_ulong, arguments[:1]), *arguments[1:]) != 0:
        sys.exit(77)  # this system has no such policy

def deny_write_execute():
    prctl(65, ctypes.c_ulong(1), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))  # PR_SET_MDWE

class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]

def seccomp(number, calls):
    \"\"\"Lets each of `calls` fail with the error; {call: argument that must have PROT_EXEC, or None for always}.\"\"\"
    operation = lambda code, yes, no, k: struct.pack("<HBBI", code, yes, no, k)
    load = lambda offset: operation(0x20, 0, 0, offset)
    program = b""
    for call, protection in calls.items():
        fail = operation(0x06, 0, 0, 0x00050000 | number)
        if protection is not None:
            fail = load(16 + 8 * protection) + operation(0x45, 0, 1, 4) + fail
        program += load(0) + operation(0x15, 0, len(fail) // 8, call) + fail
    program += operation(0x06, 0, 0, 0x7FFF0000)
    prctl(38, ctypes.c_ulong(1), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))  # PR_SET_NO_NEW_PRIVS
    filters = Filter(len(program) // 8, program)
    prctl(22, ctypes.c_ulong(2), ctypes.byref(filters))  # PR_SET_SECCOMP

MMAP, MPROTECT, MEMFD = 9, 10, 319
executable = {MMAP: 2, MPROTECT: 2}

def refuse_executable():
    seccomp(errno.EPERM, executable)

def refuse_executable_with_access():
    seccomp(errno.EACCES, executable)

def no_memory_for_code():
    seccomp(errno.ENOMEM, executable)

def no_memfd():
    seccomp(errno.EPERM, {MEMFD: None})

def no_memfd_and_deny_write_execute():
    deny_write_execute()
    no_memfd()

def little_address_space():
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (160 << 10), resource.RLIM_INFINITY))
"""

PROGRAM = """
import numpy as np
if {before}: {policy}()
import clika_runtime as cr
from clika_runtime import nn

rng = np.random.default_rng(3)
layers = []
for n in (16, 24, 40):
    layer = nn.Linear(32, n, activation="gelu")
    layers.append(layer.bind(weight=rng.standard_normal((n, 32)).astype(np.float32), bias=np.ones(n, np.float32)))
x = rng.standard_normal((3, 32)).astype(np.float32)
cr.set_num_threads(1)
if not {before}: {policy}()
digest = [np.asarray(layer(x)).tobytes().hex() for layer in layers]
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
writable = [line for line in open("/proc/self/maps") if line.split()[1].startswith("rwx")]
print(json.dumps({{"digest": digest, "stats": cr.kernels.stats(), "kernels": cr.kernels.list(),
                  "explain": layers[0].explain(), "writable": writable}}))
"""


def run(tmp_path, policy, before=False, **settings):
    code = POLICIES + PROGRAM.format(policy=policy, before=before)
    env = {**os.environ, "CLIKART_CACHE_DIR": str(tmp_path / "cache"), "CLIKART_EMITTER": "", **settings}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=env)
    if done.returncode == 77:
        pytest.skip(f"this system cannot {policy.replace('_', ' ')}")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["writable"] == []
    return {**report, "stderr": done.stderr}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return run(tmp_path_factory.mktemp("plain"), "(lambda: None)")


@pytest.mark.parametrize("before", [True, False], ids=["before import", "after import"])
@pytest.mark.parametrize("policy", ["deny_write_execute", "no_memfd"])
def test_what_still_works_is_used(tmp_path, plain, policy, before):
    report = run(tmp_path, policy, before)
    assert report["digest"] == plain["digest"]
    assert report["stats"]["compiled"] == 3
    assert report["stats"]["rejections"] == {}
    assert report["stderr"] == ""
    again = run(tmp_path, policy, before)  # from disk
    assert again["digest"] == plain["digest"]
    assert again["stats"]["loaded"] == 3


@pytest.mark.parametrize("cache", ["memory", "disk"])
@pytest.mark.parametrize(
    "policy", ["refuse_executable", "refuse_executable_with_access", "no_memfd_and_deny_write_execute"]
)
def test_otherwise_portable_kernels_and_one_warning(tmp_path, plain, policy, cache):
    if cache == "disk":
        run(tmp_path, "(lambda: None)")  # kernels lie on disk, and cannot be run
    report = run(tmp_path, policy, CLIKART_CACHE=cache)
    assert report["digest"] == plain["digest"]
    assert {kernel["emitter"] for kernel in report["kernels"]} == {"portable"}
    assert report["stats"]["compiled"] == report["stats"]["loaded"] == 0
    assert report["stats"]["rejections"]["executable_memory"] >= 3
    (warning,) = report["stderr"].splitlines()
    assert warning.startswith("clikart: warning: the system refuses executable memory")
    assert re.search("Policies in force: .*a seccomp filter.* set CLIKART_EMITTER=portable", warning)
    assert ("PR_SET_MDWE" in warning) == ("deny_write_execute" in policy)
    assert "the system refuses executable memory" in report["explain"]


@pytest.mark.parametrize("policy", ["no_memory_for_code", "little_address_space"])
def test_no_memory_for_code_is_one_warning(tmp_path, plain, policy):
    report = run(tmp_path, policy, CLIKART_CACHE="memory", MALLOC_TOP_PAD_="8000000")
    assert report["digest"] == plain["digest"]
    assert {kernel["emitter"] for kernel in report["kernels"]} == {"portable"}
    (warning,) = report["stderr"].splitlines()
    assert warning.startswith(
        "clikart: warning: no executable memory: mmap of executable pages: Cannot allocate memory"
    )
    assert "RLIMIT_AS" in warning


def test_strict_makes_it_an_error(tmp_path):
    code = POLICIES + PROGRAM.format(policy="refuse_executable", before=False)
    env = {**os.environ, "CLIKART_CACHE_DIR": str(tmp_path / "cache"), "CLIKART_STRICT": "1", "CLIKART_EMITTER": ""}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=env)
    if done.returncode == 77:
        pytest.skip("this system has no seccomp")
    assert done.returncode == 1
    assert "ClikaRTError: CLIKART_STRICT=1 and no first-choice kernel serves" in done.stderr
    assert "the system refuses executable memory" in done.stderr


def test_a_cache_folder_mounted_noexec(tmp_path, plain):
    """Files of the cache are read, never mapped."""
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "noexec,mode=700", "tmpfs", str(folder)]
    program = tmp_path / "program.py"
    program.write_text(POLICIES + PROGRAM.format(policy="(lambda: None)", before=False))
    script = f'{" ".join(mount)} || exit 77; "$0" "$1" > first && exec "$0" "$1"'
    done = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "bash", "-c", script, sys.executable, str(program)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        env={**os.environ, "CLIKART_CACHE_DIR": str(folder), "CLIKART_EMITTER": ""},
    )
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip("no file system may be mounted here")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert report["digest"] == plain["digest"] == json.loads(Path(tmp_path / "first").read_text())["digest"]
    assert report["stats"]["loaded"] == 3
