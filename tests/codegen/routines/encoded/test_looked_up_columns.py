"""Look-ups in weights of products: the plain table and all packed ones give the rows, and both layers read one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from sartor.codegen.ir.encoding import BlockEncoding
from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Rejected, choices_of
from sartor.codegen.routines.encoded.block_product import BlockProduct
from sartor.codegen.routines.encoded.looked_up_columns import LookedUpColumns
from sartor.codegen.routines.encoded.looked_up_tables import LookedUpTables
from sartor.codegen.routines.iree.stock import Stock
from sartor.codegen.routines.vector.product import Product
from sartor.frontend.import_job import run_import
from sartor.frontend.imported_model import ImportedModel
from tests.codegen.routines.harness import Subject, compiled, load, opened, run
from tests.devices import needs_vulkan
from tests.plugin.onnx_model.builders import model as onnx_model
from tests.plugin.onnx_model.builders import node, weights
from tests.plugin.tied_models import parts_of, tied, tied_floats, values_of

_TARGET = Target.create("cpu")
_CASES = {
    "points": (BlockEncoding(4, 32, 96, 301), True),
    "rest_of_block": (BlockEncoding(8, 64, 200, 140), False),
    "pairs": (BlockEncoding(2, 16, 112, 150), True),
}


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ImportedModel]:
    folder, found = tmp_path_factory.mktemp("tied"), {}
    for name, (of, has_points) in _CASES.items():
        path: Path = folder / f"{name}.onnx"
        onnx.save(tied(of, has_points=has_points), path)
        model = run_import(path, {}, None)
        assert isinstance(model, ImportedModel), model
        found[name] = model
    return found


def _look_up(imported: ImportedModel) -> Layer:
    return next(layer for layer in imported.graph.layers if not isinstance(_listed(layer), Rejected))


def _listed(layer: Layer) -> object:
    return choices_of(LookedUpColumns(4), layer.task, _TARGET)


def test_rows_are_those_of_the_table(imported: dict[str, ImportedModel]) -> None:
    subjects = {}
    for name, model in imported.items():
        layer = _look_up(model)
        built = {}
        for vectors in (1, 2, 4, 8) if name == "points" else (4,):
            listed = choices_of(LookedUpColumns(vectors), layer.task, _TARGET)
            assert not isinstance(listed, Rejected)
            (parameters,) = listed
            built[f"packed{vectors}"] = LookedUpColumns(vectors).build(layer.task, parameters, _TARGET)
        built["stock"] = Stock().build(layer.task, {}, _TARGET)
        known = {key: code for key, code in built.items() if isinstance(code, Implementation)}
        assert len(known) == len(built), built
        subjects[name] = Subject(replace(layer, name=name), model.weights, known)
    program = opened(compiled(subjects, _TARGET), _TARGET, 1)
    for name, subject in subjects.items():
        of, has_points = _CASES[name]
        table = values_of(of, parts_of(of, has_points=has_points)) + np.arange(of.depth)
        indices = np.array([[0, of.columns - 1, -1, 17, -of.columns]], np.int64)
        for variant in subject.implementations:
            found = run(program, subject, variant, [indices])
            assert np.abs(found - table[indices]).max() < 1e-4, (name, variant)


def test_a_table_and_the_product_tied_to_it_are_one_weight(imported: dict[str, ImportedModel]) -> None:
    for name, model in imported.items():
        of, has_points = _CASES[name]
        head = next(layer for layer in model.graph.layers if layer.name == "head")
        shared = {*_look_up(model).weights} & {*head.weights}
        held = sum(model.weights[each].nbytes for each in shared)
        # Scales that f16 holds are stored so; zero points take a byte each.
        assert held == of.codes.bytes + of.columns * of.blocks * (2 + has_points), name


def test_other_layers_are_rejected(imported: dict[str, ImportedModel]) -> None:
    head = next(layer for layer in imported["points"].graph.layers if layer.name == "head")
    assert _listed(head) == Rejected("it looks nothing up in a weight in blocks of integers")


def _packed(look_up: Layer, vectors: int, target: Target) -> Implementation:
    """The look-up in panels of so many vectors."""
    listed = choices_of(LookedUpColumns(vectors), look_up.task, target)
    assert not isinstance(listed, Rejected)
    (parameters,) = listed
    built = LookedUpColumns(vectors).build(look_up.task, parameters, target)
    assert isinstance(built, Implementation)
    return built


@pytest.mark.parametrize("target", [Target.create("vulkan", "ampere"), Target.create("cuda", "sm_80")])
def test_panels_on_a_gpu_are_those_of_its_products(target: Target, imported: dict[str, ImportedModel]) -> None:
    model = imported["points"]
    look_up, head = _look_up(model), next(layer for layer in model.graph.layers if layer.name == "head")
    (shared,) = {*look_up.weights[:1]} & {*head.weights}
    listed = choices_of(BlockProduct(), head.task, target)
    assert not isinstance(listed, Rejected)
    for parameters in listed:
        wide = int(str(parameters["vectors"]))
        product = BlockProduct().build(head.task, parameters, target)
        rows = _packed(look_up, wide, target)
        assert isinstance(product, Implementation)
        assert product.packings[head.weights.index(shared)] == rows.packings[look_up.weights.index(shared)]


@needs_vulkan
def test_rows_are_those_of_the_table_on_a_gpu(imported: dict[str, ImportedModel]) -> None:
    target, (of, has_points) = Target.create("vulkan"), _CASES["points"]
    layer = _look_up(imported["points"])
    subject = Subject(layer, imported["points"].weights, {"packed": _packed(layer, 2, target)})
    program = load({"rows": subject}, target)
    table = values_of(of, parts_of(of, has_points=has_points)) + np.arange(of.depth)
    indices = np.array([[0, of.columns - 1, -1, 17, -of.columns]], np.int64)
    assert np.abs(run(program, subject, "packed", [indices]) - table[indices]).max() < 1e-4


@pytest.mark.parametrize("is_turned", [False, True])
def test_floats_are_looked_up_as_products_read_them(tmp_path: Path, *, is_turned: bool) -> None:
    columns, depth = 301, 96
    onnx.save(tied_floats(columns, depth, is_turned=is_turned), tmp_path / "m.onnx")
    model = run_import(tmp_path / "m.onnx", {}, None)
    assert isinstance(model, ImportedModel), model
    layers = {layer.name: layer for layer in model.graph.layers}
    look_up = next(layer for layer in layers.values() if "looks_up_columns" in layer.task.body)
    (shared,) = {*look_up.weights} & {*layers["head"].weights}
    # The table is not a weight of its own.
    assert sorted(array.size for array in model.weights.values()) == [depth, columns * depth]
    built, forms = {"stock": Stock().build(look_up.task, {}, _TARGET)}, {}
    for vectors in (0, 1, 2, 3, 4, 6, 8):
        routine = LookedUpTables(vectors)
        listed = choices_of(routine, look_up.task, _TARGET)
        assert not isinstance(listed, Rejected)
        code = routine.build(look_up.task, listed[0], _TARGET)
        assert isinstance(code, Implementation), code
        forms[vectors] = code.packings[look_up.weights.index(shared)]
        built[routine.name] = code
    known = {key: code for key, code in built.items() if isinstance(code, Implementation)}
    subject = Subject(replace(look_up, name="rows"), model.weights, known)
    program = opened(compiled({"rows": subject}, _TARGET), _TARGET, 1)
    indices = np.array([[0, columns - 1, -1, 17, -columns]], np.int64)
    expected = weights(columns, depth)[indices] + weights(depth, seed=1)
    # A layer before counts negative indices from the end.
    inputs = [indices, indices + columns]
    for variant in subject.implementations:
        np.testing.assert_array_equal(run(program, subject, variant, inputs), expected, variant)
    head = layers["head"]
    listed = choices_of(Product(), head.task, _TARGET)
    assert not isinstance(listed, Rejected)
    for parameters in listed:
        product = Product().build(head.task, parameters, _TARGET)
        assert isinstance(product, Implementation)
        assert product.packings[head.weights.index(shared)] in forms.values(), parameters
    assert isinstance(choices_of(LookedUpTables(1), head.task, _TARGET), Rejected)


def test_other_tables_stay_tables(tmp_path: Path) -> None:
    built = tied_floats(301, 96, is_turned=True)
    table = next(each for each in built.graph.initializer if each.name == "w")
    other = onnx.numpy_helper.to_array(table).copy()
    other[17, 3] += 1
    built.graph.initializer.append(onnx.numpy_helper.from_array(other, "o"))
    next(each for each in built.graph.node if each.op_type == "Gemm").input[1] = "o"
    onnx.save(built, tmp_path / "m.onnx")
    model = run_import(tmp_path / "m.onnx", {}, None)
    assert isinstance(model, ImportedModel), model
    assert all("looks_up_columns" not in layer.task.body for layer in model.graph.layers)


@pytest.mark.parametrize("tied_tables", [1, 2])
def test_tables_beside_a_tied_one_keep_their_rows(tied_tables: int, tmp_path: Path) -> None:
    tables = {"tokens": weights(300, 64), "positions": weights(257, 64, seed=1)}
    nodes = [
        node("Gather", ["tokens", "i"], ["t"], name="look.tokens"),
        node("Gather", ["positions", "j"], ["p"], name="look.positions"),
        node("Add", ["t", "p"], ["x"]),
    ]
    for table in list(tables)[:tied_tables]:
        nodes.append(node("Transpose", [table], [f"{table}.turned"], perm=[1, 0], name=f"turn.{table}"))
        nodes.append(node("MatMul", ["x", f"{table}.turned"], [f"{table}.scores"], name=f"score.{table}"))
    inputs = [(name, (1, 5), onnx.TensorProto.INT64) for name in "ij"]
    scores = [f"{table}.scores" for table in list(tables)[:tied_tables]]
    onnx.save(onnx_model(nodes, inputs, scores, {**tables}), tmp_path / "m.onnx")
    imported = run_import(tmp_path / "m.onnx", {}, None)
    assert isinstance(imported, ImportedModel), imported
    assert sum("looks_up_columns" in layer.task.body for layer in imported.graph.layers) == tied_tables
    shared = [array for array in imported.weights.values() if array.size in (300 * 64, 257 * 64)]
    assert len(shared) == len(tables)
