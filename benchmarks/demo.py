"""``make demo``: tune ResNet-50 on this machine, check it, and compare it with stock IREE and its competitors."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.contest import (
    Contest,
    Opener,
    open_onnxruntime,
    open_openvino,
    open_sartor,
    open_stock,
    time_in_processes,
)
from benchmarks.peers import MANUAL
from benchmarks.record.experiments import OPENVINO, ORT, OURS, STOCK, entries_of
from benchmarks.zoo import write
from sartor.config import CompileConfig
from sartor.pipeline import compile_model
from sartor.tuning.records.hardware import host

_DIRECTORY = Path("build/demo")
_NETWORK = "resnet50"
_THREADS = 1
_SECONDS = 10.0


def main() -> None:
    """Run the demo from the repository's root; the tuning database is a fresh one."""
    console = Console()
    _DIRECTORY.mkdir(parents=True, exist_ok=True)
    database = _DIRECTORY / "tuning.db"
    database.unlink(missing_ok=True)
    started = time.monotonic()
    last = ""

    def progress(step: str, done: int, total: int) -> None:
        nonlocal last
        if step != last:
            console.print(f"{time.monotonic() - started:6.1f} s  {step}")
            last = step

    model = write(_NETWORK, _DIRECTORY)
    module = _DIRECTORY / f"{_NETWORK}.vmfb"
    artifact = compile_model(model, module, CompileConfig(threads=_THREADS, database=database), progress)
    progress("compiling with stock IREE, and timing all", 0, 1)
    console.print(_compared(model, module))
    console.print(f"{artifact.path}: {artifact.size / 1e6:.0f} MB, {len(artifact.plan.layers)} layers, one file")


def _compared(model: Path, module: Path) -> Table:
    """Sartor beside stock IREE and all competitors that are installed, on the same inputs."""
    rivals: dict[str, Opener] = {
        OURS: partial(open_sartor, module),
        STOCK: partial(open_stock, _DIRECTORY, MANUAL),
        ORT: open_onnxruntime,
        OPENVINO: partial(open_openvino, "f32"),
    }
    entries, failures = entries_of(time_in_processes(Contest(model, _THREADS, rivals, _SECONDS), 1))
    shown = Table(title=f"milliseconds per inference, batch 1, {_THREADS} thread, on {host().description}")
    for heading in ("who", "ms", "Sartor is faster by", "relative error"):
        shown.add_column(heading, justify="left" if heading == "who" else "right")
    for who, entry in entries.items():
        ratio = "" if who == OURS else f"{entry.seconds / entries[OURS].seconds:.2f}x"
        wrong = "" if entry.is_right else " (wrong)"
        shown.add_row(who, f"{entry.seconds * 1e3:.2f}", ratio, f"{entry.error:.1e}{wrong}")
    for who, reason in failures.items():
        shown.add_row(who, "-", reason, "-")
    return shown


if __name__ == "__main__":
    main()
