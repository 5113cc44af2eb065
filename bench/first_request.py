"""What a first request waits for: with an empty cache, with a warm disk cache, and with the kernel in memory.

    .venv/bin/python bench/first_request.py [--quick] [--json]

A linear of 384 by 1152 with gelu, one row of float32 and one thread, and the kernel alone of that linear and of a
weight-only one of 4096 by 6144 (int4_g32). Next to it, on the same linear, oneDNN (the primitive, and with the weights'
reordering and the execution) and `torch.compile` (a request; its caches are inductor's); `./dev peers` installs both,
and what is not installed is skipped. oneDNN keeps nothing on disk, so all its processes are cold.

A cold and a warm figure are taken in a process of their own each, which has imported its library and bound the weights
when the clock starts; `again` is a second layer of the same shape in that process, `later` the least of a thousand
further calls. Figures are medians over the rounds, in microseconds. There is no goal here: `./dev bench cache` has one
for a disk hit.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ONE_THREAD = {"CLIKART_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # a barrier's waits are not what is asked here
FOLDER = Path(__file__).resolve().parent / "first_requests"
ABSENT = 3  # a child's status where what it needs is not installed
SHAPE = {"in": 384, "out": 1152}
MANIFEST = "clikart warm-up manifest 1\nkernel "
KERNELS = {
    "kernel alone, Linear": "kind=float n=1152 k=384 x=f32 w=f32 y=f32 bias=f32 act=gelu",
    "kernel alone, int4_g32 4096x6144": "kind=weight_only n=6144 k=4096 x=f32 w=u8 y=f32 bias=none scheme=int4_g32",
}
ROUNDS, QUICK_ROUNDS = 9, 3
COMPILE_ROUNDS = 3  # of torch.compile, whose cold request takes seconds
COLUMNS = ("cold", "warm disk", "again", "later")
Row = dict[str, float]


class Absent(Exception):
    """The child's message on what is not installed."""


def child(script: str, work: dict, **environment: str) -> dict:
    command = [sys.executable, str(FOLDER / script), json.dumps(work)]
    done = subprocess.run(
        command, env={**os.environ, **ONE_THREAD, **environment}, capture_output=True, text=True, check=False
    )
    if done.returncode == ABSENT:
        raise Absent(done.stderr.strip())
    if done.returncode != 0:
        sys.exit(f"{script}: {done.stderr}")
    return json.loads(done.stdout)


def medians(rows: list[Row]) -> Row:
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]}


def ours(work: dict, rounds: int) -> Row:
    def once() -> Row:
        with tempfile.TemporaryDirectory() as cache:
            settings = {"CLIKART_CACHE_DIR": cache, "CLIKART_CACHE_SYSTEM_DIR": "", "CLIKART_CACHE": "disk"}
            cold, warm = (child("ours.py", work, **settings) for _ in range(2))
        generated = (cold["compiled"], cold["loaded"], warm["compiled"], warm["loaded"])
        if generated != (1, 0, 0, 1):
            print(f"bench: compiled and loaded {generated}: no emitter makes this kernel here", file=sys.stderr)
        row = {"cold": cold["first"], "warm disk": warm["first"], "again": warm["again"]}
        return row | ({"later": warm["later"]} if "later" in warm else {})

    return medians([once() for _ in range(rounds)])


def onednn(rounds: int) -> Iterator[tuple[str, Row]]:
    taken = [child("onednn.py", SHAPE) for _ in range(rounds)]
    for name, what in (("kernel", "oneDNN primitive alone, Linear"), ("request", "oneDNN request, Linear")):
        row = medians([{"cold": one["first"][name], "again": one["again"][name]} for one in taken])
        if name == "request":
            row["later"] = statistics.median(one["later"] for one in taken)
        yield what, row


def torch_compile(rounds: int) -> Iterator[tuple[str, Row]]:
    def once() -> Row:
        with tempfile.TemporaryDirectory() as cache:
            cold, warm = (child("torch_compile.py", SHAPE, TORCHINDUCTOR_CACHE_DIR=cache) for _ in range(2))
        return {"cold": cold["first"], "warm disk": warm["first"], "again": warm["again"], "later": warm["later"]}

    yield "torch.compile request, Linear", medians([once() for _ in range(rounds)])


def rows(quick: bool) -> Iterator[tuple[str, Row]]:
    rounds = QUICK_ROUNDS if quick else ROUNDS
    yield "request, Linear 384x1152 gelu", ours(SHAPE, rounds)
    for name, kernel in KERNELS.items():
        yield name, ours({"manifest": MANIFEST + kernel + "\n"}, rounds)
    for peer, count in ((onednn, rounds), (torch_compile, 1 if quick else COMPILE_ROUNDS)):
        try:
            yield from peer(count)
        except Absent as absent:
            print(f"bench: {peer.__name__} skipped: {absent} (./dev peers installs the peers)", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROUNDS} rounds, and one of torch.compile")
    parser.add_argument("--json", action="store_true", help="one JSON object a line instead of a table")
    options = parser.parse_args()
    if not options.json:
        print(f"{'microseconds':36}" + "".join(f"{column:>13}" for column in COLUMNS))
    for name, row in rows(options.quick):
        if options.json:
            print(json.dumps({"case": name, "seconds": row}), flush=True)
        else:
            cells = (f"{row[column] * 1e6:13.1f}" if column in row else f"{'-':>13}" for column in COLUMNS)
            print(f"{name:36}" + "".join(cells), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
