"""Networks of open sizes: code from two imports is right for sizes that neither has, by stock code and by kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import F32, LayerKind, Task, TensorType
from sartor.codegen.ir.sizes.dims import Symbol
from sartor.codegen.ir.sizes.fit import Fit, SeveralFitError
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Variant, variant_of
from sartor.codegen.routines import FUSED_ROUTINES, routines_for
from sartor.codegen.routines.vector.product import Product
from sartor.costing.listing import list_candidates
from sartor.dialect_passes.fuse_layers import apply_fusions
from sartor.dialect_passes.opening.channels_last import channels_last
from sartor.dialect_passes.opening.open_body import open_body
from sartor.dialect_passes.opening.open_graph import open_graph, unconfirmed
from sartor.errors import UnsupportedModelError
from sartor.frontend.imported_model import ImportedModel
from sartor.runtime.output_error import relative_error
from sartor.runtime.reference import OnnxRuntimeReference
from sartor.runtime.session import Session
from sartor.tuning.networks.build_job import NetFiles, SplitNetwork, build_net
from sartor.tuning.records.signature import net_signature
from tests.importing import imported_model
from tests.open_models import (
    POSITIONS,
    detector,
    encoder,
    feed_forward,
    named,
    recogniser,
    saved,
    speech_encoder,
    tokens,
)
from tests.tiny_models import Builder

TARGET = Target.create("cpu")
# Ones, primes, and numbers just below, at and just above tiles and vectors.
LENGTHS = (1, 64, *range(2, 10), 11, 13, 15, 16, 17, 19, 23, 24, 25, 29, 31, 32, 33, 37, 41, 43, 47, 48, 49, 53, 61, 63)
CALLS = [(1, 1), (4, 1), (4, 64), *((1 + index % 4, length) for index, length in enumerate(LENGTHS))]
ROWS, BATCH, SEQUENCE = Symbol("rows", 1, 33), Symbol("batch", 1, 4), Symbol("sequence", 1, POSITIONS)
Shapes = Callable[[dict[str, int]], dict[str, tuple[int, ...]]]
Encoders = Callable[[int, int], tuple[Path, LayerGraph, ImportedModel]]


def imported(path: Path, shapes: dict[str, tuple[int, ...]]) -> ImportedModel:
    return imported_model(path, shapes)


def opened(path: Path, symbols: Sequence[Symbol], shapes: Shapes) -> tuple[LayerGraph, ImportedModel]:
    fit = Fit.of(symbols)
    most = {symbol.name: symbol.most for symbol in symbols}
    one, other = (imported(path, shapes(sizes)) for sizes in (most, fit.twin_sizes))
    turned, twin = (channels_last((each.graph, each.weights)) for each in (one, other))
    return open_graph(turned, twin, fit), replace(one, weights=turned[1])


def chosen(graph: LayerGraph, by_kernels: bool) -> dict[str, Variant]:
    """The last kernel of each layer, or stock code where it has none, or for all."""
    variants = list_candidates(graph, routines_for(frozenset()), TARGET).variants
    found = {}
    for layer in graph.layers:
        stock, *others = variants[layer.task.key]
        kernels = [other for other in others if other.implementation.kernel is not None]
        found[layer.name] = kernels[0] if by_kernels and kernels else stock
    return found


def opened_session(graph: LayerGraph, model: ImportedModel, path: Path, *, by_kernels: bool) -> Session:
    build_net(SplitNetwork(graph, chosen(graph, by_kernels)), model.weights, TARGET, "", NetFiles(path, None))
    return Session(path, signature=net_signature((graph.inputs, graph.outputs)), threads=2)


@pytest.fixture(scope="module", params=[False, True], ids=["stock", "kernels"])
def rows(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Session, Path]:
    folder = tmp_path_factory.mktemp("rows")
    path = saved(feed_forward(), folder / "model.onnx")
    graph, model = opened(path, [ROWS], lambda sizes: {"x": (sizes["rows"], 24)})
    return opened_session(graph, model, folder / "model.vmfb", by_kernels=request.param), path


@settings(max_examples=40, deadline=None)
@given(count=st.integers(1, ROWS.most), seed=st.integers(0, 9))
def test_any_number_of_rows_is_right(rows: tuple[Session, Path], count: int, seed: int) -> None:
    session, path = rows
    x = np.random.default_rng(seed).standard_normal((count, 24)).astype(np.float32)
    expected = OnnxRuntimeReference(path, threads=1)({"x": x})
    found = session.run(None, {"x": x})
    assert found[0].shape == expected[0].shape
    assert relative_error(found, expected) < 1e-5


def test_workgroups_that_partition_rows_partition_panels_of_few_rows(tmp_path: Path) -> None:
    """Whole tiles fewer than workgroups, as many, and more; the last panel has fewer channels, or is full."""
    path = saved(feed_forward(hidden=70), tmp_path / "model.onnx")
    graph, model = opened(path, [ROWS], lambda sizes: {"x": (sizes["rows"], 24)})
    code, groups, columns = chosen(graph, by_kernels=False), 3, 4
    sizes = {"columns": columns, "lines": 1, "panel_groups": 1, "row_groups": groups, "unroll": 1, "vectors": 1}
    for layer in graph.layers:
        if layer.task.kind is LayerKind.CONTRACTION:
            found = variant_of(Product(), layer.task, sizes, TARGET)
            assert isinstance(found, Variant), found
            code[layer.name] = found
    assert [each.routine for each in code.values()].count("product") == 3
    build_net(SplitNetwork(graph, code), model.weights, TARGET, "", NetFiles(tmp_path / "model.vmfb", None))
    session = Session(tmp_path / "model.vmfb", signature=net_signature((graph.inputs, graph.outputs)), threads=2)
    reference, few = OnnxRuntimeReference(path, threads=1), groups * columns
    for count in (1, columns - 1, columns, few - 1, few, few + 1, few + columns, ROWS.most):
        x = np.random.default_rng(count).standard_normal((count, 24)).astype(np.float32)
        assert relative_error(session.run(None, {"x": x}), reference({"x": x})) < 1e-5, count


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> Encoders:
    """Encoders of a width and a number of heads, opened."""

    @cache
    def made(width: int, heads: int) -> tuple[Path, LayerGraph, ImportedModel]:
        path = saved(encoder(width=width, heads=heads), tmp_path_factory.mktemp("encoder") / "model.onnx")
        names = "input_ids", "attention_mask"
        return path, *opened(
            path, [BATCH, SEQUENCE], lambda sizes: dict.fromkeys(names, (sizes["batch"], sizes["sequence"]))
        )

    return made


@pytest.mark.parametrize("by_kernels", [False, True])
def test_an_encoder_is_right_for_any_batch_and_number_of_tokens(
    by_kernels: bool, encoders: Encoders, tmp_path: Path
) -> None:
    path, graph, model = encoders(32, 4)
    session = opened_session(graph, model, tmp_path / "model.vmfb", by_kernels=by_kernels)
    reference = OnnxRuntimeReference(path, threads=1)
    for batch, length in CALLS:
        feeds = tokens(batch, length)
        assert relative_error(session.run(None, feeds), reference(feeds)) < 1e-5, (batch, length)


@pytest.mark.parametrize(("turns_keys", "number"), [(False, 0), (False, 2), (False, 5), (True, 0), (True, 1)])
def test_attention_is_one_kernel_for_any_number_of_queries_and_keys(
    turns_keys: bool, number: int, encoders: Encoders, tmp_path: Path
) -> None:
    path, graph, model = encoders(40, 2)
    variants = list_candidates(graph, routines_for(frozenset()), TARGET, FUSED_ROUTINES).variants
    # With results transposed, as the product behind them reads them, or without; half of them transpose keys, too.
    with_result = [each for each in graph.fusions if each.members[-1] == "l0out_product.turned"]
    assert len(graph.fusions) == 2 * len(with_result)
    attention, turned = sorted(with_result, key=lambda each: len(each.members))
    assert turned.members[1:] == attention.members
    fusion = turned if turns_keys else attention
    kernels = [each for each in variants[fusion.layer.task.key] if each.implementation.kernel is not None]
    # Many queries take their keys from a copy, by blocks, unless a layer before has turned them.
    assert [each.routine for each in kernels] == ["open_attention"] * (not turns_keys) * 4 + ["blocked_attention"] * 2
    fused = apply_fusions(graph, [fusion.layer.name])
    code = {layer.name: variants[layer.task.key][0] for layer in fused.layers} | {fusion.layer.name: kernels[number]}
    build_net(SplitNetwork(fused, code), model.weights, TARGET, "", NetFiles(tmp_path / "model.vmfb", None))
    session = Session(
        tmp_path / "model.vmfb", signature=net_signature((fused.inputs, fused.outputs)), threads=1 + number % 2
    )
    reference = OnnxRuntimeReference(path, threads=1)
    for batch, length in CALLS:
        feeds = tokens(batch, length)
        assert relative_error(session.run(None, feeds), reference(feeds)) < 1e-5, (batch, length)


def test_layers_of_rows_get_kernels(tmp_path: Path) -> None:
    path = saved(feed_forward(), tmp_path / "model.onnx")
    graph, _ = opened(path, [ROWS], lambda sizes: {"x": (sizes["rows"], 24)})
    assert all(each.implementation.kernel is not None for each in chosen(graph, by_kernels=True).values())
    assert {str(each.type) for each in (*graph.inputs, *graph.outputs)} == {"tensor<?x24xf32>", "tensor<?x19xf32>"}


HEIGHT, SIDE, LINE = Symbol("height", 3, 21), Symbol("width", 2, 24, 2), Symbol("width", 4, 37)


def test_a_detector_is_right_for_any_height_and_width(tmp_path: Path) -> None:
    path = saved(detector(), tmp_path / "model.onnx")
    symbols = Symbol("n", 1, 2), HEIGHT, SIDE
    graph, model = opened(path, symbols, lambda sizes: {"x": (sizes["n"], 3, sizes["height"], sizes["width"])})
    products = {"stem.nhwc", "wide.nhwc", "coarse.nhwc", "boxes.nhwc"}
    routines = {name: each.routine for name, each in chosen(graph, by_kernels=True).items()}
    assert {name for name, routine in routines.items() if routine == "product"} == products
    patches = {"stem.patches", "deep.patches", "coarse.patches"}
    assert {name for name, routine in routines.items() if routine == "open_patches"} == patches
    assert routines["pooled.nhwc"] == "open_window"
    session = opened_session(graph, model, tmp_path / "model.vmfb", by_kernels=True)
    reference = OnnxRuntimeReference(path, threads=1)
    for shape in [(1, 3, 21, 24), (1, 3, 3, 2), (2, 3, 5, 22), (1, 3, 17, 14), (2, 3, 4, 6), (1, 3, 20, 10)]:
        x = np.random.default_rng(shape).standard_normal(shape).astype(np.float32)
        assert relative_error(session.run(None, {"x": x}), reference({"x": x})) < 1e-5, shape


def test_a_recogniser_is_right_for_any_width(tmp_path: Path) -> None:
    path = saved(recogniser(), tmp_path / "model.onnx")
    graph, model = opened(path, [LINE], lambda sizes: {"x": (1, 1, 8, sizes["width"])})
    routines = [each.routine for each in chosen(graph, by_kernels=True).values()]
    assert (routines.count("recurrent"), routines.count("product")) == (2, 5)
    session = opened_session(graph, model, tmp_path / "model.vmfb", by_kernels=True)
    reference = OnnxRuntimeReference(path, threads=1)
    for width in (37, 4, 5, 7, 11, 16, 29, 36):
        x = np.random.default_rng(width).standard_normal((1, 1, 8, width)).astype(np.float32)
        assert relative_error(session.run(None, {"x": x}), reference({"x": x})) < 1e-5, width


def test_a_speech_encoder_is_right_for_any_number_of_frames(tmp_path: Path) -> None:
    path = saved(speech_encoder(), tmp_path / "model.onnx")
    symbols = Symbol("batch", 1, 3), Symbol("frames", 1, 118)
    graph, model = opened(path, symbols, lambda sizes: {"x": (sizes["batch"], sizes["frames"], 16)})
    session = opened_session(graph, model, tmp_path / "model.vmfb", by_kernels=True)
    reference = OnnxRuntimeReference(path, threads=1)
    for batch, frames in [(3, 118), (1, 1), (2, 2), (1, 3), (3, 4), (1, 31), (2, 64), (1, 65), (1, 97), (3, 113)]:
        x = np.random.default_rng(frames).standard_normal((batch, frames, 16)).astype(np.float32)
        assert relative_error(session.run(None, {"x": x}), reference({"x": x})) < 1e-5, (batch, frames)


def _of_length(build: Callable[[Builder], str], width: int = 6) -> ModelProto:
    builder = Builder()
    builder.op("Identity", "y", build(builder))
    return named(builder.model([("x", [1, width])], [("y", [1, width])]), {"x": ["n", width], "y": [*"ab"]})


def _mean(build: Builder) -> str:
    return build.op("ReduceMean", "mean", "x", build.constant(np.array([0])), keepdims=1)


def _with_a_first_row(build: Builder) -> str:
    return build.op("Relu", "r", build.op("Concat", "joined", build.weight(1, 6), "x", axis=0))


def _last_row(build: Builder) -> str:
    ends = [build.constant(np.array([each])) for each in (-1, 2**31, 0)]
    return build.op("Relu", "r", build.op("Slice", "last", "x", *ends))


def _without_the_first_row(build: Builder) -> str:
    ends = [build.constant(np.array([each])) for each in (1, 2**31, 0)]
    return build.op("Relu", "r", build.op("Slice", "rest", "x", *ends))


def _by_count(build: Builder, function: str) -> str:
    """Divides by a function of the number of rows, which constant folding computes."""
    shape = build.op("Gather", "count", build.op("Shape", "shape", "x"), build.constant(np.array([0])))
    return build.op("Div", "d", "x", build.op(function, "of_count", build.op("Cast", "real", shape, to=1)))


def _standard_deviation(build: Builder) -> str:
    return _by_count(build, "Sqrt")


def _entropy(build: Builder) -> str:
    return _by_count(build, "Log")


@pytest.mark.parametrize("make", [_mean, _with_a_first_row, _last_row, _without_the_first_row, _standard_deviation])
def test_sizes_in_the_code_are_opened(make: Callable[[Builder], str], tmp_path: Path) -> None:
    path = saved(_of_length(make), tmp_path / "model.onnx")
    graph, model = opened(path, [Symbol("n", 2, 16)], lambda sizes: {"x": (sizes["n"], 6)})
    session = opened_session(graph, model, tmp_path / "model.vmfb", by_kernels=True)
    for count in (2, 3, 7, 16):
        x = np.random.default_rng(count).standard_normal((count, 6)).astype(np.float32)
        expected = OnnxRuntimeReference(path, threads=1)({"x": x})
        assert relative_error(session.run(None, {"x": x}), expected) < 1e-5, count


def test_a_number_that_follows_from_sizes_in_another_way_is_refused(tmp_path: Path) -> None:
    path = saved(_of_length(_entropy), tmp_path / "model.onnx")
    with pytest.raises(
        UnsupportedModelError, match=r"cannot be compiled for any size: .*begins or ends higher.*=1\|8,16"
    ):
        opened(path, [Symbol("n", 2, 16)], lambda sizes: {"x": (sizes["n"], 6)})


@pytest.mark.parametrize("operator", ["Identity", "Shape"])
def test_an_output_that_is_a_size_is_refused(operator: str, tmp_path: Path) -> None:
    """It was the largest one, whatever the input."""
    builder = Builder()
    builder.op("Relu", "y", "x")
    shape = builder.op("Shape", "shape", "x") if operator == "Identity" else "x"
    builder.op(operator, "size", shape)
    model = builder.model([("x", [1, 6])], [("y", [1, 6]), ("size", [2])])
    model.graph.output[1].type.tensor_type.elem_type = TensorProto.INT64
    path = saved(named(model, {"x": ["n", 6], "y": ["n", 6]}), tmp_path / "model.onnx")
    with pytest.raises(UnsupportedModelError, match=r"output 'size' is a constant that depends on sizes; .*=1"):
        opened(path, [Symbol("n", 2, 16)], lambda sizes: {"x": (sizes["n"], 6)})


def _first_rows(build: Builder) -> str:
    """The first four rows, or all if there are fewer: four for both sizes of most imports."""
    ends = [build.constant(np.array([number])) for number in (0, 4, 0)]
    return build.op("Relu", "r", build.op("Slice", "few", "x", *ends))


def _repeated(build: Builder) -> str:
    """Sixteen columns, as many as there are rows at most."""
    return build.op("Relu", "r", build.op("MatMul", "wide", "x", build.weight(6, 16)))


def _sum_of_first_rows(build: Builder) -> str:
    return build.op("ReduceSum", "sum", _first_rows(build), build.constant(np.array([0])), keepdims=1)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (_first_rows, r"output 'y' cannot have any size: where n is 3 it is tensor<3x6xf32>, not tensor<4x6xf32>"),
        (_repeated, ""),
        (_mean, ""),
    ],
)
def test_a_third_import_tells_what_only_seems_to_be_constant(
    make: Callable[[Builder], str], complaint: str, tmp_path: Path
) -> None:
    path, symbol = saved(_of_length(make), tmp_path / "model.onnx"), Symbol("n", 1, 16)
    graph, model = opened(path, [symbol], lambda sizes: {"x": (sizes["n"], 6)})
    fit = Fit.of_small([symbol])
    small = imported(path, {"x": (fit.twin[0], 6)})
    networks = (model.graph, model.weights), (small.graph, small.weights)
    if complaint:
        # Layers without counterparts are told of, whose outputs have the sizes that are expected.
        summed = saved(_of_length(_sum_of_first_rows), tmp_path / "sum.onnx")
        other_graph, one = opened(summed, [symbol], lambda sizes: {"x": (sizes["n"], 6)})
        less = imported(summed, {"x": (fit.twin[0], 6)})
        assert unconfirmed(other_graph, (one.graph, one.weights), (less.graph, less.weights), fit)
        with pytest.raises(UnsupportedModelError, match=complaint):
            unconfirmed(graph, *networks, fit)
        return
    assert unconfirmed(graph, *networks, fit) == ()
    other = replace(small.graph, layers=tuple(replace(layer, name="other") for layer in small.graph.layers))
    assert unconfirmed(graph, networks[0], (other, small.weights), fit) == tuple(layer.name for layer in graph.layers)
    # What is folded further where sizes are small is another constant.
    folded = {name: array[np.newaxis] for name, array in small.weights.items()}
    unknown = unconfirmed(graph, networks[0], (small.graph, folded), fit)
    assert unknown == tuple(layer.name for layer in graph.layers if layer.weights)
    # So is an output that is folded there, and computed where sizes are large.
    (output,) = small.graph.outputs
    constant = replace(output, source=None, constant="folded")
    constants = {**small.weights, "folded": np.zeros(output.type.shape)}
    folding = replace(small.graph, outputs=(constant,)), constants
    (computed,) = graph.outputs
    assert computed.source is not None
    assert unconfirmed(graph, networks[0], folding, fit) == (computed.source.source,)


def test_weights_that_depend_on_sizes_are_refused(tmp_path: Path) -> None:
    path = saved(feed_forward(), tmp_path / "model.onnx")
    one, other = (imported(path, {"x": (count, 24)}) for count in (33, 31))
    fit = Fit((ROWS,), (31,))
    name = next(layer.weights[0] for layer in other.graph.layers if layer.weights)
    weights = {**other.weights} | {name: other.weights[name] + np.float32(1e-6)}
    with pytest.raises(UnsupportedModelError, match="weight whose values depend on sizes"):
        open_graph((one.graph, one.weights), (other.graph, weights), fit)


def test_a_layer_with_other_weights_for_other_sizes_is_refused(tmp_path: Path) -> None:
    path = saved(feed_forward(), tmp_path / "model.onnx")
    one, other = (imported(path, {"x": (count, 24)}) for count in (33, 31))
    layers = [replace(layer, weights=layer.weights[1:]) for layer in other.graph.layers]
    fewer = replace(other.graph, layers=tuple(layers))
    with pytest.raises(UnsupportedModelError, match="it has other weights for other sizes"):
        open_graph((one.graph, one.weights), (fewer, other.weights), Fit((ROWS,), (31,)))


@pytest.mark.parametrize(("one", "other"), [(30.0, 15.0), (30.0**-0.5, 15.0**-0.5), (30.0**0.5, 15.0**0.5)])
def test_numbers_that_several_sizes_may_be_are_told_from_those_that_none_is(one: float, other: float) -> None:
    """An import that cannot tell what a number is says nothing against what others told."""
    halves = Fit((Symbol("a", 1, 6), Symbol("b", 1, 10)), (3, 5))
    with pytest.raises(SeveralFitError, match=r"5 \* a or 3 \* b"):
        open_body(_scaled(one), _scaled(other), halves)
    with pytest.raises(ValueError, match=r"depending on sizes|no product") as refused:
        open_body(_scaled(one), _scaled(1.1 * other), halves)
    assert not isinstance(refused.value, SeveralFitError)


def _scaled(number: float) -> Task:
    """Four numbers times another one."""
    kind = TensorType((4,), F32)
    body = f"""util.func public @layer(%x: {kind}) -> {kind} {{
  %number = arith.constant {number:.9e} : f32
  %empty = tensor.empty() : {kind}
  %y = linalg.generic {{indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
      iterator_types = ["parallel"]}} ins(%x : {kind}) outs(%empty : {kind}) {{
  ^bb0(%in: f32, %out: f32):
    %product = arith.mulf %in, %number : f32
    linalg.yield %product : f32
  }} -> {kind}
  util.return %y : {kind}
}}"""
    return Task("scaled", LayerKind.TOLERANT, body, (kind,), (), (kind,))


def test_code_that_differs_in_more_than_sizes_is_refused(tmp_path: Path) -> None:
    path = saved(feed_forward(), tmp_path / "model.onnx")
    one, other = (imported(path, {"x": (count, 24)}).graph.layers[-1].task for count in (33, 31))
    planted: Task = replace(other, body=other.body.replace("math.exp", "math.sin", 1))
    with pytest.raises(ValueError, match="not the same for all sizes"):
        open_body(one, planted, Fit((ROWS,), (31,)))
