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
FEWER_ROWS = (1, 4)  # tried before more, to tell how long those take
SAMPLE = 0.05  # seconds that a sample takes at least
SETTLE = 0.1  # seconds in which the threads of the library before stop spinning for more work
LONG_TURN = 1.0  # seconds, beside which waking up is nothing


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
        self.turn_seconds: dict[str, float] = {}
        self.seconds: dict[str, dict[int, float]] = {variant.name: {} for variant in self.variants}  # a turn, by rows

    def prepare(self, rows: int) -> list[Prepared]:
        self.turns.clear()
        return [self._prepare(variant, rows) for variant in self.variants]

    def _prepare(self, variant: Variant, rows: int) -> Prepared:
        for fewer in FEWER_ROWS:
            if fewer < rows and fewer not in self.seconds[variant.name]:
                self._prepare(variant, fewer)
        if self._expected(variant.name, rows) > LONGEST_TURN:
            return Prepared(variant.name, variant.activations, None, "slow")
        x = self.work.rows(rows)
        try:
            turn = variant.prepare(x)
            turn.run()
            start = time.perf_counter()
            turn.run()
            taken = self.seconds[variant.name][rows] = time.perf_counter() - start
        except Exception as error:  # of another library: any
            return Prepared(variant.name, variant.activations, None, f"{type(error).__name__}: {error}".split("\n")[0])
        error = self.work.error(turn, x)
        if not error <= variant.activations.tolerance:
            return Prepared(variant.name, variant.activations, error, "wrong")
        self.turns[variant.name], self.turn_seconds[variant.name] = turn, taken
        return Prepared(variant.name, variant.activations, error, None, taken)

    def _expected(self, name: str, rows: int) -> float:
        """Seconds of a turn, on the line through the two largest numbers of rows that were tried; 0 before two were."""
        points = sorted(self.seconds[name].items())[-2:]
        if len(points) < 2:
            return 0.0
        (r0, s0), (r1, s1) = points
        return s1 + (s1 - s0) / (r1 - r0) * (rows - r1)

    def sample(self, name: str, clock: Callable[[], float]) -> float:
        """Seconds of a layer."""
        turn, expected = self.turns[name], self.turn_seconds[name]
        time.sleep(SETTLE)
        if expected < LONG_TURN:
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
