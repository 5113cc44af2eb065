"""What a call from Python costs when the kernel has nothing to do: m=1, K=N=16. Goal: under 2 microseconds.

    .venv/bin/python bench/python_calls.py [--json]

Times are medians of samples of ten thousand calls. A plain Python function that returns its argument is measured in
the same way, for scale. Leaves with 1 when the goal is missed.
"""

import argparse
import json
import statistics
import sys
import timeit
from collections.abc import Callable

import numpy as np
from clika_runtime import Tensor, nn, set_num_threads

GOAL = 2e-6
SIZE = 16
CALLS, SAMPLES = 10_000, 15


def bound(activation: str | None = None, bias: bool = True) -> nn.Linear:
    layer = nn.Linear(SIZE, SIZE, bias=bias, activation=activation)
    rng = np.random.default_rng(0)
    tensors = {"weight": rng.random((SIZE, SIZE), np.float32)}
    if bias:
        tensors["bias"] = rng.random(SIZE, np.float32)
    layer.bind(**tensors)
    return layer


def identity(x):
    return x


def seconds(function: Callable, x) -> float:
    timer = timeit.Timer(lambda: function(x))
    empty = timeit.Timer(lambda: None)
    timer.timeit(CALLS)
    overhead = statistics.median(empty.repeat(SAMPLES, CALLS))
    return (statistics.median(timer.repeat(SAMPLES, CALLS)) - overhead) / CALLS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object a line instead of a table")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    set_num_threads(options.threads)
    array = np.random.default_rng(1).random((1, SIZE), np.float32)
    tensor = Tensor.from_data(array)
    layer = bound()
    group = nn.fuse_linears(bound(), bound())
    gated = nn.fuse_linears(bound(bias=False), bound(bias=False), activation="swiglu")
    cases = {
        "a Python function": (identity, array, False),
        "Linear, Tensor input": (layer, tensor, True),
        "Linear, NumPy input": (layer, array, True),
        "Linear, NumPy in and out": (lambda x: layer(x).numpy(), array, False),
        "group of two, Tensor input": (group, tensor, True),
        "group of two, NumPy input": (group, array, True),
        "gated group, Tensor input": (gated, tensor, True),
    }
    missed = False
    for name, (function, x, has_goal) in cases.items():
        taken = seconds(function, x)
        kept = not has_goal or taken < GOAL
        missed |= not kept
        if options.json:
            print(json.dumps({"case": name, "seconds": taken, "goal": GOAL if has_goal else None, "kept": kept}))
        else:
            verdict = f"   goal {GOAL * 1e6:.0f} us: {'ok' if kept else 'MISSED'}" if has_goal else ""
            print(f"{name:28} {taken * 1e6:6.3f} us{verdict}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
