"""What IREE's own compiler made runs with a signature that the user gives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from tests.plugin.calling import assert_refused, call, parsed
from tests.plugin.cli.compiled import Compiled

_RELU = """
util.func private @inner(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %zero = arith.constant dense<0.0> : tensor<2x3xf32>
  %y = arith.maximumf %x, %zero : tensor<2x3xf32>
  util.return %y : tensor<2x3xf32>
}
"""


# As IREE makes it of a function, but without a record of what it takes.
_BARE_ENTRY = """
util.func public @main(%view: !hal.buffer_view) -> !hal.buffer_view attributes {iree.abi.stub} {
  %x = hal.tensor.import %view : !hal.buffer_view -> tensor<2x3xf32>
  %y = util.call @inner(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %out = hal.tensor.export %y : tensor<2x3xf32> -> !hal.buffer_view
  util.return %out : !hal.buffer_view
}
"""


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What IREE compiles alone: one function that says what it takes, and one that does not."""
    folder = tmp_path_factory.mktemp("stock")
    relu = helper.make_node("Relu", ["x"], ["y"])
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("x", "y")]
    graph = helper.make_graph([relu], "graph", values[:1], values[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder / "m.onnx")
    (folder / "told.mlir").write_text(_RELU.replace("util.", "func.").replace("private @inner", "@main"))
    (folder / "silent.mlir").write_text(_RELU + _BARE_ENTRY)
    tool = Path(sys.executable).parent / "iree-compile"
    flags = ["--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=llvm-cpu"]
    for name in ("told", "silent"):
        files = [str(folder / f"{name}.mlir"), "-o", str(folder / f"{name}.vmfb")]
        subprocess.run([str(tool), *files, *flags], check=True, capture_output=True)
    return {name: folder / name for name in ("told.vmfb", "silent.vmfb", "m.onnx")}


def test_what_iree_compiled_runs_with_its_signature(stock: dict[str, Path]) -> None:
    silent, model = stock["silent.vmfb"], stock["m.onnx"]
    signature = "func @main(%x: tensor<2x3xf32>) -> (%y: tensor<2x3xf32>)"
    asked: list[list[object]] = [["run", silent], ["bench", silent], ["compare", silent, "--vs", model]]
    for command in asked:
        assert_refused(call("sartor", *command), 2, "pass the signature, with --signature 'func @main(%x: tensor<")
        result = call("sartor", *command, "--signature", signature, "--threads", 1, "--json")
        assert result.returncode == 0, result.stderr
    cold = call("sartor", "bench", silent, "--cold", "--rounds", 1, "--signature", signature, "--threads", 1, "--json")
    assert cold.returncode == 0, cold.stderr
    (output,) = parsed(call("sartor", "run", silent, "--signature", signature, "--json"))["outputs"]
    assert (output["name"], output["shape"]) == ("y", [2, 3])
    assert output["min"] >= 0


@pytest.mark.parametrize(
    ("signature", "said"),
    [
        ("nonsense(", "cannot be read, expected the form func @main"),
        ("func @main(%x: tensor<2x3xf32>, nonsense) -> ()", "cannot be read"),
        ("func @main(%x: i32) -> (%y: tensor<2xf32>)", "a session passes dense tensors only"),
        ("func @main(%x: tensor<2xf32>, %x: tensor<2xf32>) -> (%y: tensor<2xf32>)", "two tensors the same name"),
        ("func @other(%x: tensor<2x3xf32>) -> (%y: tensor<2x3xf32>)", "exports no function 'other'"),
        ("other", "exports no function 'other'"),
        ("main", "does not record"),
    ],
)
def test_a_signature_that_does_not_fit_is_refused(stock: dict[str, Path], signature: str, said: str) -> None:
    assert_refused(call("sartor", "run", stock["silent.vmfb"], "--signature", signature), 2, said)


def test_a_signature_in_vain_is_refused(compiled: Compiled, stock: dict[str, Path]) -> None:
    assert_refused(call("sartor", "run", compiled.module, "--signature", "main"), 2, "leave --signature out")
    assert parsed(call("sartor", "run", stock["told.vmfb"], "--signature", "main", "--json"))["outputs"]
