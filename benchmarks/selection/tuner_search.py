"""The tuner's own search (``tuning/search/search.py``), replayed from a table that holds all candidates' times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from benchmarks.selection.network_tables import TaskTimes
from sartor.codegen.analysis.task_facts import task_facts
from sartor.codegen.routine_registry import described
from sartor.tuning.search.cost_model import CostModel, Sample
from sartor.tuning.search.search import VariantSearch
from sartor.tuning.search.search_settings import SearchSettings, settings_for
from sartor.tuning.search.searched import Picks, Searched


def replay_search(
    tasks: Sequence[TaskTimes],
    layers: Mapping[str, int],
    samples: Sequence[Sample],
    shipped: Sequence[Sample] = (),
    settings: SearchSettings | None = None,
    guided_by: CostModel | None = None,
) -> Iterator[dict[str, tuple[str, ...]]]:
    """Yield the measured candidates of every task after each round of the search.

    Args:
        tasks: the tasks to search.
        layers: number of layers by task key.
        samples: measured times of other tasks.
        shipped: times of many other networks, as they are part of the package.
        settings: limits of the search; None for those that the tuner would choose.
        guided_by: the ``guide`` of ``shipped``, if the caller has it already.
    """
    times = {task.task.key: {variant.descriptor: variant.seconds for variant in task.variants} for task in tasks}
    searched = [
        Searched(key, task_facts(task.task), tuple(map(described, times[key])), layers[key])
        for task in tasks
        for key in (task.task.key,)
    ]
    variants = [variant for each in searched for variant in each.variants[1:]]
    chosen = settings or settings_for(variants, shipped, threads=1)
    search = VariantSearch(searched, samples, chosen, shipped, guided_by)
    known: dict[str, dict[str, float | None]] = {key: {} for key in times}
    picks: Picks = search.first(known)
    spent = search.effort(picks)
    for _ in range(search.settings.rounds + 1):
        for key, names in picks.items():
            known[key] |= {name: times[key][name] for name in names}
        yield {key: tuple(found) for key, found in known.items()}
        if not (picks := search.later(known, spent)):
            break
