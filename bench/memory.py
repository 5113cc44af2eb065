"""How often a fused model holds its weights: resident memory against the checkpoint's bytes.

    .venv/bin/python bench/memory.py [--gigabytes 1.1] [--json]

A synthetic checkpoint of transformer layers (q/k/v and gate/up groups) is loaded, fused and run once, each way of
holding weights in a process of its own. Two ratios count:
  - resident: what the process grew by from before the load to after the first forward, over the checkpoint's bytes;
    goal 1.03;
  - peak: the most it grew by while fusing and packing, over the checkpoint plus its largest group; goal 1.03.
Growth is the anonymous memory of the process (RssAnon, sampled for the peak where the checkpoint is a mapped file) or
all of it (VmRSS, VmHWM): pages of a mapped file are the system's to drop. Leaves with 1 when a goal is missed.
"""

import argparse
import ctypes
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable

import numpy as np

GOAL = 1.03
WIDTH, INNER = 2048, 5632  # one layer: q/k/v of 2048x2048, gate/up of 5632x2048
GROUPS = (("q", "k", "v"), ("gate", "up"))
WAYS = ("copied", "assigned", "mapped", "per_call")


def status(field: str) -> int:
    """Bytes of a line of /proc/self/status."""
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    raise KeyError(field)


def settle() -> None:
    """Gives freed memory back to the system, so that what stays resident is in use."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def map_large_blocks() -> None:
    """Every tensor gets pages of its own: the C library would else keep freed blocks below 32 MB in its heap."""
    m_mmap_threshold = -3
    ctypes.CDLL(None).mallopt(m_mmap_threshold, 1 << 20)


def restart_peak() -> None:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def tensor(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random(shape, np.float32)


def shapes(layers: int) -> dict[str, tuple[int, int]]:
    names = {}
    for i in range(layers):
        names |= {f"layers.{i}.{part}.weight": (WIDTH, WIDTH) for part in GROUPS[0]}
        names |= {f"layers.{i}.{part}.weight": (INNER, WIDTH) for part in GROUPS[1]}
    return names


def build(layers: int, residency: str):
    from clika_runtime import nn

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            for part in GROUPS[0]:
                setattr(self, part, nn.Linear(WIDTH, WIDTH, bias=False, residency=residency))
            for part in GROUPS[1]:
                setattr(self, part, nn.Linear(WIDTH, INNER, bias=False, residency=residency))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([Layer() for _ in range(layers)])

    return Model()


def load(model, way: str, names: dict[str, tuple[int, int]], path: str) -> None:
    if way == "copied":
        # Tensor by tensor, as a loader does that reads a checkpoint in pieces: the source never adds up.
        for seed, (name, shape) in enumerate(names.items()):
            model.load_state_dict({name: tensor(shape, seed)}, strict=False)
    elif way == "mapped":
        mapped = np.memmap(path, np.float32, "r")
        state, start = {}, 0
        for name, shape in names.items():
            state[name] = mapped[start : start + shape[0] * shape[1]].reshape(shape)
            start += shape[0] * shape[1]
        model.load_state_dict(state, assign=True)
    else:
        state = {name: tensor(shape, seed) for seed, (name, shape) in enumerate(names.items())}
        model.load_state_dict(state, assign=True)


def measure(way: str, layers: int, path: str) -> dict:
    """Runs in a process of its own."""
    from clika_runtime import nn

    def step(call: Callable[[], object], peak: list[int]) -> object:
        result = call()
        peak.append(status("RssAnon"))
        return result

    map_large_blocks()
    names = shapes(layers)
    if way == "mapped":
        with open(path, "wb") as file:
            for seed, shape in enumerate(names.values()):
                tensor(shape, seed).tofile(file)
    model = build(layers, "per_call" if way == "per_call" else "packed")
    x = tensor((1, WIDTH), 0)
    warm = nn.Linear(WIDTH, WIDTH)
    warm.bind(weight=tensor((WIDTH, WIDTH), 0), bias=np.zeros(WIDTH, np.float32))
    warm(x)  # threads, kernels and their scratch are not the model's
    del warm
    settle()
    resident = "RssAnon" if way == "mapped" else "VmRSS"
    start = status(resident)
    load(model, way, names, path)
    settle()
    loaded = status(resident)
    restart_peak()
    peaks: list[int] = []
    groups = []
    for layer in model.layers:
        for parts, activation in zip(GROUPS, (None, "swiglu"), strict=True):
            fuse = lambda parts=parts, layer=layer, activation=activation: nn.fuse_linears(  # noqa: E731
                *(getattr(layer, part) for part in parts), activation=activation
            )
            groups.append(step(fuse, peaks))
            step(lambda: groups[-1](x), peaks)
    peak = max(peaks) if way == "mapped" else status("VmHWM")
    settle()
    end = status(resident)
    checkpoint = sum(4 * rows * columns for rows, columns in names.values())
    largest = 4 * 2 * INNER * WIDTH
    return {
        "way": way,
        "fused": all(group.fused for group in groups),
        "checkpoint_bytes": checkpoint,
        "loaded": (loaded - start) / checkpoint,
        "resident": (end - start) / checkpoint,
        "peak": (peak - start) / (checkpoint + largest),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=1.1, help="the checkpoint's size, at least (default 1.1)")
    parser.add_argument("--json", action="store_true", help="one JSON object a line instead of a table")
    parser.add_argument("--way", choices=WAYS, action="append", help="only this one (may be repeated)")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    layers = -int(-options.gigabytes * 1e9 // (4 * WIDTH * (3 * WIDTH + 2 * INNER)))
    if options.child is not None:
        print(json.dumps(measure(options.way[0], layers, options.child)))
        return 0
    missed = False
    if not options.json:
        print(f"{'way':10} {'checkpoint':>12} {'loaded':>8} {'resident':>9} {'peak':>6}   goal {GOAL}")
    for way in options.way or WAYS:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, __file__, "--way", way, "--gigabytes", str(options.gigabytes)]
            child = subprocess.run(
                [*command, "--child", os.path.join(folder, "weights")], capture_output=True, text=True
            )
        if child.returncode != 0:
            sys.exit(f"{way}: {child.stderr}")
        result = json.loads(child.stdout)
        kept = result["fused"] and result["resident"] <= GOAL and result["peak"] <= GOAL
        missed |= not kept
        if options.json:
            print(json.dumps({**result, "goal": GOAL, "kept": kept}))
        else:
            print(
                f"{way:10} {result['checkpoint_bytes'] / 1e9:9.2f} GB {result['loaded']:8.3f} "
                f"{result['resident']:9.3f} {result['peak']:6.3f}   {'ok' if kept else 'MISSED'}",
                flush=True,
            )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
