"""First inferences in fresh processes: which are timed, and what runs beside them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.errors import UsageError
from sartor.first_inference import cold_bench
from sartor.first_inference.cold_bench import CACHED, DROPPED, SELF, ColdRuns, Rival, time_cold
from sartor.frontend.imported_model import ImportedModel
from sartor.planning.guessed_recipe import guessed_recipe
from sartor.runtime.driver.device import device_settings
from sartor.tuning.networks.build_job import NetFiles, SplitNetwork, build_net

CONFIG = CompileConfig(threads=1)


@pytest.fixture
def module(imported_of: Callable[[str], ImportedModel], tmp_path: Path) -> Path:
    imported = imported_of("residual")
    recipe = guessed_recipe(imported, find_candidates(imported, CONFIG.planning).variants, CONFIG.planning)
    files = NetFiles(tmp_path / "net.vmfb", None)
    net = SplitNetwork(recipe.graph, recipe.variants, imported.ranges)
    build_net(net, imported.weights, CONFIG.target, recipe.manifest(imported, CONFIG.header), files)
    return files.module


def test_rivals_take_turns_beside_other_programs(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside: list[int] = []
    child = cold_bench._child

    def noted(runtime: str, model: Path, *arguments: object) -> object:
        beside.append(sum(other.poll() is None for other in others))
        return child(runtime, model, *arguments)  # type: ignore[arg-type]

    others: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def started(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        process: subprocess.Popen[bytes] = start(command, **options)
        if "while" in command[-1]:
            others.append(process)
        return process

    monkeypatch.setattr(cold_bench, "_child", noted)
    monkeypatch.setattr(subprocess, "Popen", started)
    feeds = {"x": np.zeros((1, 16, 6, 6), np.float32)}
    runs = ColdRuns(
        *(module, "main_graph", {}, device_settings("cpu", 1), None, (), 1, feeds, {}, 1),
        runs=2,
        rivals={"settled": Rival(module, settled=True)},
        load=1,
    )
    found = time_cold(runs)
    assert {*found} == {(name, state) for name in (SELF, "settled") for state in (CACHED, DROPPED)}
    assert all(len(samples) == 1 and len(samples[0].runs) == 2 for samples in found.values())
    for (sample,) in found.values():
        # Both a load with a run and a run alone take some; the settled file was read and moved whole.
        assert len(sample.taken) == 2
        assert 0 < sample.taken[1] < sum(sample.taken)
    assert beside == [1] * 4
    assert all(other.poll() is not None for other in others)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([("y", [1, 16, 6, 6])], "the model has the input 'y', which the module has not"),
        ([("x", [1, 16, 6, 6]), ("y", [1])], "the model has the input 'y', which the module has not"),
        ([("x", [1, 16, "n", 7])], r"'x' is float32\[1, 16, \?, 7\], and the module's is float32\[1, 16, 6, 6\]"),
    ],
)
def test_a_model_with_other_inputs_is_refused(
    module: Path, tmp_path: Path, inputs: list[tuple[str, list[int | str]]], message: str
) -> None:
    """It ended as ONNX Runtime's ValueError."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs]
    output = helper.make_tensor_value_info("z", TensorProto.FLOAT, None)
    nodes = [helper.make_node("Sum", [name for name, _ in inputs], ["z"])]
    path = tmp_path / "other.onnx"
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", values, [output]), opset_imports=opsets), path)
    feeds = {"x": np.zeros((1, 16, 6, 6), np.float32)}
    cpu = device_settings("cpu", 1)
    runs = ColdRuns(module, "main_graph", {}, cpu, path, ("onnxruntime",), 1, feeds, {}, 1, runs=1)
    with pytest.raises(UsageError, match=message):
        time_cold(runs)
