"""Phases of a first inference by layers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.errors import DeviceError
from sartor.first_inference.cold_bench import ColdRuns
from sartor.first_inference.dispatch_events import DispatchEvent, Inference, inferences
from sartor.first_inference.layer_phases import REST, layer_phases, phases_of
from sartor.first_inference.sample import FirstRun
from sartor.frontend.imported_model import ImportedModel
from sartor.planning.guessed_recipe import guessed_recipe
from sartor.planning.recipe import Recipe
from sartor.runtime.driver.device import device_settings
from sartor.tuning.networks.build_job import NetFiles, SplitNetwork, build_net
from sartor.tuning.records.network import Network, network_of

CONFIG = CompileConfig(threads=1)


@pytest.fixture
def recipe(imported_of: Callable[[str], ImportedModel]) -> Recipe:
    imported = imported_of("residual")
    return guessed_recipe(imported, find_candidates(imported, CONFIG.planning).variants, CONFIG.planning)


def _network(recipe: Recipe) -> Network:
    return network_of(recipe.graph, recipe.variants, "cpu")


def _inference(recipe: Recipe, seconds: float, gap: float) -> Inference:
    """Each layer takes ``seconds``, and nothing runs for ``gap`` between two."""
    found, at = [], 0.0
    for layer in recipe.plan.layers:
        found.append(DispatchEvent(f"{layer.symbol}_kernel", at, at + seconds))
        at += seconds + gap
    return tuple(found)


def test_the_sums_are_the_whole(recipe: Recipe) -> None:
    names, network = [layer.layer for layer in recipe.plan.layers], _network(recipe)
    first, later = _inference(recipe, 4e-3, 1e-3), _inference(recipe, 2e-3, 1e-3)
    sizes = {layer.name: sum(weight.bytes for weight in layer.weights) for layer in network.layers}
    total = sum(sizes.values())
    # Half of the weights are read in one second, all else and 1000 bytes of code in two.
    steps = (("read", 0.0, 1.0, total // 2), ("move", 0.0, 9.0, 0), ("read", 1.0, 3.0, total - total // 2 + 1000))
    run = FirstRun(0.0, 0.0, 1.0, (1.0,), steps)
    found = phases_of([[first, later, later, later]], recipe.plan, network, {"dropped": [run]})
    assert [layer.layer for layer in found.layers] == [*names, REST]
    assert [layer.first for layer in found.layers[:-1]] == pytest.approx([4e-3] * len(names))
    assert [layer.later for layer in found.layers[:-1]] == pytest.approx([2e-3] * len(names))
    assert found.layers[-1].first == pytest.approx((len(names) - 1) * 1e-3)
    assert sum(layer.first for layer in found.layers) == pytest.approx(found.first)
    assert sum(layer.later for layer in found.layers) == pytest.approx(found.later)
    assert sum(layer.read["dropped"] for layer in found.layers) == pytest.approx(3.0)
    assert found.layers[-1].read["dropped"] == pytest.approx(2.0 * 1000 / (total - total // 2 + 1000))
    assert {layer.layer: layer.weight_bytes for layer in found.layers[:-1]} == sizes


def test_layers_with_the_same_code_take_turns(recipe: Recipe) -> None:
    first, *between, last = recipe.plan.layers
    plan = replace(recipe.plan, layers=(first, *between, replace(last, symbol=first.symbol)))
    (begin, *others, end) = _inference(recipe, 1e-3, 0.0)
    end = DispatchEvent(begin.name, end.begin, end.begin + 7e-3)
    found = phases_of([[(begin, *others, end)]], plan, _network(recipe), {})
    taken = {layer.layer: layer.first for layer in found.layers}
    assert (taken[first.layer], taken[last.layer]) == pytest.approx((1e-3, 7e-3))


def test_unknown_dispatches_and_files_that_were_not_read_ahead(recipe: Recipe) -> None:
    known = _inference(recipe, 1e-3, 0.0)
    strange = DispatchEvent("another_kernel", known[-1].end, known[-1].end + 5e-3)
    run = FirstRun(0.0, 0.0, 1.0, (1.0,), (("move", 0.0, 1.0, 9),))
    found = phases_of([[(*known, strange)] * 2], recipe.plan, _network(recipe), {"dropped": [run]})
    assert found.layers[-1].first == pytest.approx(5e-3)
    assert all(not layer.read for layer in found.layers)


def test_layers_of_a_module_in_fresh_processes(
    imported_of: Callable[[str], ImportedModel], recipe: Recipe, tmp_path: Path
) -> None:
    imported, files = imported_of("residual"), NetFiles(tmp_path / "net.vmfb", None)
    net = SplitNetwork(recipe.graph, recipe.variants, imported.ranges)
    build_net(net, imported.weights, CONFIG.target, recipe.manifest(imported, CONFIG.header), files)
    feeds = {"x": np.zeros((1, 16, 6, 6), np.float32)}
    runs = ColdRuns(files.module, "main_graph", {}, device_settings("cpu", 1), None, (), 1, feeds, {}, 2, runs=4)
    found = layer_phases(runs, recipe.plan, _network(recipe), {})
    convolutions = [layer for layer in found.layers if layer.weight_bytes]
    assert convolutions
    assert all(convolution.first > 0 and convolution.later > 0 for convolution in convolutions)
    # Medians of two processes are means, of which sums are the means of the whole.
    assert sum(layer.first for layer in found.layers) == pytest.approx(found.first)


def test_inferences_of_unequal_length_are_refused() -> None:
    event = {"type": "host_dispatch_event", "key": "a_kernel", "start_host_time_ns": 2, "end_host_time_ns": 3}
    earlier = {**event, "key": "b_kernel", "start_host_time_ns": 0}
    lines = [json.dumps(each) for each in ({"type": "dispatch_summary"}, event, earlier)]
    assert [[event.name for event in inference] for inference in inferences(lines, 2)] == [["b_kernel"], ["a_kernel"]]
    with pytest.raises(DeviceError, match="2 dispatches of 3 equal inferences"):
        inferences(lines, 3)
    with pytest.raises(DeviceError, match="0 dispatches of 3"):
        inferences(lines[:1], 3)
