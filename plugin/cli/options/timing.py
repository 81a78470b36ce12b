"""Options that say what is timed and beside which runtimes, and functions that check them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from sartor.cli.options.common import existing_file
from sartor.cli.options.used_files import model_files, module_files
from sartor.comparison.bench_job import PEERS
from sartor.errors import UsageError
from sartor.first_inference.cold_bench import STOCK
from sartor.publishing import check_apart

DEFAULT_PEER = "onnxruntime"
DEFAULT_ROUNDS = 20
ROUNDS_WITH_PEERS = 8
"""Beside other runtimes, where a round is a block of runs of each."""
_MOST_ROUNDS = 10**9

TimedModule = Annotated[Path | None, typer.Argument(metavar="[MODEL.vmfb]", help="A compiled module.")]
TimedModelOption = Annotated[
    Path | None, typer.Option("--vs", metavar="MODEL.onnx", help="The model for other runtimes.")
]
PeersOption = Annotated[
    str | None,
    typer.Option(
        "--peers",
        help=f"Runtimes to compare with: {','.join(PEERS)}, with --cold also {STOCK}. (default: {DEFAULT_PEER})",
    ),
]
RoundsOption = Annotated[
    int | None,
    typer.Option(
        "--rounds",
        min=1,
        max=_MOST_ROUNDS,
        help="Exactly so many rounds: inferences, or beside other runtimes blocks of a quarter of a second. "
        f"(default: {DEFAULT_ROUNDS} or more, blocks {ROUNDS_WITH_PEERS})",
    ),
]
DispatchesOption = Annotated[
    bool, typer.Option("--dispatches", help="Show where the time goes, dispatch by dispatch, and what was predicted.")
]
TraceOption = Annotated[
    Path | None,
    typer.Option("--trace", metavar="FILE.json", help="Write inferences and layers as a trace for Perfetto or Chrome."),
]
PeakOption = Annotated[
    bool, typer.Option("--peak", help="Measure the machine instead: its f32 peak and memory bandwidth.")
]
ColdOption = Annotated[
    bool,
    typer.Option(
        "--cold", help="Time the first inference instead: each in a fresh process, its files in memory or not."
    ),
]
PeakDatabaseOption = Annotated[
    Path | None,
    typer.Option("--tuning-db", help="Tuning database for --peak. (default: in the user's cache directory)"),
]


def check_peak_stands_alone(given: Mapping[str, object]) -> None:
    """Make sure that nothing beside ``--peak`` is given that needs a module.

    Args:
        given: values of other options and arguments, by their names.

    Raises:
        UsageError: if one of them is given.
    """
    names = [name for name, value in given.items() if value]
    if names:
        raise UsageError(f"--peak measures the machine, not a module; leave {names[0]} out")


def named_module(module: Path | None, tuning_db: Path | None) -> Path:
    """The module to time.

    Raises:
        UsageError: if there is none, or a database, which only ``--peak`` needs.
    """
    if module is None:
        raise UsageError("there is nothing to time; name a compiled module, or measure the machine with --peak")
    if tuning_db is not None:
        raise UsageError("--tuning-db is for --peak; a module is timed anew each time")
    return module


def check_trace(trace: Path, module: Path, vs: Path | None, sources: Mapping[str, str]) -> None:
    """Make sure that the trace can be written, and over nothing that is read.

    Raises:
        UsageError: if not.
    """
    inputs = [(f"the input '{name}'", Path(source)) for name, source in sources.items()]
    check_apart({"--trace": trace}, [*module_files(module), *(model_files(vs) if vs else []), *inputs])


def timed_peers(vs: Path | None, peers: str | None, known: Sequence[str]) -> tuple[str, ...]:
    """The names of the runtimes beside which a module is timed; none if neither they nor a model are given.

    Raises:
        UsageError: if a name is not among ``known``, or there is no model that they could run.
    """
    if vs is None and peers is None:
        return ()
    if vs is not None:
        existing_file(vs)
    names = read_peers(peers, known)
    if vs is None and set(names) != {STOCK}:
        raise UsageError("--peers needs the ONNX model they run; name it with --vs")
    return names


def read_peers(text: str | None, known: Sequence[str]) -> tuple[str, ...]:
    """The names of runtimes that ``--peers`` lists, the usual one by default.

    Raises:
        UsageError: if one is not among ``known``.
    """
    names = tuple(dict.fromkeys((text or DEFAULT_PEER).split(",")))
    if unknown := [name for name in names if name not in known]:
        raise UsageError(f"'{unknown[0]}' is no peer, choose among {', '.join(known)}")
    return names
