"""Field case C091: clikart-cache on folders as operators meet them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import clika_runtime as cr
import pytest

PROGRAM = Path(__file__).parents[3] / "build" / "bin" / "clikart-cache"
FILL = """
import numpy as np
from clika_runtime import nn
for n in range(1, 13):
    layer = nn.Linear(8, n, False).bind(weight=np.ones((n, 8), np.float32))
    layer(np.ones((1, 8), np.float32))
"""
KERNELS = 12

pytestmark = [
    pytest.mark.skipif(not PROGRAM.exists(), reason="clikart-cache is not built here"),
    pytest.mark.skipif(cr.cpu_info()["isa"] in ("baseline", "sse4"), reason="no code is generated for this CPU"),
]


def call(*arguments, code=0, **environment):
    done = subprocess.run(
        [PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=60, env={**os.environ, **environment}
    )
    assert done.returncode == code, done.stderr + done.stdout
    return done.stdout


def figures(folder):
    return json.loads(call("stats", "--json", "--dir", folder))


def entries(folder):
    return sorted((folder / "v1").glob("*.o"))


def fill(folder, **environment):
    env = {**os.environ, "CLIKART_CACHE_DIR": str(folder), "CLIKART_EMITTER": "", **environment}
    subprocess.run([sys.executable, "-c", FILL], check=True, timeout=60, env=env)


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("filled") / "cache"
    fill(folder)
    return folder


@pytest.fixture
def folder(filled, tmp_path):
    return Path(shutil.copytree(filled, tmp_path / "cache"))


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


FOREIGN = ["notes.txt", "v1/notes.txt", "v1/other.o", "v1/" + "0" * 63 + ".o", "v2/" + "0" * 64 + ".o", "sub/deep/file"]


def test_totals_are_those_of_the_files(folder):
    files = entries(folder)
    assert figures(folder)["entries"] == len(files) == KERNELS
    listed = json.loads(call("list", "--json", "--dir", folder))
    # As du counts them.
    assert sum(entry["file_bytes"] for entry in listed) == sum(512 * path.stat().st_blocks for path in files)


def test_clear_takes_entries_and_nothing_else(folder):
    for name in FOREIGN:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("mine")
    call("prune", "--to=0", "--dir", folder)
    assert entries(folder) == sorted(folder / name for name in FOREIGN if name.startswith("v1/") and name[-2:] == ".o")
    fill(folder)
    call("clear", "--dir", folder)
    left = contents(folder)
    for name in FOREIGN:
        assert left[Path(name)] == b"mine"
    assert figures(folder)["entries"] == 0


@pytest.mark.parametrize("command", ["prune --to=0", "clear"])
def test_a_folder_that_is_no_cache_loses_nothing(tmp_path, command):
    home = tmp_path / "home"
    (home / "documents").mkdir(parents=True, mode=0o700)
    (home / "object.o").write_text("mine")
    (home / "documents" / "letter").write_text("mine")
    before = contents(home)
    call(*command.split(), "--dir", home)
    assert contents(home) == before


def test_empty_and_missing_folders(tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir(mode=0o700)
    for folder in (empty, tmp_path / "missing"):
        for command in ("list", "stats", "verify", "clear", "prune"):
            call(command, "--dir", folder)
        assert figures(folder)["entries"] == 0
    assert not (tmp_path / "missing").exists()


def test_an_unreadable_folder(folder):
    (folder / "v1").chmod(0)
    # Root reads every folder, so nobody asks in its place.
    other = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    command = [str(PROGRAM), "list", "--dir", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, **other)
    except PermissionError:
        pytest.skip("the program itself is closed to other users here")
    finally:
        (folder / "v1").chmod(0o700)
    assert done.returncode == 3
    assert "Permission denied" in done.stderr


def test_prune_keeps_to_its_size(folder):
    total = sum(path.stat().st_size for path in entries(folder))
    for share in (0.75, 0.5, 0.1):
        call("prune", f"--to={int(total * share)}", "--dir", folder)
        assert sum(path.stat().st_size for path in entries(folder)) <= total * share
    assert entries(folder)


def test_recency_is_of_use_and_not_of_access(folder):
    """Access times may stand still (noatime): what a process loads is what stays."""
    files = entries(folder)
    for path in files:
        os.utime(path, (1, 1))  # all of long ago
    one = FILL.replace("range(1, 13)", "(5,)")
    env = {**os.environ, "CLIKART_CACHE_DIR": str(folder), "CLIKART_EMITTER": ""}
    subprocess.run([sys.executable, "-c", one], check=True, timeout=60, env=env)
    used = json.loads(call("list", "--sort=use", "--json", "--dir", folder))[0]
    assert " n=5 " in used["signature"]
    call("prune", f"--to={used['file_bytes']}", "--dir", folder)
    assert [path.stem for path in entries(folder)] == [used["key"]]


def test_entries_of_other_levels_live_beside(folder):
    level = "avx2" if cr.cpu_info()["isa"] != "avx2" else None
    if level is None:
        pytest.skip("this CPU has one level that code is generated for")
    fill(folder, CLIKART_MAX_ISA=level)
    assert len(entries(folder)) == 2 * KERNELS
    assert {entry["isa"] for entry in json.loads(call("list", "--json", "--dir", folder))} > {"avx2"}
    call("prune", "--other_builds", "--dir", folder)
    assert len(entries(folder)) == 2 * KERNELS


def test_ten_thousand_entries(tmp_path, folder):
    """Copies under names of entries are no entries: they are told as damaged, each, and cleared."""
    source = entries(folder)[0].read_bytes()
    for i in range(10_000):
        path = folder / "v1" / f"{i:064x}.o"
        path.write_bytes(source)
        path.chmod(0o600)
    assert figures(folder)["damaged"] == 10_000
    call("clear", "--dir", folder)
    assert entries(folder) == []


def test_beside_running_processes(folder):
    env = {**os.environ, "CLIKART_CACHE_DIR": str(folder), "CLIKART_EMITTER": ""}
    code = "import clika_runtime as cr\n" + "for turn in range(20):\n" + FILL.replace("\n", "\n    ")
    code += "\n    cr.kernels.clear()\nprint(cr.kernels.stats()['quarantined'])\n"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
        )
        for _ in range(2)
    ]
    while any(process.poll() is None for process in processes):
        call("list", "--dir", folder)
        call("clear", "--dir", folder)
    for process in processes:
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out.strip(), err) == (0, "0", "")
    call("verify", "--dir", folder)


def test_neither_python_nor_an_instruction_set_is_needed(folder):
    done = subprocess.run(
        [PROGRAM, "stats", "--dir", str(folder)], capture_output=True, text=True, env={"CLIKART_MAX_ISA": "baseline"}
    )
    assert done.returncode == 0, done.stderr
