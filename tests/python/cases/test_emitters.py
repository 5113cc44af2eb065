"""The numeric and shape cases once more, served by the portable emitter alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


@pytest.mark.parametrize("area", ["a_numerics", "b_shapes"])
def test_cases_hold_with_the_portable_emitter(area):
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
    environment = {**os.environ, "CLIKART_EMITTER": "portable"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout[-3000:]
