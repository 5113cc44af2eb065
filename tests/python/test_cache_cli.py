"""clikart-cache as an operator calls it, on a folder that a process filled."""

import json
import os
import subprocess
import sys
from pathlib import Path

import clika_runtime as cr
import pytest

PROGRAM = Path(__file__).parents[2] / "build" / "bin" / "clikart-cache"
FILL = """
import numpy as np
from clika_runtime import nn
for activation in (None, "relu", "gelu"):
    layer = nn.Linear(8, 16, False, activation=activation).bind(weight=np.ones((16, 8), np.float32))
    layer(np.ones((1, 8), np.float32))
"""

pytestmark = [
    pytest.mark.skipif(not PROGRAM.exists(), reason="clikart-cache is not built here"),
    pytest.mark.skipif(cr.cpu_info()["isa"] in ("baseline", "sse4"), reason="no code is generated for this CPU"),
]


@pytest.fixture
def folder(tmp_path):
    environment = {**os.environ, "CLIKART_CACHE_DIR": str(tmp_path / "cache")}
    subprocess.run([sys.executable, "-c", FILL], check=True, env=environment, timeout=60)
    return tmp_path / "cache"


def call(*arguments, code=0, **environment):
    done = subprocess.run(
        [PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=60, env={**os.environ, **environment}
    )
    assert done.returncode == code, done.stderr
    return done


def test_what_a_process_left_is_seen(folder):
    entries = json.loads(call("--json", "list", CLIKART_CACHE_DIR=str(folder)).stdout)
    assert len(entries) == 3
    assert all(entry["emitter"] in ("xbyak", "llvm") and entry["jit_seconds"] > 0 for entry in entries)
    # Options may stand anywhere.
    assert json.loads(call("list", "--dir", folder, "--json").stdout) == entries
    stats = json.loads(call("stats", "--dir", folder, "--json").stdout)
    assert (stats["entries"], stats["damaged"]) == (3, 0)
    (shown,) = json.loads(call("show", entries[0]["key"][:16], "--json", "--dir", folder).stdout)
    assert shown["key"] == entries[0]["key"]
    assert shown["entry_points"]
    assert "verify" in call("--help").stdout
    assert "\x1b" not in call("list", "--dir", folder).stdout


def test_exit_codes(folder):
    call(code=1)
    call("nonsense", code=1)
    call("list", "--no_such_flag", code=1)
    call("show", "zz", "--dir", folder, code=2)
    call("list", "--dir", "/dev/null", code=3)
    (folder / "v1" / ("0" * 64 + ".o")).write_bytes(b"")
    assert "too short" in call("verify", "--dir", folder, code=2).stdout


def test_an_archive_warms_another_machine(folder, tmp_path):
    call("export", tmp_path / "kernels.tar", "--dir", folder)
    other = tmp_path / "other"
    call("import", tmp_path / "kernels.tar", "--dir", other)
    script = FILL + "import clika_runtime as cr\nassert cr.kernels.stats()['compiled'] == 0, cr.kernels.stats()\n"
    environment = {**os.environ, "CLIKART_CACHE_DIR": str(other)}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment, timeout=60)


def test_a_manifest_warms_a_process(folder, tmp_path):
    script = FILL + f"import clika_runtime as cr\ncr.WarmupManifest.record().save({str(tmp_path / 'kernels')!r})\n"
    environment = {**os.environ, "CLIKART_CACHE_DIR": str(folder)}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment, timeout=60)
    fleet = tmp_path / "fleet"
    report = json.loads(call("warmup", tmp_path / "kernels", "--dir", fleet, "--jobs=2", "--json").stdout)
    assert (report["compiled"], report["failed"], report["folder"]) == (3, 0, str(fleet))
    assert report["target"] == cr.cpu_info()["target"]
    script = FILL + "import clika_runtime as cr\nassert cr.kernels.stats()['compiled'] == 0, cr.kernels.stats()\n"
    environment = {**os.environ, "CLIKART_CACHE_DIR": str(fleet)}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment, timeout=60)
    call("warmup", tmp_path / "kernels", "--dir", fleet, "--target=i386", code=1)
    call("warmup", tmp_path / "none", "--dir", fleet, code=3)
    (tmp_path / "kernels").write_text("oops\n")
    assert "line 1" in call("warmup", tmp_path / "kernels", "--dir", fleet, code=2).stderr


def test_llvm_is_loaded_by_the_commands_that_need_it_alone(folder):
    """`list` must stay quick and work where LLVM is not."""
    analysis = "libclikart_analysis.so"
    (key, *_) = [entry["key"] for entry in json.loads(call("list", "--dir", folder, "--json").stdout)]
    for command in (["list"], ["show", key], ["stats"], ["verify"]):
        loaded = call(*command, "--dir", folder, LD_DEBUG="files").stderr
        assert "libabsl" in loaded or "libstdc++" in loaded  # the loader does tell
        assert analysis not in loaded
        assert "LLVM" not in loaded
    if not (PROGRAM.parent / analysis).exists():
        assert "needs LLVM" in call("disasm", key, "--dir", folder, code=3).stderr
        return
    (code,) = json.loads(call("disasm", key[:12], "--dir", folder, "--json").stdout)
    assert code["key"] == key
    assert {point["offset"] for point in code["entry_points"]} <= {line["offset"] for line in code["lines"]}
    for before, after in zip(code["lines"], code["lines"][1:], strict=False):
        assert before["offset"] + len(before["bytes"]) // 2 == after["offset"]
    assert any(loop["main"] for loop in code["loops"])
    predicted = json.loads(call("mca", key, "--dir", folder, "--json").stdout)
    assert {loop["cpu"] for loop in predicted} >= {"znver4"} or cr.cpu_info()["isa"] == "amx"
    assert all(loop["cycles"] >= loop["limit_cycles"] > 0 for loop in predicted if "problem" not in loop)
    call("mca", key, "--cpu=none", "--dir", folder, code=1)
