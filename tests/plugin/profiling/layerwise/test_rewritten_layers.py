"""Faults that are planted in the rewritten model of a quantised network are seen, though its outputs hide them."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper

from sartor.errors import RewriteError, UsageError
from sartor.frontend.imported_model import ImportedModel
from sartor.onnx_model.graphs.prepared import prepared_model
from sartor.profiling.layerwise import rewritten_layers
from sartor.profiling.layerwise.layer_verdict import LayerJudge
from sartor.profiling.layerwise.rewritten_layers import checking_layers
from sartor.profiling.layerwise.verdict import LayerVerdict
from sartor.tuning.workers.pool import WorkerPool
from sartor.tuning.workers.protocol import WorkerError
from tests.importing import imported_model
from tests.plugin.amplifying_networks import image, quantised
from tests.plugin.onnx_model.builders import Array, node
from tests.plugin.planted_faults import constant, convolution, copied, copy_of, producer

# A convolution of one pixel, which follows on others and is rounded.
LAYER, CHANNEL = "e1", 2


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> ImportedModel:
    return imported_model(quantised("inverted", tmp_path_factory.mktemp("network")))


def _verdict(imported: ImportedModel, pool: WorkerPool) -> LayerVerdict:
    judge = LayerJudge(imported, pool, imported.path.parent, None, "cpu", 1)  # type: ignore[arg-type] # of modules
    return judge.rewritten(imported.graph, [{"x": image(21)}], "")


def _replace(model: ModelProto, index: int, name: str, change: Callable[[Array], None]) -> None:
    """Change the values of a convolution's weight or bias."""
    conv = convolution(model, name)
    values = constant(model, conv.input[index])
    change(values)
    conv.input[index] = f"{name}_planted"
    model.graph.initializer.append(numpy_helper.from_array(values, f"{name}_planted"))


def _insert(model: ModelProto, source: str, operator: str, number: float) -> None:
    """Add a node with a constant behind a tensor, which all its readers read in its place."""
    nodes = [copied(item) for item in model.graph.node]
    place = next(index for index, item in enumerate(nodes) if source in item.output)
    for item in nodes:
        item.input[:] = [f"{source}_planted" if name == source else name for name in item.input]
    nodes.insert(place + 1, node(operator, [source, "planted"], [f"{source}_planted"], name="planted"))
    model.graph.initializer.append(numpy_helper.from_array(np.array(number, np.float32), "planted"))
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _rounding(model: ModelProto) -> tuple[str, str]:
    """What the layer gives and what of it is rounded, by their names: the operand of a quotient, and the integers."""
    reached = {convolution(model, LAYER).output[0]}
    for item in model.graph.node:
        if reached & {*item.input}:
            reached |= {*item.output}
            if item.op_type == "Round":
                quotient = producer(model, item.input[0])
                return quotient.input[0], item.output[0]
    raise AssertionError("the layer is not rounded")


def _dropped_bias(model: ModelProto) -> None:
    def drop(bias: Array) -> None:
        bias[CHANNEL] = 0

    _replace(model, 2, LAYER, drop)


def _channel_scale(model: ModelProto) -> None:
    def grow(weight: Array) -> None:
        weight[CHANNEL] *= np.float32(1.02)

    _replace(model, 1, LAYER, grow)


def _zero_point(model: ModelProto) -> None:
    _insert(model, _rounding(model)[1], "Add", 1.0)


def _dropped_pair(model: ModelProto) -> None:
    """What was rounded and scaled is what had to be."""
    number, integers = _rounding(model)
    for item in model.graph.node:
        if item.op_type == "Mul" and integers in item.input:
            index = list(item.input).index(integers)
            scale = item.input[1 - index]
            item.input[index] = number
            item.input[1 - index] = "planted_one"
            model.graph.initializer.append(numpy_helper.from_array(np.ones_like(constant(model, scale)), "planted_one"))
            return
    raise AssertionError("the integers are not scaled")


def _saturating_sum(model: ModelProto) -> None:
    """Sums end at a limit that few of them reach."""
    _insert(model, convolution(model, LAYER).output[0], "Min", 4.0)


def _dying(path: Path) -> object:
    os.abort()


def _refusing(path: Path) -> object:
    return WorkerError(UsageError(f"'{path}' cannot be read"))


FAULTS = {
    "bias": _dropped_bias,
    "scale": _channel_scale,
    "zero point": _zero_point,
    "pair": _dropped_pair,
    "sum": _saturating_sum,
}


def test_a_right_rewrite_passes(imported: ImportedModel, pool: WorkerPool) -> None:
    found = _verdict(imported, pool)
    assert found.is_right, found.sentence
    assert found.compared >= 0.8 * len(imported.graph.layers)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_rewrite_is_refused_by_the_name_of_the_node(
    fault: str, imported: ImportedModel, pool: WorkerPool
) -> None:
    wrong = copy_of(prepared_model(imported.prepared))
    FAULTS[fault](wrong)
    with pytest.raises(RewriteError, match=rf"internal: the rewritten model differs .* at node '{LAYER}.*'") as found:
        _verdict(replace(imported, prepared=wrong.SerializeToString()), pool)
    assert found.value.exit_code == 8


def test_it_is_refused_before_anything_is_measured(imported: ImportedModel, pool: WorkerPool) -> None:
    wrong, samples = copy_of(prepared_model(imported.prepared)), [{"x": image(21)}]
    _zero_point(wrong)
    with checking_layers(pool, imported, samples):
        pass
    is_done = False
    faulty = replace(imported, prepared=wrong.SerializeToString())
    with pytest.raises(RewriteError, match=rf"at node '{LAYER}"), checking_layers(pool, faulty, samples):
        is_done = True
    assert is_done


@pytest.mark.parametrize("worker", [_dying, _refusing])
def test_what_cannot_be_compared_is_left_to_the_check_of_the_module(
    worker: Callable[..., object],
    imported: ImportedModel,
    pool: WorkerPool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(rewritten_layers, "tensors_of", worker)
    is_done = False
    with caplog.at_level(logging.INFO), checking_layers(pool, imported, [{"x": image(21)}]):
        is_done = True
    assert is_done
    assert "layers of the rewritten model are not compared yet: " in caplog.text
