"""A library in a process of its own: its threads sleep, and its settings bind nobody, while others are measured."""

import contextlib
import importlib
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection

from .work import Activations, Turn, Variant, Work

LONGEST_TURN = 8.0  # seconds; of what is expected to take longer nothing is measured
SAMPLE = 0.05  # seconds that a sample takes at least


@dataclass(frozen=True)
class Prepared:
    """A variant that is ready for some number of rows, or why it does not take part."""

    name: str
    activations: Activations
    error: float | None  # against float64, where it ran
    problem: str | None
    seconds: float | None = None  # of a turn, about


class Server:
    """What runs in the process."""

    def __init__(self, module: str, work: Work, threads: int):
        self.work = work
        self.variants = list(importlib.import_module(f"{__package__}.{module}").variants(work, threads))
        self.turns: dict[str, Turn] = {}
        self.seconds: dict[str, tuple[int, float]] = {}  # of the last turn: rows, seconds

    def prepare(self, rows: int) -> list[Prepared]:
        self.turns.clear()
        return [self._prepare(variant, rows) for variant in self.variants]

    def _prepare(self, variant: Variant, rows: int) -> Prepared:
        before, expected = self.seconds.get(variant.name, (rows, 0.0))
        if expected * rows / before > LONGEST_TURN:
            return Prepared(variant.name, variant.activations, None, "slow")
        x = self.work.rows(rows)
        try:
            turn = variant.prepare(x)
            turn.run()
            start = time.perf_counter()
            turn.run()
            taken = time.perf_counter() - start
        except Exception as error:  # of another library: any
            return Prepared(variant.name, variant.activations, None, f"{type(error).__name__}: {error}".split("\n")[0])
        self.seconds[variant.name] = rows, taken
        error = self.work.error(turn, x)
        if not error <= variant.activations.tolerance:
            return Prepared(variant.name, variant.activations, error, "wrong")
        self.turns[variant.name] = turn
        return Prepared(variant.name, variant.activations, error, None, taken)

    def sample(self, name: str, clock: Callable[[], float]) -> float:
        """Seconds of a layer."""
        turn, expected = self.turns[name], self.seconds[name][1]
        if expected < SAMPLE:
            turn.run()  # wakes threads, and fills the caches with this library's last layers
        turns = max(1, round(SAMPLE / expected))
        start = clock()
        for _ in range(turns):
            turn.run()
        return (clock() - start) / turns / self.work.layers


def serve(connection: Connection, module: str, work: Work, threads: int) -> None:
    try:
        server = Server(module, work, threads)
    except ImportError as error:
        connection.send(error.name or str(error))
        return
    with contextlib.suppress(EOFError):  # the bench has ended before us
        connection.send(None)
        while (request := connection.recv()) is not None:
            method, arguments = request
            connection.send(getattr(server, method)(*arguments))


class Worker:
    """The other end of it. `absent` names the module that is not installed."""

    def __init__(self, module: str, work: Work, threads: int):
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, module, work, threads), daemon=True)
        self._process.start()
        theirs.close()
        self.absent: str | None = self._receive()

    def prepare(self, rows: int) -> list[Prepared]:
        return self._ask("prepare", rows)

    def sample(self, name: str, clock: Callable[[], float]) -> float:
        return self._ask("sample", name, clock)

    def _ask(self, method: str, *arguments):
        self._connection.send((method, arguments))
        return self._receive()

    def _receive(self):
        try:
            return self._connection.recv()
        except EOFError:
            self._process.join()
            raise RuntimeError(f"ended with status {self._process.exitcode}") from None

    def close(self) -> None:
        if self.absent is None and self._process.is_alive():
            self._connection.send(None)
        self._process.join()
