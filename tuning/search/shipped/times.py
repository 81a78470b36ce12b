"""Reads and writes the times of variants that are part of the package.

A file is for one class of instruction sets and one number of threads, and lists tasks by their facts, each with its
variants' descriptors and microseconds. One command makes it from a database of full searches
(``python -m benchmarks.selection ship``, docs/records/tuning.md).
"""

from __future__ import annotations

import functools
import gzip
import json
import logging
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sartor.codegen.analysis.task_bounds import kind_and_sizes
from sartor.codegen.routine_registry import described, routine_names
from sartor.tuning.search.cost_model import Sample

_LOG = logging.getLogger(__name__)
_FOLDER = Path(__file__).parent
_FORMAT = 1
# A file of which more samples name no routine was made for other kernels.
_MOST_UNKNOWN = 0.05
_UNITS = 1e6

MOST_SLOWDOWN = 5.0
"""Variants that are slower than so many times their task's fastest are left out: they say little about which one is
fastest, and are half of all."""


class MisfitError(ValueError):
    """A file of times is damaged, or was made for other routines or facts."""


def shipped_samples(isa: str, threads: int, folder: Path = _FOLDER) -> tuple[Sample, ...]:
    """The package's samples for machines of a kind; none if there are none, or the file does not fit this version.

    Where there is no file for several threads, that for one serves: whichever variant of a task is fastest there mostly
    is with more, and the search scales the times to what it measures.

    Args:
        isa: the class of instruction sets, as ``isa_class`` names it.
        threads: number of threads that are tuned for.
        folder: of the files.
    """
    path = path_of(isa, threads, folder)
    if path is None:
        return ()
    try:
        return read(path)
    except MisfitError as error:
        _LOG.warning("the package's measured times are not used: %s", error)
        return ()


def path_of(isa: str, threads: int, folder: Path = _FOLDER) -> Path | None:
    """The file of ``shipped_samples``; None if there is none."""
    return next((path for path in (folder / _name(isa, threads), folder / _name(isa, 1)) if path.exists()), None)


def write_samples(samples: Iterable[Sample], isa: str, threads: int, folder: Path = _FOLDER) -> Path:
    """Write samples of a class of instruction sets, those near their task's fastest alone; returns the file."""
    path = folder / _name(isa, threads)
    path.write_bytes(content(near_best(samples)))
    return path


def content(samples: Iterable[Sample]) -> bytes:
    """Samples as a file has them; equal ones give equal bytes, in whatever order they come."""
    tasks: dict[str, dict[str, float]] = {}
    for sample in sorted(samples, key=_order):
        # Of two times of a variant, as before and after its code changed, the first is the least.
        tasks.setdefault(sample.facts, {}).setdefault(
            sample.variant.descriptor, float(f"{sample.seconds * _UNITS:.4g}")
        )
    listed = [[facts, sorted(tasks[facts].items())] for facts in sorted(tasks)]
    text = json.dumps({"format": _FORMAT, "tasks": listed}, separators=(",", ":"))
    return gzip.compress(text.encode(), mtime=0)


def near_best(samples: Iterable[Sample]) -> list[Sample]:
    """The samples that are not far slower than the fastest with the same facts, sorted."""
    ordered = sorted(samples, key=_order)
    least: dict[str, float] = {}
    for sample in ordered:
        least[sample.facts] = min(sample.seconds, least.get(sample.facts, sample.seconds))
    return [sample for sample in ordered if sample.seconds <= MOST_SLOWDOWN * least[sample.facts]]


def _order(sample: Sample) -> tuple[str, str, float]:
    return sample.facts, sample.variant.descriptor, sample.seconds


def _name(isa: str, threads: int) -> str:
    return f"{isa}-{threads}.json.gz"


@functools.lru_cache(maxsize=2)
def read(path: Path) -> tuple[Sample, ...]:
    """The samples of a file whose routines there are.

    Raises:
        MisfitError: if it cannot be read, or many of its routines are not known.
    """
    try:
        data = json.loads(gzip.decompress(path.read_bytes()))
        samples = list(_samples(data["tasks"])) if data["format"] == _FORMAT else None
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
        raise MisfitError(f"'{path.name}' is damaged ({error})") from error
    if samples is None:
        raise MisfitError(f"'{path.name}' has another format")
    known = tuple(sample for sample in samples if sample.variant.routine in routine_names())
    if len(known) < (1 - _MOST_UNKNOWN) * len(samples):
        raise MisfitError(f"'{path.name}' was made for other routines than those of this version")
    return known


def _samples(tasks: Sequence[Sequence[Any]]) -> Iterable[Sample]:
    """The samples of a file's tasks.

    Raises:
        ValueError: if facts or times cannot be read.
    """
    # The same variants are listed for many tasks.
    known = {name: described(name) for name in dict.fromkeys(name for _, variants in tasks for name, _ in variants)}
    for facts, variants in tasks:
        kind_and_sizes(facts)
        for name, microseconds in variants:
            if not microseconds > 0:
                raise ValueError(f"{name} took {microseconds} microseconds")
            yield Sample(facts, known[name], microseconds / _UNITS)
