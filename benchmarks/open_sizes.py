"""A file for any size beside open sessions of ONNX Runtime and OpenVINO, size by size.

    python -m benchmarks.open_sizes encoder.onnx encoder.vmfb --size batch=1,4,8 --size sequence=1,7,64,511

    python -m benchmarks.open_sizes encoder.onnx rounded.vmfb --beside encoder.vmfb --max-error 0.1 --size sequence=128

All combinations of sizes are timed, each runtime in turn in one session for all of them. A row has the first call by
later ones, each behind a call with another size, Sartor's time in calls one after another, and the peers' times by
Sartor's; below are their geometric means and the least ones.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated

import numpy as np
import typer

from sartor.cli.options.sizes import sized_inputs
from sartor.runtime.benchmark import BLOCK, PAUSE, time_interleaved
from sartor.runtime.driver.signature import Array
from sartor.runtime.module_facts import module_signature
from sartor.runtime.reference import OnnxRuntimeReference, OpenVinoReference
from sartor.runtime.session import Session
from sartor.samples.feeds import make_feeds

Peer = Callable[[Mapping[str, Array]], Sequence[Array]]

app = typer.Typer(help=__doc__)
_MOST_ERROR = 1e-3
# With other sizes, before the first with new ones.
_CALLS_BEFORE = 3
# Seconds until threads of all peers sleep. Behind a shorter pause they take a core from some first calls.
_REST = 0.1
# Of each size, behind one with other sizes, whose activations take the place of weights in the caches.
_LATER = 5


@app.command()
def show(
    model: Annotated[Path, typer.Argument(help="The ONNX file.")],
    module: Annotated[Path, typer.Argument(help="Its module for any size.")],
    size: Annotated[list[str], typer.Option(help="Sizes of a dimension, as batch=1,4,8.")],
    threads: Annotated[int, typer.Option(help="Threads of each runtime.")] = 1,
    seconds: Annotated[float, typer.Option(help="Duration of the timing of a size.")] = 1.0,
    rounds: Annotated[int, typer.Option(help="Blocks of runs that each runtime has at least.")] = 5,
    block: Annotated[float, typer.Option(help="Duration of a block.")] = BLOCK,
    beside: Annotated[list[Path] | None, typer.Option(help="A further file of the model, timed as the peers.")] = None,
    max_error: Annotated[float, typer.Option(help="Of an output's largest number, what it may be off.")] = _MOST_ERROR,
) -> None:
    """Time all sizes; prints a table in Markdown."""
    peers: dict[str, Peer] = {"ONNX Runtime": OnnxRuntimeReference(model, threads=threads, is_timed=True)}
    if importlib.util.find_spec("openvino") is not None:
        peers["OpenVINO"] = OpenVinoReference(model, threads=threads)
    peers |= {f"'{other.name}'": partial(_call, Session(other, threads=threads)) for other in beside or ()}
    session, inputs = Session(module, threads=threads), module_signature(module).inputs
    print(f"| sizes | first by later | ms | {' | '.join(f'{name} by Sartor' for name in peers)} |")
    print(f"|---|---:|---:|{'---:|' * len(peers)}")
    rows, listed = [], combinations(size)
    others = make_feeds(sized_inputs(module, inputs, listed[-1]), {})
    for sizes in listed:
        feeds = make_feeds(sized_inputs(module, inputs, sizes), {})
        # The peers' memory takes the caches' place, and their threads spin, which says nothing of a size that is new.
        time.sleep(_REST)
        for _ in range(_CALLS_BEFORE):
            session.run(None, others)
        first, *later = (_seconds_behind(session, feeds, others) for _ in range(1 + _LATER))
        others = feeds
        near = partial(is_near, most=max_error)
        if not all(map(near, session.run(None, feeds), peers["ONNX Runtime"](feeds))):
            raise typer.BadParameter(f"'{module}' is wrong for {', '.join(sizes)}")
        runs = {name: partial(peer, feeds) for name, peer in peers.items()} | {"": partial(session.run, None, feeds)}
        timed = time_interleaved(runs, min_rounds=rounds, min_seconds=seconds, block=block, pause=PAUSE)
        mine = timed[""].median
        rows.append([timed[name].median / mine for name in peers])
        print(
            f"| {', '.join(sizes)} | {first / median(later):.2f} | {mine * 1e3:.3f} | {_joined(rows[-1])} |", flush=True
        )
    print(f"| geometric mean | | | {_joined([mean(ratios) for ratios in zip(*rows, strict=True)])} |")
    print(f"| least | | | {_joined([min(ratios) for ratios in zip(*rows, strict=True)])} |")


def _seconds_behind(session: Session, feeds: Mapping[str, Array], others: Mapping[str, Array]) -> float:
    """Seconds of a call behind one with other sizes."""
    session.run(None, others)
    begin = time.perf_counter()
    session.run(None, feeds)
    return time.perf_counter() - begin


def _call(session: Session, feeds: Mapping[str, Array]) -> Sequence[Array]:
    return session.run(None, feeds)


def is_near(output: Array, expected: Array, most: float = _MOST_ERROR) -> bool:
    """Whether an output is right to a part of its largest number: ONNX Runtime's sigmoids near 0 are not, in theirs."""
    return bool(np.abs(output - expected).max(initial=0.0) <= most * np.abs(expected).max(initial=0.0))


def combinations(texts: Sequence[str]) -> list[tuple[str, ...]]:
    """Each size of a dimension with each of the others, as ``batch=1``; texts are as ``batch=1,4``."""
    named = [(name, numbers.split(",")) for name, _, numbers in (text.partition("=") for text in texts)]
    return [*itertools.product(*([f"{name}={number}" for number in numbers] for name, numbers in named))]


def mean(ratios: Sequence[float]) -> float:
    """The geometric mean."""
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios))


def _joined(ratios: Sequence[float]) -> str:
    return " | ".join(f"{ratio:.2f}" for ratio in ratios)


if __name__ == "__main__":
    app()
