"""Long networks compiled in several functions: right, of parts of bounded length, joined where that is needed."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import onnx
import pytest

from sartor.codegen.linking import stitching
from sartor.codegen.linking.functions.function_parts import cut_function, join_overwriting_functions
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import body_of, symbol
from sartor.frontend.onnx_import import import_model
from sartor.tuning.networks.build_job import NetFiles, UnsplitNetwork
from tests.codegen.linking.test_stitching import build, check
from tests.codegen.linking.weights.test_joining import chain
from tests.importing import ImportedOf, ModelFile

BRANCHES = """
(float[1,4,8,8] x, float[1,4,8,8] z) => (float[1,4,8,8] y, float[1,4,8,8] early) {
    early = Softmax <axis = 1> (x)
    a = Sigmoid(early)
    b = Softmax <axis = 2> (a)
    c = Softmax <axis = 3> (z)
    d = Add(b, c)
    y = Mul(d, early)
}
"""


def functions_of(module: ir.Module) -> dict[str, ir.Operation]:
    found = [view.operation for view in module.body.operations if view.operation.name == "util.func"]
    return {symbol(op): op for op in found}


def lengths(module: ir.Module) -> list[int]:
    """Numbers of operations of the parts, with those that each repeats."""
    functions = functions_of(module)
    return [len(list(body_of(op).operations)) for name, op in functions.items() if "part" in name]


def opened(model: onnx.ModelProto) -> ir.Module:
    return ir.Module.parse(import_model(model).bytecode, ir.Context())


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("name", ["lenet", "residual", "shared_pad", "squeeze_excite", "two_results"])
def test_results_are_right(
    size: int,
    name: str,
    imported_of: ImportedOf,
    model_file: ModelFile,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stitching, "cut_function", partial(cut_function, size=size))
    imported, path = imported_of(name), tmp_path / "net.vmfb"
    build(imported, UnsplitNetwork(imported.unsplit), NetFiles(path, None))
    check(imported, model_file(name), path)


def test_no_function_grows_with_the_network() -> None:
    for length in (15, 60):
        module = opened(chain(length))
        cut_function(module, size=12)
        assert module.operation.verify()
        assert len(lengths(module)) >= length * 3 // 12
        # Four layers at most, each with two weights to load, and a zero and an empty tensor.
        assert max(lengths(module)) <= 12 + 4 * 2 + 3


def test_one_tensor_crosses_where_a_chain_is_cut() -> None:
    module = opened(chain(20))
    cut_function(module, size=12)
    parts = [op for name, op in functions_of(module).items() if "part" in name]
    assert all(len(body_of(op).arguments) == 1 for op in parts)
    assert all(len(body_of(op).operations[-1].operation.operands) == 1 for op in parts)


def test_values_cross_several_parts() -> None:
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]> branches {BRANCHES}')
    module = opened(model)
    cut_function(module, size=1)
    assert module.operation.verify()
    assert len(lengths(module)) > 3


def test_short_functions_stay_whole() -> None:
    module = opened(chain(5))
    before = str(module)
    cut_function(module, size=7)
    assert str(module) == before


@pytest.mark.parametrize(("name", "size", "is_joined"), [("lenet", 3, False), ("two_results", 1, True)])
def test_parts_that_work_in_place_are_joined(
    name: str, size: int, is_joined: bool, imported_of: ImportedOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sort of TopK would overwrite the module's input."""
    seen: list[list[str]] = []

    def watched(module: ir.Module) -> None:
        seen.append(list(functions_of(module)))
        join_overwriting_functions(module)
        seen.append(list(functions_of(module)))

    monkeypatch.setattr(stitching, "cut_function", partial(cut_function, size=size))
    monkeypatch.setattr(stitching, "join_overwriting_functions", watched)
    imported = imported_of(name)
    build(imported, UnsplitNetwork(imported.unsplit), NetFiles(tmp_path / "net.vmfb", None))
    before, after = seen
    assert sum("part" in each for each in before) >= 2
    assert sorted(after) == ["main_graph", "main_graph$async"] if is_joined else after == before
