"""Products of 8-bit integers in reference models equal their definition, here and on a CPU where ONNX Runtime's do not.

The definition is computed by NumPy in 64 bits (``integers.py``).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

import numpy as np
import pytest
from onnx import AttributeProto, TensorProto, helper

from sartor.reference.trusted.reference_model import ReferenceModel
from tests.plugin.onnx_model.builders import model
from tests.plugin.reference.exact import run_cases
from tests.plugin.reference.exact.emulation import HASWELL, output_of, python_on

Errors = Mapping[str, Mapping[str, float | str]]
CASES = {case.name: case for case in run_cases.all_cases()}


def _errors(python: tuple[str, ...] | str) -> Errors:
    if isinstance(python, str):
        pytest.skip(python)
    found: Errors = json.loads(output_of(python, run_cases.__name__))
    assert found.keys() == CASES.keys()
    return found


@pytest.fixture(scope="module")
def saturating() -> Errors:
    """Errors on a CPU with AVX2 and without VNNI."""
    return _errors(python_on(HASWELL))


def _is_wrong(name: str, error: float | str) -> bool:
    return isinstance(error, str) or not error <= CASES[name].error


def _wrong(errors: Errors) -> dict[str, Mapping[str, float | str]]:
    """The cases whose reference is not exact."""
    return {
        name: found
        for name, found in errors.items()
        if any(_is_wrong(name, found[f"exact {mode}"]) for mode in run_cases.MODES)
    }


def test_references_are_exact_on_this_machine() -> None:
    assert _wrong(_errors((sys.executable,))) == {}


def test_references_are_exact_where_products_saturate(saturating: Errors) -> None:
    assert _wrong(saturating) == {}


def test_the_cases_do_saturate(saturating: Errors) -> None:
    """Without the rewrite each case with a sign is wrong by more than rounding, and no other."""
    for name, case in CASES.items():
        modes = {"never": (), "always": ("as it is", "optimised"), "optimised": ("optimised",)}[case.wrong]
        for mode in run_cases.MODES:
            error = saturating[name][f"plain {mode}"]
            assert _is_wrong(name, error) == (mode in modes), (name, mode, error)
            assert isinstance(error, float), name
            assert mode not in modes or error > 1e-3, (name, mode, error)


def test_functions_keep_their_defaults() -> None:
    product = helper.make_node("ConvInteger", ["x", "w"], ["y"])
    product.attribute.append(AttributeProto(name="strides", ref_attr_name="steps", type=AttributeProto.INTS))
    default = helper.make_attribute("steps", [2, 2])
    imports = [helper.make_opsetid("", 17)]
    function = helper.make_function("own", "F", ["x", "w"], ["y"], [product], imports, attribute_protos=[default])
    built = model(
        [helper.make_node("F", ["x", "w"], ["y"], domain="own")], [("x", (1, 1, 4, 4), TensorProto.INT8)], ["y"],
        {"w": np.ones((1, 1, 2, 2), np.int8)},
    )  # fmt: skip
    built.graph.output[0].type.tensor_type.elem_type = TensorProto.INT32
    built.functions.append(function)
    built.opset_import.append(helper.make_opsetid("own", 1))
    (y,) = ReferenceModel(built.SerializeToString())({"x": np.ones((1, 1, 4, 4), np.int8)})
    np.testing.assert_array_equal(y, np.full((1, 1, 2, 2), 4))
