"""Counts dispatches and takes times, before and after fusing, on what the networks really feed their groups."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from clika_runtime import count_dispatches, kernels

from .parallel import Parallel

_SHORTEST_SAMPLE = 1e-3  # seconds: a call that takes less is repeated until a sample is this long


@dataclass
class Row:
    """A group, or a whole forward when `kernel` is empty."""

    network: str
    group: str
    parts: str
    dispatches_before: int
    dispatches_after: int
    seconds_before: float
    seconds_after: float
    kernel: str = ""
    code_bytes: int | None = None
    jit_seconds: float | None = None


def dispatches(call: Callable[[], object]) -> tuple[int, dict[str, int]]:
    with count_dispatches() as counter:
        call()
    return counter.total, dict(counter.by_kernel)


def compare_times(before: Callable[[], object], after: Callable[[], object], repeats: int) -> tuple[float, float]:
    """The median seconds of one call each. The two take turns, so that a noisy moment hits both."""
    calls = (before, after)
    counts, samples = [], ([], [])
    for call in calls:
        call()
        start = time.perf_counter()
        call()
        counts.append(max(1, round(_SHORTEST_SAMPLE / max(time.perf_counter() - start, 1e-9))))
    for _ in range(repeats):
        for call, count, taken in zip(calls, counts, samples, strict=True):
            start = time.perf_counter()
            for _ in range(count):
                call()
            taken.append((time.perf_counter() - start) / count)
    return statistics.median(samples[0]), statistics.median(samples[1])


def group_row(network: str, plain: Parallel, fused: Parallel, repeats: int) -> Row:
    """Both have run once, so that packing and compiling are over and `last_input` is set."""
    x = plain.last_input
    before, _ = dispatches(lambda: plain.forward(x))
    after, by_kernel = dispatches(lambda: fused.forward(x))
    times = compare_times(lambda: plain.forward(x), lambda: fused.forward(x), repeats)
    sizes = "+".join(map(str, fused.group.split_sizes))
    row = Row(network, fused.name, f"{len(plain.parts)} ({sizes})", before, after, *times, kernel="side by side")
    if len(by_kernel) == 1:
        signature = next(iter(by_kernel))
        entry = next((entry for entry in kernels.list() if entry["signature"] == signature), None)
        if entry is not None:
            row.kernel = f"{entry['emitter']}/{entry['isa']}"
            row.code_bytes, row.jit_seconds = entry["code_bytes"], entry["jit_seconds"]
    return row


def forward_row(network: str, plain: Callable[[], object], fused: Callable[[], object], repeats: int) -> Row:
    before, _ = dispatches(plain)
    after, _ = dispatches(fused)
    return Row(network, "whole forward", "", before, after, *compare_times(plain, fused, repeats))
