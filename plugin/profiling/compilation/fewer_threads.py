"""Tunes a network for the number of threads with which it is fastest, where a predicted plan can tell."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sartor.codegen.digest import digest
from sartor.config import CompileConfig
from sartor.errors import CompileError, DeviceError, DisturbedError, SartorError
from sartor.planning.recipe import Recipe
from sartor.profiling.compilation.bench import Bench
from sartor.profiling.compilation.candidacy import Candidacy
from sartor.profiling.compilation.thread_ways import Way, ways_of
from sartor.profiling.compilation.tuned_network import Floor, Tuned, predicted_network, tune_network
from sartor.profiling.network_records import NetworkRecords
from sartor.tuning.records.doubts import Doubts
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Entrant:
    """A plan that ran, with as many threads as it is for.

    Attributes:
        way: in which it was planned.
        tuned: the network with that plan.
    """

    way: Way
    tuned: Tuned

    def key(self, turn: str, doubts: Doubts) -> MeasurementKey:
        """The key of its time in a turn with others; that of the plan without a turn."""
        config, runner = self.way.config, self.tuned.runner
        records = NetworkRecords(self.way.bench.store, self.way.network.imported, config.target, runner, doubts)
        return records.key(self.recipe, turn and f"turn:{turn}")

    @property
    def recipe(self) -> Recipe:
        """Its plan, without measured times."""
        return self.tuned.refined.profiled.recipe


def tune_with_best_threads(network: Candidacy, config: CompileConfig, bench: Bench, folder: Path) -> Tuned:
    """As ``tune_network``. A small network is planned for all threads and for one by predicted times, both plans run,
    and what follows is for the faster.
    """
    ways = ways_of(Way(network, config, bench))
    floors = [(way, _predicted(way, folder) if len(ways) > 1 else None) for way in ways]
    ran = [(way, floor) for way, floor in floors if floor is not None]
    fastest = 0
    if len(ran) > 1:
        seconds = seconds_in_turn([Entrant(way, floor.tuned) for way, floor in ran])
        fastest = min(range(len(ran)), key=seconds.__getitem__)
    way, floor = (ran or floors)[fastest]
    return tune_network(way.with_all_variants.network, way.config, way.bench, folder, floor=floor)


def seconds_in_turn(entrants: Sequence[Entrant]) -> list[float]:
    """Typical seconds of an inference of all, timed in turn; of the runs before if these fail."""
    first = entrants[0]
    pool, store, runner = first.way.bench.pool, first.way.bench.store, first.tuned.runner
    doubts = Doubts(lambda: not first.way.bench.time.is_bounded and pool.is_quiet())
    turn = digest(*(f"{entrant.way.threads} {entrant.key('', doubts).variant}" for entrant in entrants))
    keys = [entrant.key(turn, doubts) for entrant in entrants]
    known = doubts.holding(store.get_many(keys))
    if len(known) < len(keys):
        try:
            builds = [(entrant.tuned.builder.build([entrant.recipe])[0], entrant.way.threads) for entrant in entrants]
            pool.take_others()
            samples = runner.beside(builds)
        except (CompileError, DeviceError) as error:
            _LOG.warning("with how many threads a plan is faster is not known: %s", error)
            return [entrant.tuned.refined.profiled.seconds for entrant in entrants]
        others = pool.take_others()
        known = {
            key: Measurement(key, Status.OK, taken, foreign_load=others)
            for key, taken in zip(keys, samples, strict=True)
        }
        store.put_many(known.values())
    times = [known[key].time for key in keys]
    _LOG.info("%s s by plans for %s threads", times, [entrant.way.threads for entrant in entrants])
    return times


def _predicted(way: Way, folder: Path) -> Floor | None:
    """The plan that is predicted, after it ran; None if none is right, which those that are measured may be."""
    try:
        return predicted_network(way.network, way.config, way.bench, folder, whole=True)
    except DisturbedError:
        raise
    except SartorError as error:
        _LOG.info("no plan that is predicted for %d threads is right: %s", way.threads, error)
        return None
