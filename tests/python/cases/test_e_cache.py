"""Field cases, area (e): the kernel cache on disk, as processes meet it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import clika_runtime as cr
import numpy as np
import pytest

# A model of a few signatures; prints its outputs' bits and what the cache did.
PROGRAM = """
import json, sys
import numpy as np
import clika_runtime as cr
from clika_runtime import nn

rng = np.random.default_rng(5)
x = rng.standard_normal((3, 24), np.float32)
digest = []
for activation in {activations}:
    for bias in (True, False):
        layer = nn.Linear(24, 40, bias, activation=activation)
        layer.bind(weight=rng.standard_normal((40, 24)).astype(np.float32),
                   bias=rng.standard_normal(40).astype(np.float32) if bias else None)
        digest.append(np.asarray(layer(x)).tobytes().hex())
print(json.dumps({{"digest": digest, "stats": cr.kernels.stats(), "kernels": cr.kernels.list()}}))
"""
ACTIVATIONS = [None, "relu", "gelu", "tanh"]
SIGNATURES = 2 * len(ACTIVATIONS)

pytestmark = pytest.mark.skipif(
    cr.cpu_info()["isa"] in ("baseline", "sse4"), reason="no code is generated for this CPU, so none is kept"
)


def run(folder, activations=ACTIVATIONS, check=True, **environment):
    settings = {"CLIKART_CACHE_DIR": str(folder), "CLIKART_VERBOSE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(activations=activations)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **settings, **environment},
    )
    if not check:
        return done
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout), "stderr": done.stderr}


def entries(folder):
    return sorted((Path(folder) / "v1").glob("*.o"))


@pytest.fixture
def warm(tmp_path):
    """A filled folder, and what its program printed."""
    folder = tmp_path / "cache"
    first = run(folder)
    assert first["stats"]["compiled"] == SIGNATURES
    assert first["stats"]["loaded"] == 0
    assert len(entries(folder)) == SIGNATURES
    return folder, first["digest"]


def test_a_warm_process_compiles_nothing(warm):
    folder, digest = warm
    again = run(folder)
    assert again["digest"] == digest
    assert again["stats"]["compiled"] == 0
    assert again["stats"]["loaded"] == SIGNATURES
    assert again["stderr"] == ""
    assert all(kernel["loaded"] and kernel["jit_seconds"] > 0 for kernel in again["kernels"])


def test_c053_bad_entries_are_rebuilt(warm):
    folder, digest = warm
    good = {path: path.read_bytes() for path in entries(folder)}
    paths = list(good)

    def flip(path, at):
        data = bytearray(good[path])
        data[at] ^= 4
        path.write_bytes(data)

    def replace(path, make):
        path.unlink()
        make(path)

    damages = [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(good[path][:1]),
        lambda path: path.write_bytes(good[path][: len(good[path]) // 2]),
        lambda path: path.write_bytes(good[path][:-1]),
        lambda path: path.write_bytes(good[path] + b"junk"),
        lambda path: flip(path, 20),
        lambda path: flip(path, len(good[path]) // 2),
        lambda path: replace(path, lambda p: p.mkdir()),
        lambda path: replace(path, os.mkfifo),
        lambda path: replace(path, lambda p: p.symlink_to(p)),
        lambda path: path.chmod(0o666),
    ]
    for damage in damages:
        for path in paths:
            damage(path)
        after = run(folder)
        assert after["digest"] == digest
        assert after["stats"]["quarantined"] == SIGNATURES
        assert after["stats"]["compiled"] == SIGNATURES
        assert after["stderr"].count("\n") == 1, after["stderr"]
        assert "generated again" in after["stderr"]
        healed = run(folder)
        assert healed["stats"]["compiled"] == 0
        assert healed["stderr"] == ""
        good = {path: path.read_bytes() for path in entries(folder)}
    # Contents that are right, under names that are not theirs.
    for a, b in zip(paths[::2], paths[1::2], strict=True):
        a.write_bytes(good[b])
        b.write_bytes(good[a])
    after = run(folder)
    assert after["digest"] == digest
    assert after["stats"]["quarantined"] == SIGNATURES


def test_c053_killed_processes_leave_a_working_cache(tmp_path):
    folder = tmp_path / "cache"
    expected = run(tmp_path / "other")["digest"]
    for delay in np.linspace(0.05, 0.6, 8):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format(activations=ACTIVATIONS)],
            stdout=subprocess.DEVNULL,
            env={**os.environ, "CLIKART_CACHE_DIR": str(folder)},
        )
        try:
            process.wait(timeout=delay)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    after = run(folder)
    assert after["digest"] == expected
    assert after["stats"]["quarantined"] == 0
    assert after["stderr"] == ""


def test_c055_entries_of_another_cpu_are_not_run(warm):
    """Kernels for all that this CPU has, then a process that may use less, and the other way round."""
    folder, _ = warm
    wide = cr.cpu_info()["isa"]
    levels = ["avx2"] if wide == "avx2" else ["avx2", wide]
    for level in [*levels, *reversed(levels)]:
        result = run(folder, CLIKART_MAX_ISA=level)
        # A kernel's own level: nothing above the cap, whatever lies in the folder.
        order = ["baseline", "sse4", "avx2", "avx_vnni", "avx512", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx"]
        for kernel in result["kernels"]:
            assert order.index(kernel["isa"]) <= order.index(level)
    for level in levels:
        assert run(folder, CLIKART_MAX_ISA=level)["stats"]["compiled"] == 0


def test_c056_other_formats_are_left_alone(warm):
    folder, digest = warm
    (folder / "v2").mkdir()
    (folder / "v2" / "entry").write_bytes(b"of a newer version")
    foreign = folder / "v1" / ("0" * 64 + ".o")
    shutil.copy(entries(folder)[0], foreign)
    result = run(folder)
    assert result["digest"] == digest
    assert result["stats"]["compiled"] == 0
    assert result["stderr"] == ""
    assert (folder / "v2" / "entry").exists()
    assert foreign.exists()


def test_c058_a_read_only_or_missing_folder(tmp_path):
    for folder in ("/proc/nowhere", "/dev/null", tmp_path / "file" / "cache"):
        (tmp_path / "file").touch()
        result = run(folder)
        assert result["stats"]["compiled"] == SIGNATURES
        assert result["stats"]["stored"] == 0
        assert result["stderr"] == ""
    # No home folder: nothing is written anywhere.
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("CLIKART_", "HOME", "XDG_"))}
    command = [sys.executable, "-c", PROGRAM.format(activations=ACTIVATIONS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["stats"]["stored"] == 0


def test_folders_that_others_can_write_are_refused(warm):
    folder, digest = warm
    folder.chmod(0o777)
    result = run(folder)
    assert result["digest"] == digest
    assert result["stats"]["loaded"] == 0
    assert result["stderr"].count("\n") == 1
    assert f"chmod go-w '{folder}'" in result["stderr"]
    folder.chmod(0o700)
    link = folder.parent / "link"
    link.symlink_to(folder)
    assert "symbolic link" in run(link)["stderr"]
    assert run(folder)["stats"]["loaded"] == SIGNATURES


def test_c063_processes_that_share_a_folder_get_their_own_kernels(tmp_path):
    """Each set of signatures alone, and then in one folder in another order."""
    sets = [["relu"], [None, "gelu"], ["tanh", "relu"], ["sigmoid", "silu", None]]
    alone = [run(tmp_path / str(i), activations)["digest"] for i, activations in enumerate(sets)]
    shared = tmp_path / "shared"
    for i in (2, 0, 3, 1, 1, 3, 0, 2):
        assert run(shared, sets[i])["digest"] == alone[i]


def test_c064_the_folder_stays_within_its_budget(tmp_path):
    folder = tmp_path / "cache"
    budget = 256 << 10
    for activations in (ACTIVATIONS, ["sigmoid", "silu", "mish"], ["elu", "softplus", "relu"]):
        run(folder, activations, CLIKART_CACHE_DISK_SIZE=str(budget))
        assert sum(path.stat().st_size for path in entries(folder)) <= budget
    assert run(folder, ACTIVATIONS, CLIKART_CACHE_DISK_SIZE="0")["stats"]["stored"] == 0


def test_c065_clearing_while_others_run(tmp_path):
    folder = tmp_path / "cache"
    command = [sys.executable, "-c", PROGRAM.format(activations=ACTIVATIONS)]
    environment = {**os.environ, "CLIKART_CACHE_DIR": str(folder)}
    expected = run(tmp_path / "other")["digest"]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(4)]
    while any(process.poll() is None for process in running):
        shutil.rmtree(folder, ignore_errors=True)
    for process in running:
        out, _ = process.communicate()
        assert process.returncode == 0
        assert json.loads(out)["digest"] == expected


@pytest.mark.parametrize("setting", ["memory", "off"])
def test_without_a_disk_nothing_is_written(tmp_path, setting):
    result = run(tmp_path / "cache", CLIKART_CACHE=setting)
    assert result["stats"]["stored"] == 0
    assert not (tmp_path / "cache").exists()


def test_a_system_folder_serves_those_who_cannot_write_it(warm, tmp_path):
    system, digest = warm
    mine = tmp_path / "mine"
    result = run(mine, [*ACTIVATIONS, "silu"], CLIKART_CACHE_SYSTEM_DIR=str(system))
    assert result["digest"][:SIGNATURES] == digest
    assert result["stats"]["loaded"] == SIGNATURES
    assert len(entries(mine)) == 2
    assert len(entries(system)) == SIGNATURES
