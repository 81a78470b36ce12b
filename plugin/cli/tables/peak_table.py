"""``sartor bench --peak``: measure the machine's peak performance and bandwidth."""

from __future__ import annotations

from pathlib import Path

from sartor.cli.output.terminal import gflops, show_json, show_table, tuning_progress
from sartor.codegen.ir.target import Target
from sartor.config import CompileConfig, default_database
from sartor.costing.machine_limits import MachineLimits, machine_limits
from sartor.devices import CPU


def bench_machine(threads: int, database: Path | None, as_json: bool) -> None:
    """Measure this machine with one thread and with ``threads``; print the result as a table or JSON."""
    config = CompileConfig(target=Target.create(CPU), jobs=1, database=database or default_database())
    with tuning_progress() as progress:
        limits = machine_limits(config.target, sorted({1, threads}), config.database, progress)
    (_show_json if as_json else _show_table)(limits)


def _show_json(limits: list[MachineLimits]) -> None:
    rows = [
        {"threads": limit.threads, "gflops": limit.operations / 1e9, "read_gb_per_s": limit.bandwidth / 1e9}
        for limit in limits
    ]
    show_json({"peak": rows})


def _show_table(limits: list[MachineLimits]) -> None:
    rows = [[str(limit.threads), gflops(limit.operations), f"{limit.bandwidth / 1e9:.1f}"] for limit in limits]
    columns = ("threads", "f32 GFLOP/s", "read from memory GB/s")
    show_table("this machine at most", columns, rows, right=(0, 1, 2))
