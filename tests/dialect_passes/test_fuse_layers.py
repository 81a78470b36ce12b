"""Which layers may be fused, a graph in which some are, and attention without queries or keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import ValueRef
from sartor.codegen.ir.sizes.dims import Symbol
from sartor.codegen.routines import FUSED_ROUTINES, routines_for
from sartor.costing.listing import list_candidates
from sartor.dialect_passes.fuse_layers import apply_fusions, find_fusions
from sartor.runtime.output_error import relative_error
from sartor.runtime.reference import OnnxRuntimeReference
from sartor.runtime.session import Session
from sartor.tuning.networks.build_job import NetFiles, SplitNetwork, build_net
from sartor.tuning.records.signature import net_signature
from tests.dialect_passes.test_opening import TARGET, opened
from tests.importing import ImportedOf, imported_model
from tests.open_models import named, saved
from tests.tiny_models import Builder, Value

PAIRS = {"apart1+joined1": ("apart1", "joined1"), "apart2+joined2": ("apart2", "joined2")}
IMAGE = (1, 8, 6, 6)
OUTPUT: Value = ("y", IMAGE)


def _apart(b: Builder, output: str = "apart", source: str = "x") -> str:
    return b.conv(output, source, (8, 8), group=8)


def _joined(b: Builder, output: str = "y", source: str = "apart") -> str:
    return b.conv(output, source, (8, 8), kernel=1)


def intermediate_is_an_output() -> ModelProto:
    b = Builder()
    _joined(b, source=_apart(b))
    return b.model([("x", IMAGE)], [OUTPUT, ("apart", IMAGE)])


def intermediate_is_read_by_two() -> ModelProto:
    b = Builder()
    value = _apart(b)
    _joined(b, "left", value)
    _joined(b, "right", value)
    b.op("Concat", "y", "left", "right", axis=1)
    return b.model([("x", IMAGE)], [("y", (1, 16, 6, 6))])


def the_other_way_round() -> ModelProto:
    b = Builder()
    _apart(b, "y", _joined(b, "joined", "x"))
    return b.model([("x", IMAGE)], [OUTPUT])


def windows_in_a_row() -> ModelProto:
    b = Builder()
    b.op("MaxPool", "y", _apart(b, "second", _apart(b)), kernel_shape=[3, 3], pads=[1] * 4)
    return b.model([("x", IMAGE)], [OUTPUT])


def several_filters_for_a_channel() -> ModelProto:
    b = Builder()
    value = b.conv("apart", "x", (8, 16), group=8)
    b.conv("y", value, (16, 8), kernel=1)
    return b.model([("x", IMAGE)], [OUTPUT])


def something_between() -> ModelProto:
    b = Builder()
    _joined(b, source=b.op("Softmax", "softmax", _apart(b), axis=-1))
    return b.model([("x", IMAGE)], [OUTPUT])


def name_of_another() -> ModelProto:
    b = Builder()
    b.op("Concat", "y", _joined(b, "joined", _apart(b)), _joined(b, "apart+joined", "x"), axis=1)
    return b.model([("x", IMAGE)], [("y", (1, 16, 6, 6))])


def computed_between() -> ModelProto:
    """What is added to the second result is computed after the first one, and before the second."""
    b = Builder()
    value = _apart(b)
    other = b.op("Relu", "other.relu", b.conv("other", "z", (8, 8)))
    b.op("Add", "y", _joined(b, "joined", value), b.op("MaxPool", "pool", other, kernel_shape=[3, 3], pads=[1] * 4))
    return b.model([("x", IMAGE), ("z", IMAGE)], [OUTPUT])


def _graph(make: Callable[[], ModelProto]) -> LayerGraph:
    return imported_model(make()).graph


def _check_order(graph: LayerGraph) -> None:
    """Everything is computed before it is read, and has the type that it is read with."""
    made = {ValueRef(None, index): each.type for index, each in enumerate(graph.inputs)}
    for layer in graph.layers:
        assert [made[ref] for ref in layer.inputs] == list(layer.task.inputs)
        assert len(layer.weights) == len(layer.task.weights)
        made |= {ValueRef(layer.name, index): result for index, result in enumerate(layer.task.results)}
    assert all(made[output.source] == output.type for output in graph.outputs if output.source)


def test_a_window_and_the_product_after_it_may_be_fused(imported_of: ImportedOf) -> None:
    graph = imported_of("separable").graph
    layers = {layer.name: layer for layer in graph.layers}
    assert {each.layer.name: each.members for each in graph.fusions} == PAIRS
    for fusion in graph.fusions:
        first, second = (layers[name] for name in fusion.members)
        assert fusion.layer.nodes == (*first.nodes, *second.nodes)
        assert fusion.layer.weights == (*first.weights, *second.weights)
        assert [stage.task for stage in fusion.layer.task.stages] == [first.task, second.task]
    residual, strided = (each.layer.inputs for each in graph.fusions)
    assert residual == (ValueRef(None, 0), ValueRef(None, 0))
    assert strided == (ValueRef("joined1", 0),)


def test_tasks_of_fusions_come_last(imported_of: ImportedOf) -> None:
    graph = imported_of("separable").graph
    keys = list(graph.tasks())
    assert keys[-2:] == [fusion.layer.task.key for fusion in graph.fusions]
    assert keys[:-2] == [layer.task.key for layer in graph.layers]


@pytest.mark.parametrize(
    "make",
    [
        intermediate_is_an_output,
        intermediate_is_read_by_two,
        the_other_way_round,
        windows_in_a_row,
        several_filters_for_a_channel,
        something_between,
        name_of_another,
    ],
)
def test_other_layers_stay_apart(make: Callable[[], ModelProto]) -> None:
    assert _graph(make).fusions == ()


@pytest.mark.parametrize("name", ["residual", "lenet", "shared_pad", "squeeze_excite"])
def test_networks_without_windows_have_nothing_to_fuse(name: str, imported_of: ImportedOf) -> None:
    graph = imported_of(name).graph
    assert find_fusions(graph) == graph
    assert apply_fusions(graph, ("absent",)) == graph


def test_fused_layers_stand_for_their_members(imported_of: ImportedOf) -> None:
    graph = imported_of("separable").graph
    fused = apply_fusions(graph, PAIRS)
    assert [layer.name for layer in fused.layers] == list(PAIRS)
    assert fused.layers[1].inputs == (ValueRef("apart1+joined1", 0),)
    assert [output.source for output in fused.outputs] == [ValueRef("apart2+joined2", 0)]
    assert fused.outputs[0] == replace(graph.outputs[0], source=ValueRef("apart2+joined2", 0))
    assert (fused.inputs, fused.fusions) == (graph.inputs, ())
    _check_order(fused)


@pytest.mark.parametrize(
    ("chosen", "layers"),
    [
        ((), ["apart1", "joined1", "apart2", "joined2"]),
        (("apart1+joined1",), ["apart1+joined1", "apart2", "joined2"]),
        (("apart2+joined2",), ["apart1", "joined1", "apart2+joined2"]),
        (("apart1", "joined2", "absent"), ["apart1", "joined1", "apart2", "joined2"]),
    ],
)
def test_only_what_was_chosen_is_fused(imported_of: ImportedOf, chosen: tuple[str, ...], layers: list[str]) -> None:
    graph = imported_of("separable").graph
    fused = apply_fusions(graph, chosen)
    assert [layer.name for layer in fused.layers] == layers
    _check_order(fused)
    assert [output.name for output in fused.outputs] == ["y"]


def test_a_fused_layer_comes_after_all_that_it_reads() -> None:
    graph = _graph(computed_between)
    names = [layer.name for layer in graph.layers]
    assert names.index("apart") < names.index("pool") < names.index("joined")
    (fusion,) = graph.fusions
    assert ValueRef("pool", 0) in fusion.layer.inputs
    fused = apply_fusions(graph, [fusion.layer.name])
    assert [layer.name for layer in fused.layers] == [name for name in names if name not in fusion.members] + [
        fusion.layer.name
    ]
    _check_order(fused)


HEADS, DEPTH = 2, 8
QUERIES, KEYS = Symbol("queries", 0, 20), Symbol("keys", 0, 33)
ROUTINES = "open_attention", "blocked_attention"


@pytest.fixture(scope="module")
def attentions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Session, Path]:
    """A module of the same attention by each routine, and its model."""
    folder, build = tmp_path_factory.mktemp("attention"), Builder()
    for name in ROUTINES:
        scores = build.op("MatMul", f"{name}.scores", f"{name}.q", "k")
        build.op("MatMul", name, build.op("Softmax", f"{name}.share", scores, axis=-1), "v")
    dims: dict[str, list[int | str]] = {
        **{f"{name}.q": [1, HEADS, "queries", DEPTH] for name in ROUTINES},
        "k": [1, HEADS, DEPTH, "keys"],
        "v": [1, HEADS, "keys", DEPTH],
        **{name: [1, HEADS, "queries", DEPTH] for name in ROUTINES},
    }
    inputs = *(f"{name}.q" for name in ROUTINES), "k", "v"
    model = build.model([(name, [1] * 4) for name in inputs], [(name, [1] * 4) for name in ROUTINES])
    path = saved(named(model, dims), folder / "model.onnx")
    graph, imported = opened(path, [QUERIES, KEYS], lambda sizes: _shapes(sizes["queries"], sizes["keys"]))
    variants = list_candidates(graph, routines_for(frozenset()), TARGET, FUSED_ROUTINES).variants
    kernels = {}
    for routine, fusion in zip(ROUTINES, graph.fusions, strict=True):
        offered = variants[fusion.layer.task.key]
        kernels[fusion.layer.name] = next(each for each in offered if each.routine == routine)
    fused = apply_fusions(graph, [*kernels])
    chosen = {layer.name: variants[layer.task.key][0] for layer in fused.layers} | kernels
    module = folder / "model.vmfb"
    build_net(SplitNetwork(fused, chosen), imported.weights, TARGET, "", NetFiles(module, None))
    return Session(module, signature=net_signature((fused.inputs, fused.outputs)), threads=1), path


def _shapes(queries: int, keys: int) -> dict[str, tuple[int, ...]]:
    keyed: dict[str, tuple[int, ...]] = {"k": (1, HEADS, DEPTH, keys), "v": (1, HEADS, keys, DEPTH)}
    return {f"{name}.q": (1, HEADS, queries, DEPTH) for name in ROUTINES} | keyed


@pytest.mark.parametrize(("queries", "keys"), [(0, 7), (5, 0), (0, 0), (1, 1), (20, 33), (3, 17)])
def test_attention_without_queries_or_keys(queries: int, keys: int, attentions: tuple[Session, Path]) -> None:
    session, path = attentions
    random = np.random.default_rng([queries, keys])
    feeds = {name: random.standard_normal(shape).astype(np.float32) for name, shape in _shapes(queries, keys).items()}
    found = session.run(None, feeds)
    assert [each.shape for each in found] == [(1, HEADS, queries, DEPTH)] * len(ROUTINES)
    if keys:
        assert relative_error(found, OnnxRuntimeReference(path, threads=1)(feeds)) < 1e-5
    else:
        assert not np.any(found)
