"""CLIKART_MATH: rule 1 to the bit under `exact`, rule 5's bound and the same invariance under `native`."""

import os
import subprocess
import sys

import clika_runtime
import ml_dtypes
import numpy as np
import pytest

TYPES = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}

SCRIPT = """
import sys
import clika_runtime
import ml_dtypes
import numpy as np
from clika_runtime import nn

inputs, out, name = sys.argv[1:]
data = np.load(inputs)
dtype = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}[name]
x, w = data["x"].astype(dtype), data["w"].astype(dtype)
layer = nn.Linear(x.shape[1], w.shape[0], bias=False, dtype=getattr(clika_runtime, name))
layer.bind(weight=w)
parts = [nn.Linear(x.shape[1], w.shape[0] // 2, bias=False, dtype=getattr(clika_runtime, name)) for _ in range(2)]
parts[0].bind(weight=w[: w.shape[0] // 2])
parts[1].bind(weight=w[w.shape[0] // 2 :])
group = nn.fuse_linears(*parts)
wide = lambda y: np.asarray(y).astype(np.float32)
np.savez(
    out,
    whole=wide(layer(x)),
    rows=np.concatenate([wide(layer(x[i : i + 1])) for i in range(len(x))]),
    fused=wide(group(x)),
)
"""


def run(tmp_path, name: str, math: str, x: np.ndarray, w: np.ndarray) -> dict[str, np.ndarray]:
    # Settings are read once a process, hence a process of its own.
    np.savez(tmp_path / "in.npz", x=x, w=w)
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "in.npz"), str(tmp_path / "out.npz"), name]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "CLIKART_MATH": math})
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(np.load(tmp_path / "out.npz"))


def operands(name: str, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Magnitudes between 1/8 and 4, so that a product and a sum of them are exact in float64."""
    rng = np.random.default_rng(k)

    def values(*shape: int) -> np.ndarray:
        drawn = rng.uniform(0.125, 4, shape) * rng.choice([-1, 1], shape)
        return drawn.astype(TYPES[name]).astype(np.float32)

    return values(19, k), values(34, k)


def chains(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    acc = np.zeros((x.shape[0], w.shape[0]), np.float32)
    for k in range(x.shape[1]):
        acc = (acc.astype(np.float64) + np.outer(x[:, k], w[:, k]).astype(np.float64)).astype(np.float32)
    return acc


@pytest.mark.parametrize("k", [1, 31, 100, 256])
@pytest.mark.parametrize("name", TYPES)
def test_exact_is_one_chain_of_fma(tmp_path, name, k):
    x, w = operands(name, k)
    y = run(tmp_path, name, "exact", x, w)
    wanted = chains(x, w).astype(TYPES[name]).astype(np.float32)
    for form, got in y.items():
        assert np.array_equal(got, wanted), form


@pytest.mark.parametrize("k", [1, 31, 100, 256])
@pytest.mark.parametrize("name", TYPES)
def test_native_stays_in_the_bound_and_does_not_depend_on_the_batch(tmp_path, name, k):
    x, w = operands(name, k)
    y = run(tmp_path, name, "native", x, w)
    assert np.array_equal(y["whole"], y["rows"])
    assert np.array_equal(y["whole"], y["fused"])
    wide_x, wide_w = x.astype(np.float64), w.astype(np.float64)
    magnitude = np.abs(wide_x) @ np.abs(wide_w).T
    bound = (2 * k + 1) * 2.0**-24 * magnitude
    exact = wide_x @ wide_w.T
    # Rounding keeps order: a result lies between the rounded ends of the bound.
    low, high = ((exact + sign * bound).astype(np.float32).astype(TYPES[name]) for sign in (-1, 1))
    assert np.all(low.astype(np.float32) <= y["whole"])
    assert np.all(y["whole"] <= high.astype(np.float32))


def test_signatures_say_which_instruction_multiplies():
    clika_runtime.kernels.clear()
    layer = clika_runtime.nn.Linear(8, 8, dtype=clika_runtime.float32)
    layer.bind(weight=np.ones((8, 8), np.float32), bias=np.zeros(8, np.float32))
    layer(np.ones((1, 8), np.float32))
    assert any(" product=fma interleave=1 " in entry["signature"] for entry in clika_runtime.kernels.list())
