"""The harness that runs kernels on emulated CPUs, with this machine in the emulator's place."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LAB = ROOT / "tests/isa_lab/run.py"


def run_lab(*arguments, lab=LAB, **environment):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CLIKART_")}
    return subprocess.run(
        [sys.executable, lab, *arguments], capture_output=True, text=True, env={**clean, **environment}
    )


def test_a_clone_without_an_emulator_is_told_what_to_set(tmp_path):
    copy = tmp_path / "clone/tests/isa_lab/run.py"
    copy.parent.mkdir(parents=True)
    copy.write_text(LAB.read_text())
    done = run_lab(lab=copy)
    assert done.returncode == 2
    assert "CLIKART_ISA_RUNNER" in done.stderr


def test_a_runner_that_is_not_there_fails(tmp_path):
    done = run_lab("skx", "--build", tmp_path, CLIKART_ISA_RUNNER="/nowhere/emulator {cpu} --")
    assert done.returncode == 1
    assert "cannot run /nowhere/emulator" in done.stdout


def test_a_cpu_without_the_level_fails_rather_than_skips(tmp_path):
    # No CPU is called so: programs see a level that they do not have, whatever this machine has.
    runner = tmp_path / "runner"
    runner.write_text('#!/bin/sh\nCLIKART_TEST_LEVELS=avx512,no_level exec "$@"\n')
    runner.chmod(0o755)
    build = tmp_path / "build"
    (build / "bin").mkdir(parents=True)
    for name in ("clikart-fuzz", "codegen_test", "clikart-coverage"):
        # Natively everything is well; emulated nothing has run.
        (build / "bin" / name).write_text('#!/bin/sh\necho "[       OK ] A.B (0 ms)"\n')
        (build / "bin" / name).chmod(0o755)
    done = run_lab("skx", "--build", build, CLIKART_ISA_RUNNER=f"{runner}")
    assert done.returncode == 1
    assert "nothing was fuzzed at level avx512" in done.stdout
    assert "nothing executed of AVX512BW" in done.stdout


def test_unknown_cpus_are_refused():
    done = run_lab("pentium")
    assert done.returncode == 2
    assert "unknown CPU pentium" in done.stderr


def test_ci_runs_the_lab_and_the_fuzzer():
    script = (ROOT / ".ci/run").read_text()
    assert "./dev test --isa-lab" in script
    assert "./dev test --fuzz" in script
