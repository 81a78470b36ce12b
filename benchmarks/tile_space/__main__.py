"""What the analytic shortlist of tile sizes loses against the whole space, layer by layer.

    python -m benchmarks.tile_space resnet50 mobilenet_v2 -o build/tile_space

The kernels' routines list about a dozen parameter sets for a layer. Here sets are drawn at random from all that a
routine accepts: any number of rows, columns and vectors in a register tile that its registers can hold, any number of
workgroups and of steps that are written out, whether they divide the layer's extents or not. Then the best ones found
are changed, one number at a time. All run beside those of the shortlist, and results are checked like any other's. The
best ones of both run three times more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Annotated

import typer

from benchmarks.selection.results import markdown, write_csv
from benchmarks.zoo import write
from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Parameters, Routine, Variant, variant_of
from sartor.codegen.routines import FUSED_ROUTINES, ROUTINES
from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.costing.layer_costs import make_tuner
from sartor.frontend.loading import import_network, open_workspace
from sartor.progress import silent
from sartor.tuning.cost_tables.tables import tuned_cases
from sartor.tuning.measuring.benchmark_case import BenchmarkCase
from sartor.tuning.measuring.tuner import Tuner
from sartor.tuning.records.measurement import Measurement, Status
from sartor.tuning.search.shortlist import shortlist
from sartor.tuning.store.store import Store

_NETWORKS = ("resnet50", "mobilenet_v2", "squeezenet", "googlenet", "face_mesh")
_REGISTERS = 32
# Products of parameters that count vector registers: a kernel with more sums than registers spills all of them.
_IN_REGISTERS = (("lines", "columns", "vectors"), ("window_columns", "window_vectors"))
# Numbers of steps that are written out: more make code that no cache of instructions holds.
_LIMITS = {"unroll": 16, "height": 7, "width": 7}
_LARGEST = 64
_ATTEMPTS = 40
_DECIDING = 3

app = typer.Typer(help=__doc__)


@dataclass(frozen=True)
class Row:
    """A layer's times in microseconds.

    Attributes:
        network: name.
        layer: the first one with this task.
        routine: of the best variant of the whole space.
        listed: time of the best variant of the shortlist.
        found: time of the best variant of all, timed beside it once more.
        loss: of the shortlist in percent; 0 if it has the best.
        tried: number of variants outside of the shortlist that ran and are right.
        wrong: number of those that gave a wrong result or did not compile.
        parameters: of the best variant of the whole space, where it is not in the shortlist.
    """

    network: str
    layer: str
    routine: str
    listed: float
    found: float
    loss: float
    tried: int
    wrong: int
    parameters: str


def drawn(rng: Random, listed: Sequence[Parameters]) -> dict[str, int]:
    """A parameter set for the names of those that are listed: numbers of any size, small ones as likely as large ones.

    Sums of a register tile fit the registers.
    """
    most = {name: _most(name, listed) for name in listed[0]}
    found = {name: round(2 ** rng.uniform(0, math.log2(each))) for name, each in most.items()}
    return _fitting(found, rng)


def changed(rng: Random, given: Mapping[str, int], listed: Sequence[Parameters]) -> dict[str, int]:
    """A parameter set of which one number is another, often a near one."""
    name = rng.choice(sorted(given))
    near = [given[name] - 1, given[name] + 1, given[name] * 2, given[name] // 2]
    value = rng.choice([*near, rng.randint(1, _most(name, listed))])
    return _fitting({**given, name: min(max(value, 1), _most(name, listed))}, rng)


def _most(name: str, listed: Sequence[Parameters]) -> int:
    largest = max(value for each in listed if isinstance(value := each.get(name, 1), int))
    return _LIMITS.get(name) or (_REGISTERS if name in _names_in_registers() else max(_LARGEST, 2 * largest))


def _names_in_registers() -> set[str]:
    return {name for group in _IN_REGISTERS for name in group}


def _fitting(given: dict[str, int], rng: Random) -> dict[str, int]:
    """The numbers with tiles made smaller, in a random dimension, until their sums fit the registers."""
    for group in _IN_REGISTERS:
        names = [name for name in group if name in given]
        while math.prod(given[name] for name in names) > _REGISTERS:
            name = rng.choice([each for each in names if given[each] > 1])
            given[name] -= max(1, given[name] // 4)
    return given


@dataclass(frozen=True)
class Audit:
    """Audits tasks.

    Attributes:
        tuner: measures.
        rng: draws.
        samples: number of variants that are drawn for each routine.
        rounds: how often the best ones are changed.
    """

    tuner: Tuner
    rng: Random
    samples: int
    rounds: int

    def run(self, task: Task, case: BenchmarkCase) -> tuple[BenchmarkCase, dict[str, Measurement]]:
        """The case with all that was tried, and its measurements."""
        wide = replace(case, variants=(*case.variants, *self._drawn(task, case)))
        known = self.tuner.measure([wide])[case.key]
        for _ in range(self.rounds):
            further = [each for each in self._changed(task, wide, known) if each.descriptor not in known]
            if not further:
                break
            beside = _best(wide.variants, known)
            self.tuner.measure_anew([replace(case, variants=(case.variants[0], *beside, *further))])
            wide = replace(wide, variants=(*wide.variants, *further))
            known = self.tuner.known([wide])[case.key]
        last = dict.fromkeys([case.variants[0], *_best(case.variants, known), *_best(wide.variants, known)])
        failed = {name: each for name, each in known.items() if each.status is not Status.OK}
        return wide, failed | self._decided(replace(case, variants=tuple(last)))

    def _decided(self, case: BenchmarkCase) -> dict[str, Measurement]:
        """Medians of several runs beside each other, because of many noisy times the least is luck."""
        runs = []
        for _ in range(_DECIDING):
            self.tuner.measure_anew([case])
            runs.append(self.tuner.known([case])[case.key])
        failed = {name: one for each in runs for name, one in each.items() if one.status is not Status.OK}
        right = [name for name in runs[0] if name not in failed]
        return failed | {name: sorted((each[name] for each in runs), key=_seconds)[_DECIDING // 2] for name in right}

    def _drawn(self, task: Task, case: BenchmarkCase) -> list[Variant]:
        found: dict[str, Variant] = {}
        for routine, listed in kernels(task, case.variants, self.tuner.target):
            makes = _maker(routine, task, self.tuner.target)
            known = {each.descriptor for each in case.variants}
            for _ in range(self.samples * _ATTEMPTS):
                own = [each for each in found.values() if each.routine == routine.name]
                if len(own) == self.samples:
                    break
                made = makes(drawn(self.rng, listed))
                if made is not None and made.descriptor not in known:
                    found[made.descriptor] = made
        return list(found.values())

    def _changed(self, task: Task, wide: BenchmarkCase, known: Mapping[str, Measurement]) -> Iterator[Variant]:
        best = _best(wide.variants, known)
        for routine, listed in kernels(task, wide.variants, self.tuner.target):
            makes = _maker(routine, task, self.tuner.target)
            for each in best:
                if each.routine == routine.name:
                    given = {name: value for name, value in each.parameters if isinstance(value, int)}
                    made = [makes(changed(self.rng, given, listed)) for _ in range(self.samples)]
                    yield from {one.descriptor: one for one in made if one is not None}.values()


def kernels(task: Task, variants: Sequence[Variant], target: Target) -> list[tuple[Routine, list[Parameters]]]:
    """Routines of a task's kernels that have numbers as parameters, and those that are listed."""
    own: dict[str, list[Variant]] = {}
    for each in filter(_is_numbered, variants):
        own.setdefault(each.routine, []).append(each)
    return [
        (_maker_of(first, task, target), [dict(each.parameters) for each in (first, *rest)])
        for first, *rest in own.values()
    ]


def _is_numbered(variant: Variant) -> bool:
    return variant.implementation.kernel is not None and bool(variant.parameters)


def _maker_of(variant: Variant, task: Task, target: Target) -> Routine:
    """The routine that makes a variant; others of its name have other element types."""
    named = (each for each in (*ROUTINES, *FUSED_ROUTINES) if each.name == variant.routine)
    made = ((each, _maker(each, task, target)(dict(variant.parameters))) for each in named)
    return next(routine for routine, found in made if found is not None and found.descriptor == variant.descriptor)


def _maker(routine: Routine, task: Task, target: Target) -> Callable[[Parameters], Variant | None]:
    def made(parameters: Parameters) -> Variant | None:
        try:
            found = variant_of(routine, task, parameters, target)
        except (ValueError, ZeroDivisionError, IndexError):
            return None
        return found if isinstance(found, Variant) else None

    return made


def _seconds(measurement: Measurement) -> float:
    return measurement.time


def _names(variants: Mapping[Variant, None] | Sequence[Variant]) -> set[str]:
    return {each.descriptor for each in variants}


def _best(variants: Sequence[Variant], known: Mapping[str, Measurement]) -> list[Variant]:
    """The two fastest of the variants that are right."""
    right = [each for each in variants if each.descriptor in known and known[each.descriptor].status is Status.OK]
    return sorted(right, key=lambda each: known[each.descriptor].time)[:2]


def row_of(
    network: str, layer: str, listed: BenchmarkCase, wide: BenchmarkCase, known: Mapping[str, Measurement]
) -> Row:
    """What the audit of one layer found."""
    (first, *_), (best, *_) = _best(listed.variants, known), _best(wide.variants, known)
    names = _names(listed.variants)
    others = [each.descriptor for each in wide.variants if each.descriptor not in names]
    failed = sum(each in known and known[each].status is not Status.OK for each in others)
    times = known[first.descriptor].time * 1e6, known[best.descriptor].time * 1e6
    shown = " ".join(f"{name}={value}" for name, value in best.parameters) if best.descriptor not in names else ""
    loss = 100 * (times[0] / times[1] - 1)
    return Row(network, layer, best.routine, *times, loss, len(others) - failed, failed, shown)


def audited(network: str, layers: int, config: CompileConfig, seed: int, size: tuple[int, int]) -> Iterator[Row]:
    """Audit layers of a network that are drawn with a seed.

    Raises:
        SartorError: if the network cannot be imported.
    """
    rng = Random(f"{network} {seed}")
    with (
        open_workspace(config.target, config.jobs) as (pool, work),
        Store.in_memory() as store,
    ):
        imported = import_network(write(network, work), config.importing, pool, silent, work)
        found = find_candidates(imported, config.planning, everything=False)
        variants = shortlist(imported.graph, found.variants, ())
        cases = [each for each in tuned_cases(imported.graph, variants) if any(map(_is_numbered, each.variants))]
        names = {layer.task.key: layer.name for layer in reversed(tuple(imported.graph.all_layers()))}
        tuner = make_tuner(store, pool, config.target, silent, work)
        for case in rng.sample(cases, min(layers, len(cases))):
            wide, known = Audit(tuner, rng, *size).run(imported.graph.tasks()[case.key], case)
            if _best(case.variants, known):
                yield row_of(network, names[case.key], case, wide, known)


@app.command()
def main(
    networks: Annotated[list[str] | None, typer.Argument(help="Zoo networks.")] = None,
    layers: Annotated[int, typer.Option(help="Layers of each network.")] = 6,
    samples: Annotated[int, typer.Option(help="Variants of each routine that are drawn, and in each round.")] = 12,
    rounds: Annotated[int, typer.Option(help="How often the best ones are changed.")] = 2,
    threads: Annotated[int, typer.Option(help="Threads of kernels.")] = 1,
    seed: Annotated[int, typer.Option(help="Of layers and variants.")] = 0,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the table.")] = Path("build/tile_space"),
) -> None:
    """Audit layers, and print and write the table."""
    output.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for network in networks or _NETWORKS:
        config = CompileConfig(threads=threads)
        for row in audited(network, layers, config, seed, (samples, rounds)):
            rows.append(row)
            print(row, flush=True)
    print(f"\n{markdown(rows)}\n\n{write_csv(rows, output / 'tile_space.csv')}")


if __name__ == "__main__":
    app()
