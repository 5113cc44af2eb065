"""Linears with 4- and 8-bit weights against other libraries, on the same weights and rows.

    .venv/bin/python bench/peers_codes.py [--quick] [--json] [--scheme int4_g32] [--rows 1] [--threads 1] [--cpu-time]

K=4096, N=6144, several layers in turn, so that weights come from memory. Peers are ggml (llama.cpp), ONNX Runtime and
PyTorch; `./dev peers` installs them, and one that is not installed is skipped. Each library has a process of its own.
Every result is compared with float64 of the same weights first, and what is wrong does not count. Then all are measured
in turn, round after round. Figures are medians of the rounds, in milliseconds a layer. A ratio is the median over the
rounds of the best peer's time divided by ours.

Goals: ratios above 1, with float activations against peers with float activations (float32 and bfloat16), and with
compute="int8" against those with 8-bit ones. Leaves with 1 where one was missed.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable

from peers.work import Work
from peers.worker import Prepared, Worker

OURS = "clikart"
PEERS = {"ggml": "libggml-python", "onnx_runtime": "onnxruntime, onnx", "torch_ops": "torch"}
WORKS = (Work(8, 0), Work(4, 32), Work(4, 128))
ROWS = (1, 4, 16, 256)
ROUNDS, QUICK_ROUNDS = 9, 3
TOO_SLOW = 10  # times the fastest: of such peers one sample is enough
LONG_TURN_ROWS = 64  # from here on a turn takes so long that fewer rounds have to do
LONG_ROUNDS = 7


def start(work: Work, threads: int) -> list[Worker]:
    workers = []
    for module in (OURS, *PEERS):
        try:
            worker = Worker(module, work, threads)
        except RuntimeError as error:
            tell(f"{module}: {error}")
            continue
        if worker.absent is None:
            workers.append(worker)
        else:
            tell(f"{module}: skipped, as {worker.absent} is not installed (./dev peers installs {PEERS[module]})")
            worker.close()
    return workers


def tell(message: str) -> None:
    print(f"bench: {message}", file=sys.stderr, flush=True)


def measure(workers: list[Worker], rows: int, rounds: int, clock: Callable[[], float]) -> dict[Prepared, list[float]]:
    """Seconds a layer, a sample each round; none of what does not take part."""
    prepared = [(worker, variant) for worker in workers for variant in worker.prepare(rows)]
    samples: dict[Prepared, list[float]] = {variant: [] for _, variant in prepared}
    taking_part = [(worker, variant) for worker, variant in prepared if variant.problem is None]
    fastest = min((variant.seconds for _, variant in taking_part), default=0.0)
    for round_number in range(rounds):
        for worker, variant in taking_part:
            slow = variant.seconds > TOO_SLOW * fastest and not variant.name.startswith(OURS)
            if round_number == 0 or not slow:
                samples[variant].append(worker.sample(variant.name, clock))
    return samples


def versus(samples: dict[Prepared, list[float]], floating: bool) -> dict | None:
    """Our variant beside the best peer with such activations; nothing where one is not there."""
    of_kind = {v: s for v, s in samples.items() if s and v.activations.floating == floating}
    ours = next((s for v, s in of_kind.items() if v.name.startswith(OURS)), None)
    peers = {v.name: s for v, s in of_kind.items() if not v.name.startswith(OURS)}
    if ours is None or not peers:
        return None
    best = min(peers, key=lambda name: statistics.median(peers[name]))
    ratio = statistics.median(theirs / own for theirs, own in zip(peers[best], ours, strict=False))
    return {"against": "float" if floating else "8-bit", "peer": best, "ratio": ratio, "kept": ratio > 1}


def cell(variant: Prepared, samples: list[float]) -> str:
    if samples:
        return f"{statistics.median(samples) * 1e3:.3f}"
    if variant.problem == "wrong":
        return f"wrong {variant.error:.2g}"
    return "slow" if variant.problem == "slow" else "failed"


def print_table(results: dict[int, dict[Prepared, list[float]]], goals: dict[int, list[dict]]) -> None:
    names = dict.fromkeys((v.name, str(v.activations)) for samples in results.values() for v in samples)
    print(f"  {'ms a layer':36} {'activations':12}" + "".join(f"{f'm={rows}':>12}" for rows in results))
    for name, activations in names:
        cells = [next(cell(v, s) for v, s in samples.items() if v.name == name) for samples in results.values()]
        print(f"  {name:36} {activations:12}" + "".join(f"{text:>12}" for text in cells))
    for rows, of_rows in goals.items():
        for goal in of_rows:
            verdict = "ok" if goal["kept"] else "MISSED"
            name = f"m={rows}, {goal['against']} activations"
            print(f"  {name:32} {goal['ratio']:5.2f} times as fast as {goal['peer']}   goal 1: {verdict}")
    problems = {v.problem for s in results.values() for v in s if v.problem not in (None, "wrong", "slow")}
    for problem in sorted(problems):
        print(f"  failed: {problem}")
    sys.stdout.flush()


def print_json(work: Work, threads: int, rows: int, samples: dict[Prepared, list[float]], goals: list[dict]) -> None:
    place = {"scheme": work.scheme, "threads": threads, "rows": rows}
    for variant, taken in samples.items():
        print(
            json.dumps(
                {
                    **place,
                    "variant": variant.name,
                    "activations": str(variant.activations),
                    "error": variant.error,
                    "problem": variant.problem,
                    "seconds": statistics.median(taken) if taken else None,
                }
            )
        )
    for goal in goals:
        print(json.dumps({**place, **goal}), flush=True)


def run(work: Work, threads: int, options: argparse.Namespace) -> bool:
    """Whether every goal was kept."""
    workers = start(work, threads)
    clock = time.process_time if options.cpu_time and threads == 1 else time.perf_counter
    results, goals = {}, {}
    for rows in options.rows or ROWS:
        rounds = QUICK_ROUNDS if options.quick else LONG_ROUNDS if rows >= LONG_TURN_ROWS else ROUNDS
        results[rows] = measure(workers, rows, rounds, clock)
        goals[rows] = [goal for floating in (True, False) if (goal := versus(results[rows], floating))]
        if options.json:
            print_json(work, threads, rows, results[rows], goals[rows])
    for worker in workers:
        worker.close()
    if not options.json:
        print(f"\n{work.scheme}, {threads} thread(s), {work.layers} layers in turn")
        print_table(results, goals)
    return all(goal["kept"] for of_rows in goals.values() for goal in of_rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROUNDS} rounds")
    parser.add_argument("--json", action="store_true", help="one JSON object a line instead of tables")
    parser.add_argument(
        "--scheme", action="append", choices=[w.scheme for w in WORKS], help="only this one (repeatable)"
    )
    parser.add_argument("--rows", action="append", type=int, help="only so many rows (repeatable)")
    parser.add_argument("--threads", action="append", type=int, help="only so many threads (repeatable)")
    parser.add_argument(
        "--cpu-time", action="store_true", help="with one thread: without what other programs took of the core"
    )
    options = parser.parse_args()
    if (load := os.getloadavg()[0]) > 1:
        tell(f"other programs use the cores (load {load:.1f}); figures with several threads say little then")
    kept = True
    for threads in options.threads or (1, 2):
        for work in WORKS:
            if not options.scheme or work.scheme in options.scheme:
                kept = run(work, threads, options) and kept
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
