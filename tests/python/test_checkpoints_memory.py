"""Loading a linear takes little more memory than its codes, one a byte, and what the layer keeps: every format."""

import importlib.util
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location(
    "checkpoints_bench", Path(__file__).resolve().parents[2] / "bench/checkpoints.py"
)
bench = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(bench)
ROWS = 64
LOADS = dict(bench.cases(bench.Maker(ROWS)))


@pytest.mark.parametrize("name", LOADS)
def test_peak(name):
    LOADS[name]()  # what is made once
    assert bench.peak(LOADS[name]) <= 2.6 * ROWS * bench.INPUTS
