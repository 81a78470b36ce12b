"""Results that were not measured."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.record.circumstances import Circumstances
from benchmarks.record.results import Entry, Result

MADE = Circumstances(
    commit="0123456789",
    date="2026-11-23",
    command="python -m benchmarks.record run zoo",
    machine="a processor, x86_64, 2 cores",
    features=("avx2", "avx512f"),
    cores=2,
    system="Linux 6.1",
    load=0.1,
    versions={"onnxruntime": "1.32.0"},
)


def entry(*processes: Sequence[float], error: float = 1e-6, **facts: float | str) -> Entry:
    """An entry with the given samples in milliseconds, one sequence for each process."""
    return Entry(tuple(tuple(sample * 1e-3 for sample in samples) for samples in processes), error, facts=facts)


def zoo_result(network: str, ours: Entry, threads: int = 1, **others: Entry) -> Result:
    """A result of the zoo; the peers are ``ort`` and ``openvino``."""
    names = {"ort": "ONNX Runtime", "openvino": "OpenVINO", "iree": "IREE", "best": "IREE, best flags"}
    entries = {"Sartor": ours} | {names[each]: given for each, given in others.items()}
    return Result("zoo", network, threads, MADE, entries)
