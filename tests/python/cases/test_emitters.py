"""The numeric and shape cases once more, served by other code than this machine's best."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent

# Above what the CPU has, a cap is the CPU's own level.
SETTINGS = {
    "portable": {"CLIKART_EMITTER": "portable"},
    "llvm": {"CLIKART_EMITTER": "llvm"},
    "avx2": {"CLIKART_MAX_ISA": "avx2"},
    "avx512": {"CLIKART_MAX_ISA": "avx512"},
    "exact": {"CLIKART_MATH": "exact"},
}


@pytest.mark.parametrize("area", ["a_numerics", "b_shapes", "c_quant"])
@pytest.mark.parametrize("setting", SETTINGS)
def test_cases_hold_with_other_kernels(area, setting):
    # Settings are read once a process, hence a process of its own.
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-p",
        "no:cacheprovider",
        "-k",
        "not c025",
        HERE / f"test_{area}.py",
    ]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **SETTINGS[setting]})
    assert done.returncode == 0, done.stdout[-3000:]


# Prints what served a linear layer.
SERVED = """
import numpy as np
from clika_runtime import nn

layer = nn.Linear(32, 24, bias=False)
layer.bind(weight=np.ones((24, 32), np.float32))
layer(np.ones((3, 32), np.float32))
print(layer.explain())
"""


@pytest.mark.parametrize("emitter", ["portable", "llvm"])
def test_the_setting_decides_who_serves(emitter):
    # Otherwise the cases above would prove nothing.
    environment = {**os.environ, **SETTINGS[emitter]}
    done = subprocess.run([sys.executable, "-c", SERVED], capture_output=True, text=True, env=environment)
    assert emitter in done.stdout, done.stdout + done.stderr
