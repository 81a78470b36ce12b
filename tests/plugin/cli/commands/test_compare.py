"""``sartor compare`` on modules of small networks."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from sartor.cli.tables.layer_error_table import first_json, layer_errors_json
from sartor.codegen.routines import ROUTINES
from sartor.comparison.bisection import Bisection
from sartor.comparison.compare_job import bound_shapes
from sartor.comparison.layer_errors import FirstBeyond, LayerError
from sartor.config import CompileConfig
from sartor.costing.listing import list_candidates
from sartor.errors import UsageError
from sartor.planning.guessed_recipe import guessed_recipe
from sartor.planning.recipe import unsplit_recipe
from sartor.profiling.builder import Builder
from sartor.progress import silent
from sartor.runtime.driver.signature import Signature, TensorSpec
from sartor.runtime.module_facts import module_signature
from sartor.tuning.workers.pool import WorkerPool
from tests.importing import ImportedOf, ModelFile
from tests.plugin.calling import assert_refused, call, parsed

MODEL = "inner_output"
CONFIG = CompileConfig(threads=1, jobs=1)


@dataclass(frozen=True)
class Modules:
    """One model, compiled layer by layer and as a whole."""

    model: Path
    split: Path
    whole: Path


@pytest.fixture(scope="module")
def modules(imported_of: ImportedOf, model_file: ModelFile, tmp_path_factory: pytest.TempPathFactory) -> Modules:
    imported = imported_of(MODEL)
    stock = list_candidates(imported.graph, ROUTINES[:1], CONFIG.target).variants
    recipes = [
        guessed_recipe(replace(imported, graph=replace(imported.graph, fusions=())), stock, CONFIG.planning),
        unsplit_recipe(imported, CONFIG.planning),
    ]
    with WorkerPool(1) as pool:
        builder = Builder(imported, pool, tmp_path_factory.mktemp("modules"), CONFIG.header, silent)
        split, whole = (each.files.module for each in builder.build(recipes))
    return Modules(model_file(MODEL), split, whole)


def test_layers_and_the_first_beyond_are_told_as_json(modules: Modules) -> None:
    options = ["--vs", modules.model, "--threads", 1, "--layers", "--bisect", 1e-3, "--json"]
    data = parsed(call("sartor", "compare", modules.split, *options))
    assert [each["name"] for each in data["outputs"]] == ["y", "inner"]
    first, second = data["layers"]
    assert (first["layer"], first["nodes"], first["tensors"]) == ("conv1", ["conv1", "inner"], ["inner"])
    assert first["error_before"] == 0
    assert first["growth"] is None
    assert first["compared"]
    assert second["error_before"] == first["relative_error"] < 1e-5
    assert second["error_alone"] < 1e-5
    assert data["bisection"]["first"] is None
    assert [each["layer"] for each in data["bisection"]["looked_at"]] == ["conv1", "conv2"]


def test_tables_name_layers_nodes_and_routines(modules: Modules) -> None:
    options = ["--vs", modules.model, "--threads", 1, "--bisect", 0, "--layers"]
    result = call("sartor", "compare", modules.split, *options)
    assert result.returncode == 0, result.stderr
    for said in ("conv2, y", "first layer beyond 0", "conv1", "inputs only", ROUTINES[0].name.partition("/")[0]):
        assert said in result.stdout
    assert "comparing layers" in result.stderr


def test_without_options_nothing_is_compiled(modules: Modules) -> None:
    data = parsed(call("sartor", "compare", modules.split, "--vs", modules.model, "--threads", 1, "--json"))
    assert sorted(data) == ["max_error", "outputs", "reference", "unchecked_outputs"]


def test_no_bound_is_infinite(modules: Modules) -> None:
    for bound in ("inf", "nan", "-1"):
        result = call("sartor", "compare", modules.split, "--vs", modules.model, "--max-error", bound)
        assert_refused(result, 2, "--max-error")


@pytest.mark.parametrize("command", ["run", "bench", "inspect", "compare"])
def test_a_shape_of_no_input_is_refused(modules: Modules, command: str) -> None:
    model = ["--vs", modules.model] if command == "compare" else []
    result = call("sartor", command, modules.split, *model, "--shape", "q=1")
    assert_refused(result, 2, "--shape names the input 'q', which", "does not have; its inputs are 'x'")


def test_weights_may_lie_beside_the_model(modules: Modules, tmp_path: Path) -> None:
    """ONNX finds them from the model's file alone, wherever the command is called."""
    folder, elsewhere = tmp_path / "model", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    path, wrong = folder / "net.onnx", folder / "wrong.onnx"
    model = onnx.load(modules.model)
    onnx.save(model, path, save_as_external_data=True, location="net.data", size_threshold=0)
    model = onnx.load(modules.model)
    _double_a_weight(model)
    onnx.save(model, wrong, save_as_external_data=True, location="wrong.data", size_threshold=0)
    assert sum(each.stat().st_size for each in folder.glob("*.data")) > 0
    right = call("sartor", "compare", modules.split, "--vs", "../model/net.onnx", "--json", folder=elsewhere)
    assert all(each["within"] for each in parsed(right)["outputs"])
    result = call("sartor", "compare", modules.split, "--vs", wrong, folder=elsewhere)
    assert result.returncode == 1, result.stderr
    assert "has the relative error" in result.stderr


@pytest.mark.parametrize("option", [["--layers"], ["--bisect", "1e-3"]])
def test_a_module_without_layers_is_refused(modules: Modules, option: list[str]) -> None:
    result = call("sartor", "compare", modules.whole, "--vs", modules.model, *option)
    assert_refused(result, 2, "has no layers", "--pin '*=*'")


def test_another_model_is_refused(modules: Modules, tmp_path: Path) -> None:
    other = onnx.load(modules.model)
    _double_a_weight(other)
    onnx.save(other, tmp_path / "other.onnx")
    result = call("sartor", "compare", modules.split, "--vs", tmp_path / "other.onnx", "--layers")
    assert_refused(result, 2, "other.onnx' is not the model that", "SHA-256")


def _double_a_weight(model: onnx.ModelProto) -> None:
    weight = model.graph.initializer[0]
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * np.float32(2), weight.name))


def test_what_says_nothing_is_named(modules: Modules, tmp_path: Path) -> None:
    (shape,) = (spec.shape for spec in module_signature(modules.split).inputs)
    np.savez(tmp_path / "none.npz", x=np.full(shape, np.nan, np.float32))
    options = ["--vs", modules.model, "--inputs", tmp_path / "none.npz", "--json"]
    result = call("sartor", "compare", modules.split, *options)
    assert json.loads(result.stdout)["unchecked_outputs"] == ["y", "inner"]
    assert [each["within"] for each in json.loads(result.stdout)["outputs"]] == [None, None]
    assert "output 'y' is not checked" in result.stderr
    assert "input 'x' holds NaN or infinities, 48 of 48 elements" in result.stderr
    assert "not checked" in call("sartor", "compare", modules.split, *options[:-1]).stdout
    usual = parsed(call("sartor", "compare", modules.split, "--vs", modules.model, "--json"))
    assert usual["unchecked_outputs"] == []


def test_a_negative_bound_is_refused(modules: Modules) -> None:
    result = call("sartor", "compare", modules.split, "--vs", modules.model, "--bisect", -1)
    assert (result.returncode, result.stdout) == (2, "")
    assert "--bisect" in result.stderr


def test_shapes_that_the_model_leaves_open_are_the_modules() -> None:
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 3])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 3])
    scalar = onnx.helper.make_tensor_value_info("s", onnx.TensorProto.FLOAT, [])
    model = onnx.helper.make_model(onnx.helper.make_graph([], "g", [x, y, scalar], []))
    specs = tuple(TensorSpec(name, "float32", shape) for name, shape in (("x", (2, 3)), ("y", (2, 3)), ("s", ())))
    assert bound_shapes(model, Signature("main_graph", specs, ())) == {"x": (2, 3)}
    with pytest.raises(UsageError, match="no input 'x'"):
        bound_shapes(model, Signature("main_graph", specs[1:], ()))


def test_json_is_json_where_an_error_is_infinite() -> None:
    row = LayerError("conv", ("conv",), "cpu:f32/conv2d.stock", ("c",), float("inf"), float("inf"), None)
    found = FirstBeyond(Bisection("conv", {}, {"conv": float("inf")}, 1), row)
    data = json.loads(json.dumps([layer_errors_json([row]), first_json(found, 1.0)], allow_nan=False))
    assert data[0][0]["relative_error"] is None
    assert data[0][0]["compared"]
    assert data[1]["first"]["growth"] is None


def test_a_bisection_without_a_bound_takes_what_is_allowed(modules: Modules) -> None:
    for options in (["--bisect", "--json"], ["--json", "--bisect"]):
        data = parsed(call("sartor", "compare", modules.split, "--vs", modules.model, "--threads", 1, *options))
        assert data["bisection"]["bound"] == data["max_error"]


def test_a_module_that_lacks_an_output_is_not_right(modules: Modules, tmp_path: Path) -> None:
    model = onnx.load(modules.model)
    tensor = onnx.helper.make_tensor_value_info("more", onnx.TensorProto.FLOAT, None)
    model.graph.node.append(onnx.helper.make_node("Relu", [model.graph.output[0].name], ["more"], name="more"))
    model.graph.output.append(tensor)
    onnx.save(model, tmp_path / "more.onnx")
    result = call("sartor", "compare", modules.split, "--vs", tmp_path / "more.onnx", "--max-error", "1e30", "--json")
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == "error: the module lacks the output 'more' of the model"
    listed = {each["name"]: each["relative_error"] for each in json.loads(result.stdout)["outputs"]}
    assert listed.keys() == {"y", "inner", "more"}
    assert listed["more"] is None


def test_no_error_exceeds_nan(modules: Modules) -> None:
    assert_refused(
        call("sartor", "compare", modules.split, "--vs", modules.model, "--bisect", "nan"),
        2,
        "greater than or equal to 0",
    )
