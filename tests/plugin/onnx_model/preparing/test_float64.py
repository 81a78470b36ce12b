"""What IREE lacks in float64 is refused where float64 stays, also in branches, and prepared for where it does not."""

from __future__ import annotations

import pytest
from onnx import ModelProto, parser

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.preparing.check_prepared import check_doubles, has_doubles
from tests.plugin.onnx_model.conftest import Prepare

_HEADER = '<ir_version: 9, opset_import: ["" : 17]> '
_PLAIN = "graph (float[4] x) => (float[4] y) { d = Cast <to = 11> (x) c = Cos (d) y = Cast <to = 1> (c) }"
_BRANCH = """graph (float[4] x, bool choice) => (float[4] y) {
    y = If (choice) <
        then_branch = then () => (float[4] a) { d = Cast <to = 11> (x) c = Cos (d) a = Cast <to = 1> (c) },
        else_branch = other () => (float[4] b) { b = Neg (x) }
    >
}"""


def _named(graph: str) -> ModelProto:
    return parser.parse_model(_HEADER + graph)


@pytest.mark.parametrize("graph", [_PLAIN, _BRANCH])
def test_an_operator_that_iree_lacks(graph: str, prepare_quickly: Prepare) -> None:
    prepared = prepare_quickly(_named(graph))
    assert has_doubles(prepared.model)
    with pytest.raises(UnsupportedModelError, match=r"node 'Cos_.' \(Cos\) computes in float64"):
        check_doubles(prepared, "cpu")


def test_operators_that_it_has(prepare_quickly: Prepare) -> None:
    prepared = prepare_quickly(_named(_PLAIN.replace("Cos", "Neg")))
    assert has_doubles(prepared.model)
    check_doubles(prepared, "cpu")


@pytest.mark.parametrize("operator", ["Exp", "Log", "Sigmoid", "Sqrt"])
def test_vulkan_lacks_more_of_them(operator: str, prepare_quickly: Prepare) -> None:
    """IREE's exponential there takes half of a number's bits for a number of float32."""
    prepared = prepare_quickly(_named(_PLAIN.replace("Cos", operator)))
    check_doubles(prepared, "cpu")
    if operator == "Sqrt":
        check_doubles(prepared, "vulkan")
        return
    with pytest.raises(UnsupportedModelError, match="computes in float64"):
        check_doubles(prepared, "vulkan")


def test_a_model_of_single_precision(prepare_quickly: Prepare) -> None:
    assert not has_doubles(prepare_quickly(_named("graph (float[4] x) => (float[4] y) { y = Cos (x) }")).model)
