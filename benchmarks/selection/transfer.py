"""What the package's measured times are worth on networks that they do not contain.

The tuner's search is replayed from full tables, once as it is on a machine without them and once with the times of all
other networks. The plan that is best by what a search measured is compared with the best of all, conversions included.
Networks of one family share layers, or nearly do; so all of a family are held out together, or the network alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.selection.network_tables import NetworkTables, TaskTimes
from benchmarks.selection.results import Axes, Line, plot_lines
from benchmarks.selection.sampling import layer_counts, samples_of
from benchmarks.selection.tuner_search import replay_search
from sartor.codegen.analysis.task_facts import task_facts
from sartor.codegen.routine_registry import described
from sartor.tuning.search.cost_model import CostModel, Sample
from sartor.tuning.search.search_settings import SearchSettings
from sartor.tuning.search.shipped.times import near_best
from sartor.tuning.selection import auto
from sartor.tuning.selection.problem.problem import Choice, Node, Problem

FAMILIES = (
    ("resnet18", "resnet50", "resnet101", "resnet_xy", "ssd_resnet50"),
    ("mobilenet_v1", "mobilenet_v2", "mobilenet_v3", "efficientnet_b0"),
    ("vgg16", "vgg19"),
    ("googlenet", "inception_v3"),
    ("bert", "vit_tiny", "outlier_encoder"),
)


@dataclass(frozen=True)
class Transfer:
    """How many variants a search measured, and how much slower than the best of all its plan is, in percent.

    Attributes:
        network: name.
        variants: of all tasks.
        cold: measured without times of other networks.
        cold_loss: of that.
        informed: measured with those of all other networks.
        informed_loss: of that.
        apart: measured with those of other families.
        apart_loss: of that.
    """

    network: str
    variants: int
    cold: int
    cold_loss: float
    informed: int
    informed_loss: float
    apart: int
    apart_loss: float


def run(tables: Sequence[NetworkTables]) -> list[Transfer]:
    """Replay the searches of all networks."""
    return [_transfer(own, tables) for own in tables]


def plot(rows: Sequence[Transfer], path: Path) -> Path:
    """Plot loss against the share of measured variants, one point for each network."""
    found = {
        "no other networks": [(row.cold / row.variants, row.cold_loss) for row in rows],
        "other families": [(row.apart / row.variants, row.apart_loss) for row in rows],
    }
    lines = [Line(name, sorted((100 * share, loss) for share, loss in points)) for name, points in found.items()]
    return plot_lines({Axes("networks", "% of the variants measured", "% above the best plan"): lines}, path)


def _transfer(own: NetworkTables, tables: Sequence[NetworkTables]) -> Transfer:
    best = auto.select(own.problem).costs.latency
    of_others = [known_of_others(own, tables, families) for families in ((), FAMILIES)]
    results = [searched(own, best, known) for known in ((), *of_others)]
    (cold, cold_loss), (informed, informed_loss), (apart, apart_loss) = results
    variants = sum(len(task.variants) for task in _tasks(own).values())
    return Transfer(own.network, variants, cold, cold_loss, informed, informed_loss, apart, apart_loss)


def _tasks(own: NetworkTables) -> dict[str, TaskTimes]:
    return {task.task.key: task for task in own.tasks.values()}


def known_of_others(
    own: NetworkTables, tables: Sequence[NetworkTables], families: Sequence[Sequence[str]]
) -> tuple[Sample, ...]:
    """Times of other networks' tasks that are not the network's own, without those of its family."""
    family = next((each for each in families if own.network in each), (own.network,))
    facts = {task_facts(task.task) for task in own.tasks.values()}
    tasks = {key: task for other in tables if other.network not in family for key, task in _tasks(other).items()}
    found = (task for task in tasks.values() if task_facts(task.task) not in facts)
    return tuple(
        sample for each in found for sample in near_best(samples_of(each, [one.descriptor for one in each.variants]))
    )


def searched(
    own: NetworkTables,
    best: float,
    shipped: Sequence[Sample],
    settings: SearchSettings | None = None,
    guided_by: CostModel | None = None,
) -> tuple[int, float]:
    """The number of variants that a search measures, and the loss of its plan in percent.

    Args:
        own: the network's tables.
        best: seconds of the best plan of the whole tables.
        shipped: times of other networks.
        settings: limits of the search; None for those that the tuner would choose.
        guided_by: the ``guide`` of ``shipped``, if the caller has it already.
    """
    tasks = _tasks(own)
    *_, measured = replay_search(list(tasks.values()), layer_counts(own), (), shipped, settings, guided_by)
    times = {key: _times(task, measured[key]) for key, task in tasks.items()}
    return sum(map(len, measured.values())), 100 * (auto.select(_restricted(own, times)).costs.latency / best - 1)


def _times(task: TaskTimes, names: Sequence[str]) -> dict[str, float]:
    return {variant.descriptor: variant.seconds for variant in task.variants if variant.descriptor in names}


def _restricted(own: NetworkTables, times: Mapping[str, Mapping[str, float]]) -> Problem:
    """The network's problem with measured variants alone."""
    nodes = [
        replace(node, choices=tuple(_measured(node, own.tasks[node.name], times)) or node.choices)
        if node.name in own.tasks
        else node
        for node in own.problem.nodes
    ]
    return replace(own.problem, nodes=tuple(nodes))


def _measured(node: Node, task: TaskTimes, times: Mapping[str, Mapping[str, float]]) -> Iterator[Choice]:
    """The choices of a layer, each of which stands for all variants with its layouts, by the fastest measured one.

    What is no variant of the task, as its parts side by side, stays.
    """
    variants, known = {variant.descriptor for variant in task.variants}, times[task.task.key]
    for choice in node.choices:
        alike = [seconds for name, seconds in known.items() if _layouts(name) == _layouts(choice.name)]
        if choice.name not in variants:
            yield choice
        elif alike:
            yield replace(choice, cost=replace(choice.cost, latency=max(choice.cost.latency, min(alike))))


def _layouts(descriptor: str) -> tuple[object, ...]:
    """What the layouts of a variant follow from: stock code has those of the model."""
    found = described(descriptor)
    return (*found.format_class, found.traits.family is None)
