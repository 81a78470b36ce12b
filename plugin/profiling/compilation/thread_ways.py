"""With how many threads a small network is planned: with all, or with the one that calls.

To hand a dispatch to other threads and to wait for them takes some microseconds, which is more than most dispatches of
a small network take. A plan for several threads that runs with one is no plan for one: its layers were measured with
what handing over takes, which hides how fast their code is, and their work is cut into parts. So where handing over may
take longer than other threads save, a plan for one thread is predicted beside the usual one, both run, and what follows
is for the faster.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from sartor.codegen.analysis.task_bounds import ideal_seconds
from sartor.codegen.analysis.task_facts import task_facts
from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.machines.core import Core
from sartor.codegen.mlir.kernel_machine import core_of
from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.costing.layer_costs import foreseen
from sartor.costing.listing import all_of
from sartor.profiling.compilation.bench import Bench
from sartor.profiling.compilation.candidacy import Candidacy, runner_of
from sartor.profiling.network_runner import NetRunner
from sartor.tuning.selection.problem.limits import UNLIMITED, Quantity

_LOG = logging.getLogger(__name__)
# To hand a dispatch to another thread and to wait for it: 1 to 10 microseconds were measured on a machine that nothing
# else uses.
_HANDING_SECONDS = 10e-6
# What other threads save is less than this part of what handing over takes where one thread is faster beyond doubt.
_BEYOND_DOUBT = 0.125


@dataclass(frozen=True)
class Way:
    """A network with the settings to plan it by, which say for how many threads.

    Attributes:
        network: the model and its variants.
        config: settings.
        bench: what plans are made with.
        is_narrow: whether only those variants were found that are predicted to be the fastest.
    """

    network: Candidacy
    config: CompileConfig
    bench: Bench
    is_narrow: bool = False

    @property
    def threads(self) -> int:
        """For which it is planned."""
        return self.config.threads

    @property
    def runner(self) -> NetRunner:
        """What builds and runs its networks."""
        network = self.network
        return network.begun or runner_of(network.imported, network.calibration.samples, self.config, self.bench)

    @property
    def with_all_variants(self) -> Way:
        """The same with all variants that may win, if layers will be measured."""
        if not self.is_narrow or self.bench.time.is_bounded:
            return self
        candidates = find_candidates(self.network.imported, self.config.planning, everything=False)
        return replace(self, network=replace(self.network, candidates=candidates), is_narrow=False)


def ways_of(usual: Way) -> list[Way]:
    """The ways to plan a network that are worth a predicted plan, the usual one first.

    Where nothing is measured, and one thread is faster beyond doubt, that is the only one.
    """
    config = usual.config
    if config.threads == 1 or not _may_choose(config):
        return [usual]
    graph, core = usual.network.imported.graph, core_of(config.target)
    saved, handed = saved_seconds(graph, core, config.threads), handing_seconds(graph)
    _LOG.info("%.3g s at most are saved by %d threads, and handing over takes %.3g s", saved, config.threads, handed)
    if saved > handed:
        return [usual]
    # Both ways have one reference.
    usual = replace(usual, network=replace(usual.network, begun=usual.runner))
    if not usual.bench.time.leaves(0.0) and saved < _BEYOND_DOUBT * handed:
        return [_on_one_thread(usual)]
    return [usual, _on_one_thread(usual)]


def saved_seconds(graph: LayerGraph, core: Core, threads: int) -> float:
    """Seconds that so many threads save of an inference at most, by the least time that its layers can take on one."""
    return (1 - 1 / threads) * sum(ideal_seconds(task_facts(layer.task), core) for layer in graph.layers)


def handing_seconds(graph: LayerGraph) -> float:
    """Seconds in which a network's dispatches are handed to other threads, if each layer is one."""
    return _HANDING_SECONDS * len(graph.layers)


def _may_choose(config: CompileConfig) -> bool:
    """Whether nobody asked for a number of threads, and speed alone decides."""
    policy = config.planning
    is_plain = policy.quantities == (Quantity.LATENCY,) and policy.limits == UNLIMITED
    return is_plain and config.has_usual_threads and config.target.is_cpu and not config.target.others


def _on_one_thread(usual: Way) -> Way:
    """The way to plan a network for the calling thread alone; its module says so."""
    network, bench = usual.network, usual.bench
    config = replace(usual.config, threads=1, fixes_threads=True, names_threads=True)
    runner = usual.runner
    narrow = all_of if config.planning.pins else foreseen(bench.store, config.target)
    candidates = find_candidates(network.imported, config.planning, everything=False, narrow=narrow)
    begun = runner.with_builder(runner.builder.for_target(config.target))
    return Way(replace(network, candidates=candidates, begun=begun), config, bench, is_narrow=True)
