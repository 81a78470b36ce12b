"""The first call with each size of a file for any size, by later ones with it.

    python -m benchmarks.first_calls encoder.vmfb --size batch=1 --size sequence=1,7,64,511

Each round opens a session, calls it with one of the sizes until it is where it stays in memory, and then with all
others in random order, each several times. So the first of these calls is the first that the session has with the size.
All follow a call with the size of the beginning, whose data they find in the caches. Times are those of the process, on
whichever thread, so that other programs change them little; a row has their medians.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, NamedTuple

import typer

from benchmarks.open_sizes import combinations, mean
from sartor.cli.options.sizes import sized_inputs
from sartor.runtime.driver.signature import Array
from sartor.runtime.module_facts import module_signature
from sartor.runtime.session import Session
from sartor.samples.feeds import make_feeds

Sizes = tuple[str, ...]

app = typer.Typer(help=__doc__)
# Calls with the size that is not timed, and later calls with each of the others.
_CALLS_BEFORE, _LATER = 4, 9


class Calls(NamedTuple):
    """Seconds of calls with one size: of the first, and of those that follow."""

    first: float
    later: float


@app.command()
def show(
    module: Annotated[Path, typer.Argument(help="The module for any size.")],
    size: Annotated[list[str], typer.Option(help="Sizes of a dimension, as batch=1,4,8.")],
    threads: Annotated[int, typer.Option(help="Threads of the session.")] = 1,
    rounds: Annotated[int, typer.Option(help="Sessions, each of which has a first call with each size.")] = 7,
) -> None:
    """Time first and later calls of all sizes; prints a table in Markdown."""
    inputs, listed = module_signature(module).inputs, combinations(size)
    if min(len(listed), rounds) < 2:
        raise typer.BadParameter("one size or one round has no first call behind calls with another size")
    feeds = {sizes: make_feeds(sized_inputs(module, inputs, sizes), {}) for sizes in listed}
    taken = defaultdict[Sizes, list[Calls]](list)
    for seed in range(rounds):
        with Session(module, threads=threads) as session:
            for sizes, calls in timed(session, feeds, ordered(listed, seed)).items():
                taken[sizes].append(calls)
    print("| sizes | first ms | later ms | first by later |\n|---|---:|---:|---:|")
    ratios = []
    for sizes in listed:
        first, later = (median(each) for each in zip(*taken[sizes], strict=True))
        ratios.append(median(each.first / each.later for each in taken[sizes]))
        print(f"| {', '.join(sizes)} | {first * 1e3:.3f} | {later * 1e3:.3f} | {ratios[-1]:.2f} |")
    print(f"| geometric mean | | | {mean(ratios):.2f} |\n| most | | | {max(ratios):.2f} |")


def ordered(listed: Sequence[Sizes], number: int) -> list[Sizes]:
    """The sizes of a round: one that is not timed, another in each round, and then the others in random order."""
    before = listed[number % len(listed)]
    others = [sizes for sizes in listed if sizes != before]
    return [before, *random.Random(number).sample(others, len(others))]


def timed(session: Session, feeds: Mapping[Sizes, Mapping[str, Array]], order: Sequence[Sizes]) -> dict[Sizes, Calls]:
    """The first and later calls with sizes, the first of which is called before, in a session that had no call."""
    before, *others = order
    session.settle()
    for _ in range(_CALLS_BEFORE):
        session.run(None, feeds[before])
    found = {}
    for sizes in others:
        first, *later = (_seconds(session, feeds[sizes], feeds[before]) for _ in range(1 + _LATER))
        found[sizes] = Calls(first, median(later))
    return found


def _seconds(session: Session, feeds: Mapping[str, Array], before: Mapping[str, Array]) -> float:
    """Seconds of a call that follows another one."""
    session.run(None, before)
    begin = time.process_time()
    session.run(None, feeds)
    return time.process_time() - begin


if __name__ == "__main__":
    app()
