"""Memory of a process that runs a model with states, and what further sequences add, beside ONNX Runtime.

    python -m benchmarks.sequences decoder.onnx decoder.vmfb --calls 1000 --others 3
    python -m benchmarks.sequences vad_stream.onnx vad_stream.vmfb

Each runs in a process of its own. What is resident is what the system counts in smaps_rollup, anonymous memory and
pages of files, less what the process had when its packages were imported. Sequences share a loaded module by ``fork``,
and a session of ONNX Runtime, which has the caches that it gave bound, or the better of two ways for other states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated

import numpy as np
import onnx
import onnxruntime
import typer

from benchmarks import decoding, streaming
from sartor.runtime.manifest import Manifest, read_manifest
from sartor.runtime.runs.small import known_shape
from sartor.runtime.session import Session

_KIB, _MIB = 1 << 10, 1 << 20
Call = Callable[[int], object]
"""Runs the call of a sequence behind so many others."""

app = typer.Typer(help=__doc__)


@dataclass(frozen=True)
class Memory:
    """Bytes of a process that are resident, beyond those that it had without a model.

    Attributes:
        one: with one sequence.
        all: with the further ones.
        caches: those of the first sequence's caches, 0 of a module without.
    """

    one: int
    all: int
    caches: int = 0


def resident() -> int:
    """Bytes of this process that are in memory."""
    rows = (line.split() for line in Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines())
    return next(_KIB * int(row[1]) for row in rows if row[0] == "Rss:")


def by_sartor(model: Path, module: Path, calls: int, others: int) -> Memory:
    """A session, and those that are forked from it."""
    before = resident()
    with Session(module, threads=1) as session:
        _follow(_call_of(session), calls)
        one = resident()
        forks = [session.fork() for _ in range(others)]
        for each in forks:
            _follow(_call_of(each), calls)
        caches = decoding.resident(session) if read_manifest(module).caches else 0
        return Memory(one - before, resident() - before, caches)


def _call_of(session: Session) -> Call:
    assert session.manifest is not None
    if session.manifest.caches:
        names = [each.name for each in session.get_inputs()]
        return lambda place: session.run(["logits"], decoding.feeds(names, [1 + place % 7], place))
    inputs = streaming.samples(session.get_inputs())
    return lambda place: session.run(None, inputs[place % len(inputs)])


def by_other(model: Path, module: Path, calls: int, others: int) -> Memory:
    """A session of ONNX Runtime, and the states of as many sequences."""
    before, found, kept = resident(), list[int](), list[Call]()
    for call in _calls_of_other(model, read_manifest(module), 1 + others):
        _follow(call, calls)
        found.append(resident() - before)
        # Its states live as long as it does.
        kept.append(call)
    return Memory(found[0], found[-1])


def _calls_of_other(model: Path, manifest: Manifest, count: int) -> Iterator[Call]:
    if manifest.caches:
        peer = decoding.Peer(model, threads=1)
        for _ in range(count):
            yield _call_of_decoder(peer.fork())
        return
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
    states = {each.input: each.output for each in manifest.states}
    inputs = streaming.samples([each for each in session.get_inputs() if each.name not in states])
    for _ in range(count):
        yield _call_of_stream(streaming.Peer(session, states), inputs)


def _call_of_decoder(peer: decoding.Peer) -> Call:
    peer.begin(peer.empty)
    return lambda place: peer.run([1 + place % 7], place)


def _call_of_stream(peer: streaming.Peer, inputs: list[dict[str, streaming.Array]]) -> Call:
    return lambda place: peer.run(inputs[place % len(inputs)])


def _follow(call: Call, calls: int) -> None:
    for place in range(calls):
        call(place)


def _live(model: Path, manifest: Manifest, calls: int) -> int:
    """Bytes of a sequence's states behind so many calls."""
    if manifest.caches:
        return decoding.cache_bytes(model, calls)
    return sum(np.zeros(known_shape(spec), spec.numpy_dtype).nbytes for spec in manifest.state_specs)


def _weight_bytes(model: Path) -> int:
    return sum(len(each.raw_data) for each in onnx.load(model).graph.initializer)


@app.command()
def main(
    model: Annotated[Path, typer.Argument(help="The ONNX file.")],
    module: Annotated[Path, typer.Argument(help="Its module, which keeps the states.")],
    calls: Annotated[int, typer.Option(min=1, help="Calls of each sequence, of a decoder its tokens.")] = 200,
    others: Annotated[int, typer.Option(min=1, help="Sequences beside the first.")] = 3,
) -> None:
    """Run both, and print the tables."""
    # Each in a process of its own, whose memory holds nothing else.
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as alone:
        found = [alone.submit(run, model, module, calls, others).result() for run in (by_sartor, by_other)]
    live, weights = _live(model, read_manifest(module), calls), _weight_bytes(model)
    print(f"weights {weights / _MIB:.2f} MiB, module {module.stat().st_size / _MIB:.2f}, states {live / _MIB:.3f} live")
    if caches := found[0].caches:
        print(f"resident caches {caches / _MIB:.3f} MiB, {caches / live:.2f} times what is live")
    print("| | one sequence, MiB | each of the others |\n|---|---:|---:|")
    for name, each in zip(("Sartor", "ONNX Runtime"), found, strict=True):
        print(f"| {name} | {each.one / _MIB:.2f} | {(each.all - each.one) / others / _MIB:.3f} |")


if __name__ == "__main__":
    app()
