"""Prints rows and checks: with `rich` where it is installed, as plain text else."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from .measure import Row

_HEADINGS = ("network", "group", "parts", "dispatches", "time before", "time after", "ratio", "kernel", "code", "JIT")
_LEFT = {"network", "group", "parts", "kernel"}


@dataclass
class Check:
    """One promise and whether it was kept."""

    name: str
    passed: bool
    detail: str


def seconds(value: float) -> str:
    for limit, factor, unit in ((1e-3, 1e6, "us"), (1.0, 1e3, "ms")):
        if value < limit:
            return f"{value * factor:.1f} {unit}"
    return f"{value:.2f} s"


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.network,
        row.group,
        row.parts,
        f"{row.dispatches_before} -> {row.dispatches_after}",
        seconds(row.seconds_before),
        seconds(row.seconds_after),
        f"{row.seconds_before / row.seconds_after:.2f}x",
        row.kernel,
        "" if row.code_bytes is None else f"{row.code_bytes:,} B",
        "" if row.jit_seconds is None else seconds(row.jit_seconds),
    )


def print_table(title: str, rows: Sequence[Row]) -> None:
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        _print_plain(title, [_cells(row) for row in rows])
        return
    table = Table(title=title, title_justify="left")
    for heading in _HEADINGS:
        table.add_column(heading, justify="left" if heading in _LEFT else "right", no_wrap=True)
    for row in rows:
        table.add_row(*_cells(row), style=None if row.kernel else "bold", end_section=not row.kernel)
    # Into a pipe there is no screen to fit: the table takes what it needs.
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def _print_plain(title: str, rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(cells[i]) for cells in (_HEADINGS, *rows)) for i in range(len(_HEADINGS))]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.ljust(width) if heading in _LEFT else cell.rjust(width)
            for cell, width, heading in zip(cells, widths, _HEADINGS, strict=True)
        )
        return "  ".join(padded).rstrip()

    print(title)
    print(line(_HEADINGS))
    print("  ".join("-" * width for width in widths))
    for row in rows:
        print(line(row))


def print_checks(checks: Sequence[Check]) -> None:
    for check in checks:
        print(f"{'ok  ' if check.passed else 'FAIL'}  {check.name}: {check.detail}")
