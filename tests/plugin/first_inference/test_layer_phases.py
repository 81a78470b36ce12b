"""Phases of a first inference by layers, and pictures of them."""

from __future__ import annotations

import json
import xml.etree.ElementTree as tree
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from sartor.cli.tables.cold_table import layers_json
from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.errors import DeviceError, UsageError
from sartor.first_inference.cold_bench import ColdRuns
from sartor.first_inference.cold_record import ColdRecord, read_cold
from sartor.first_inference.layer_phases import (
    REST,
    DispatchEvent,
    Inference,
    LayerPhases,
    Phases,
    inferences,
    layer_phases,
    phases_of,
)
from sartor.first_inference.sample import FirstRun, typical
from sartor.first_inference.timeline import Panel, bars_of, draw, layer_bars
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


_RUN = FirstRun(0.1, 0.2, 0.05, (0.04, 0.03, 0.02), (("read", -0.01, 0.01, 1 << 22), ("move", 0.1, 9.0, 0)))

_PHASES = Phases(
    (
        LayerPhases("a", 1 << 20, {"dropped": 2.0}, 1.0, 0.5),
        LayerPhases("b", 2 << 20, {"dropped": 4.0}, 8.0, 4.0),
        LayerPhases("the rest", 0, {"dropped": 0.0}, 1.0, 0.5),
    ),
    10.0,
    5.0,
)


def test_phases_follow_each_other() -> None:
    bars = list(bars_of("sartor <1>", _RUN))
    own = [bar for bar in bars if bar.lane == "sartor <1>"]
    assert [bar.label for bar in own] == ["start", "import", "open", "inference 1", "inference 2", "inference 3"]
    assert [bar.end for bar in own[:-1]] == [bar.begin for bar in own[1:]]
    assert own[-1].end == pytest.approx(0.44)
    beside = [(bar.kind, bar.begin, bar.end) for bar in bars if bar.lane != "sartor <1>"]
    assert [kind for kind, *_ in beside] == ["read", "move"]
    assert [time for _, *times in beside for time in times] == pytest.approx([0.29, 0.31, 0.4, 9.3])


def test_the_picture_is_svg_with_a_rectangle_per_bar() -> None:
    bars = list(bars_of("sartor <1>", _RUN))
    root = tree.fromstring(draw(Panel("first & last", bars), Panel("again", bars[:1])))
    titles = [each.text for each in root.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == len(bars) + 1
    assert titles[0] == "start: 0.00 to 100.00 ms"
    assert any(title and title.endswith("4.0 MiB") for title in titles)
    assert tree.fromstring(draw(Panel("nothing", []))) is not None


def test_times_come_back_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "cold.json"
    sample = {"runtime": "sartor", "files": "dropped", "typical": asdict(_RUN), "samples": []}
    path.write_text(json.dumps({"cold": [sample]}), encoding="utf-8")
    assert read_cold(path) == ColdRecord({("sartor", "dropped"): _RUN}, ())
    path.write_text(json.dumps({"cold": [sample], "phases": layers_json(_PHASES)}), encoding="utf-8")
    assert read_cold(path).layers == _PHASES.layers


def test_layers_wait_for_what_is_read() -> None:
    bars = [(bar.lane, bar.label, bar.begin, bar.end) for bar in layer_bars(_PHASES.layers)]
    assert bars == [
        ("dropped: read", "a", 0.0, 2.0),
        ("dropped: executed", "a", 2.0, 3.0),
        ("dropped: read", "b", 2.0, 6.0),
        ("dropped: executed", "b", 6.0, 14.0),
        ("dropped: executed", "the rest", 14.0, 15.0),
        ("later: executed", "a", 0.0, 0.5),
        ("later: executed", "b", 0.5, 4.5),
        ("later: executed", "the rest", 4.5, 5.0),
    ]


def test_layers_that_nobody_read_wait_for_nothing() -> None:
    unread = [LayerPhases("a", 0, {}, 1.0, 1.0), LayerPhases("b", 0, {}, 2.0, 1.0)]
    first = [bar for bar in layer_bars(unread) if bar.lane == "in memory: executed"]
    assert [(bar.begin, bar.end) for bar in first] == [(0.0, 1.0), (1.0, 3.0)]


@pytest.mark.parametrize("text", ["", "[]", '{"runs": []}', '{"cold": [{"runtime": "x", "files": "y"}]}'])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"other\.json' is not what 'sartor bench --cold --json' writes"):
        read_cold(path)
    with pytest.raises(UsageError, match="cannot be read"):
        read_cold(tmp_path / "none.json")


def test_what_a_file_lacks_is_named(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(UsageError, match="writes: at 'cold', it is missing"):
        read_cold(path)


def test_the_typical_run_is_the_middle_one() -> None:
    runs = [FirstRun(0.0, 0.0, load, (1.0,)) for load in (3.0, 1.0, 2.0)]
    assert typical(runs).load == 2.0


@pytest.mark.parametrize(
    "step", [[["read"], 0, 1, 1], ["read", 0, 1, float("inf")], ["read", 0, 1, 10**400], ["read", float("nan"), 1, 1]]
)
def test_steps_that_cannot_be_drawn_are_refused(step: list[object], tmp_path: Path) -> None:
    typical_run = {"start": 0.1, "imports": 0.1, "load": 0.1, "runs": [0.1], "steps": [step]}
    path = tmp_path / "cold.json"
    path.write_text(json.dumps({"cold": [{"runtime": "sartor", "files": "dropped", "typical": typical_run}]}))
    with pytest.raises(UsageError, match="is not what 'sartor bench --cold --json' writes"):
        read_cold(path)


@pytest.mark.parametrize("start", [1e306, -1e300, 10**400])
def test_times_that_nothing_takes_are_refused(tmp_path: Path, start: float) -> None:
    path = tmp_path / "cold.json"
    sample = {"runtime": "sartor", "files": "dropped", "typical": asdict(_RUN) | {"start": start}, "samples": []}
    path.write_text(json.dumps({"cold": [sample]}), encoding="utf-8")
    with pytest.raises(UsageError, match="a number of at most"):
        read_cold(path)
