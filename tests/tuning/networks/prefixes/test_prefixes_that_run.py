"""Beginnings of a network that run in turn, and times of pieces that follow from theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from sartor.codegen.ir.target import Target
from sartor.codegen.linking.overwriting import plain_name
from sartor.codegen.routines import routines_for
from sartor.config import CompileConfig
from sartor.costing.listing import list_candidates
from sartor.frontend.imported_model import ImportedModel
from sartor.planning.guessed_recipe import guessed_recipe
from sartor.planning.recipe import Recipe
from sartor.profiling.builder import Builder
from sartor.profiling.layers.prefix_timing import PrefixTimer
from sartor.progress import silent
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.driver.device import open_device
from sartor.runtime.driver.device_array import upload
from sartor.runtime.driver.program import Program
from sartor.runtime.manifest import BOUND_SUFFIX
from sartor.runtime.module import open_module
from sartor.tuning.cost_tables.in_network import Symbols, call_seconds
from sartor.tuning.networks.build_job import SplitNetwork, stitchings
from sartor.tuning.networks.prefixes.build_job import build_prefixes
from sartor.tuning.networks.prefixes.piece_times import PrefixEntry, growing, piece_times
from sartor.tuning.networks.prefixes.timing_job import _in_turn
from sartor.tuning.workers.pool import WorkerPool
from tests.devices import needs_vulkan

CONFIG = CompileConfig(target=Target.create("cpu"), threads=1)
VULKAN = CompileConfig(target=Target.create("vulkan"))


def _entries(*symbols: str) -> list[PrefixEntry]:
    return [PrefixEntry(f"e{length}", symbol, length) for length, symbol in enumerate(symbols, 1)]


def test_a_piece_takes_the_difference_of_two_beginnings() -> None:
    found = piece_times(_entries("p", "q", "p"), [[3.0] * 5, [8.0] * 5, [12.0] * 5], 1.0)
    assert {each.name: (each.calls, each.seconds) for each in found} == {"p": (2, 6.0), "q": (1, 5.0)}
    assert call_seconds(found) == {"p": 3.0, "q": 5.0}


def test_beginnings_that_lie_apart_tell_nothing_of_the_piece_between() -> None:
    entries = [PrefixEntry("a", "p", 1), PrefixEntry("b", "r", 4), PrefixEntry("c", "s", 5)]
    found = piece_times(entries, [[2.0] * 5, [9.0] * 5, [10.0] * 5], 1.0)
    assert {each.name: each.seconds for each in found} == {"p": 1.0, "s": 1.0}


def test_a_difference_within_the_noise_is_left_out() -> None:
    noisy = [8.0, 8.0, 8.5, 9.0, 9.0]
    found = piece_times(_entries("p", "q", "r"), [[4.0] * 5, noisy, [8.2] * 5], 1.0)
    # ``r`` would take 0.2 after times that lie 0.5 apart.
    assert {each.name: each.seconds for each in found} == {"p": 3.0, "q": 4.0}


def test_times_that_decrease_are_joined() -> None:
    assert growing([1.0, 3.0, 2.0, 4.0]) == [1.0, 2.5, 2.5, 4.0]
    assert growing([3.0, 2.0, 1.0]) == [2.0, 2.0, 2.0]
    assert growing([]) == []


def _guessed(imported: ImportedModel, config: CompileConfig) -> Recipe:
    variants = list_candidates(imported.graph, routines_for(()), config.target).variants
    return guessed_recipe(imported, variants, config.planning)


@pytest.fixture
def recipe(imported_of: Callable[[str], ImportedModel]) -> Recipe:
    return _guessed(imported_of("residual"), CONFIG)


def test_beginnings_compute_what_the_network_does(
    recipe: Recipe,
    imported_of: Callable[[str], ImportedModel],
    model_file: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    imported = imported_of("residual")
    net = SplitNetwork(recipe.graph, recipe.variants)
    entries = build_prefixes(net, imported.weights, CONFIG.target, tmp_path / "prefixes.vmfb")
    ((_, stitching),) = stitchings(net, {}, CONFIG.target, with_code=False).items()
    symbols = {plain_name(each.symbol) for each in stitching.pieces.values()}
    assert symbols <= {each.symbol for each in entries}
    device = open_device("cpu", 1)
    program = Program(open_module(tmp_path / "prefixes.vmfb").native, "prefixes", device, {})
    inputs = [imported.samples[each.name] for each in imported.graph.inputs]
    given = [upload(each, device) for each in inputs]
    for each in entries:
        results = [upload(np.full(one.shape, 7, one.numpy_dtype), device) for one in each.results]
        assert results
        program.prepare(each.name + BOUND_SUFFIX, [array.view for array in (*given, *results)])()
        assert not any((array.to_host() == 7).all() for array in results)
    (expected,) = ReferenceModel(model_file("residual"), threads=1)(imported.samples)
    found = results[0].to_host().reshape(expected.shape)
    assert np.abs(found - expected).max() < 1e-5 * np.abs(expected).max()


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    with WorkerPool(1) as found:
        yield found


def test_a_timer_names_pieces_of_the_network(
    recipe: Recipe, imported_of: Callable[[str], ImportedModel], pool: WorkerPool, tmp_path: Path
) -> None:
    timer = PrefixTimer(Builder(imported_of("residual"), pool, tmp_path, CONFIG.header, silent))
    found = timer.pieces(recipe)
    names = Symbols.of(recipe.graph, recipe.variants, "cpu").names
    assert found
    assert {each.name for each in found} <= set(names)
    assert all(each.seconds > 0 for each in found)
    # A second pass needs no compiler.
    timer.pieces(recipe)
    assert [each.name for each in sorted(tmp_path.glob("prefixes*"))] == ["prefixes0.vmfb"]


@needs_vulkan
def test_layers_are_timed_in_the_network_on_vulkan(
    imported_of: Callable[[str], ImportedModel], pool: WorkerPool, tmp_path: Path
) -> None:
    imported = imported_of("residual")
    recipe = _guessed(imported, VULKAN)
    found = PrefixTimer(Builder(imported, pool, tmp_path, VULKAN.header, silent)).pieces(recipe)
    names = Symbols.of(recipe.graph, recipe.variants, "vulkan").names
    assert found
    assert {each.name for each in found} <= set(names)
    assert all(0 < each.seconds < 60 for each in found)


class Gpu:
    """Takes twice as long while its clock is low, which it is in some of its runs."""

    def __init__(self, low: range) -> None:
        self.runs = 0
        self._low = low

    @property
    def rate(self) -> float:
        return 750.0 if self.runs in self._low else 1500.0

    def run(self, seconds: float) -> Iterator[float]:
        while True:
            self.runs += 1
            yield seconds * 1500.0 / self.rate


def test_beginnings_at_a_low_clock_are_timed_again() -> None:
    gpu = Gpu(low=range(20, 26))
    short, long = gpu.run(1e-3), gpu.run(2e-3)
    samples = _in_turn([short.__next__, long.__next__], lambda: gpu.rate, 10.0)
    assert [set(sample) for sample in samples] == [{1e-3}, {2e-3}]
    assert len(samples[0]) == len(samples[1]) == 28


def test_without_a_clock_times_are_taken_as_they_come() -> None:
    gpu = Gpu(low=range(20, 26))
    (samples,) = _in_turn([gpu.run(1e-3).__next__], None, 10.0)
    assert set(samples) == {1e-3, 2e-3}
