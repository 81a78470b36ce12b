"""Joins and row-wise kernels over narrower types compute what candidate 0 computes of the same numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from onnx import ModelProto, TensorProto, helper

from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Routine, Variant, variants_of
from sartor.codegen.routines import LOW_PRECISION, ROUTINES
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import Array
from sartor.tuning.calibration.quantised_range import QuantisedRange
from tests.codegen.routines.harness import Subject, layers, load
from tests.codegen.routines.kernel_cases import kernel_model
from tests.codegen.routines.narrow import rounded_subject, wrong

JOINS_OF_IMAGES = ("joined", "joined_odd", "joined_normalized", "joined_pixels")
JOINS_OF_SLICES = ("sliced_channels", "sliced_thirds", "sliced_middle", "sliced_pixels")
JOINS = (*JOINS_OF_IMAGES, *JOINS_OF_SLICES)
CASES = (*JOINS, "softmax_image", "softmax_short", "softmax_row", "normalized", "normalized_long")
KERNELS = ("join", "join_slices", "rowwise")
TYPES = ("bf16", "f16", "i8")
HOST = Target.create("cpu", "host")

Subjects = Mapping[str, Mapping[str, Subject]]


def _offered(layer: Layer, dtype: str, routines: Sequence[Routine] = ()) -> dict[str, Implementation]:
    """Candidate 0, and the kernels over a type, or those among other routines."""
    stock = ROUTINES[0].build(layer.task, {}, HOST)
    assert isinstance(stock, Implementation)
    found = {"stock": stock}
    for routine in routines or LOW_PRECISION[dtype]:
        if routine.name in KERNELS:
            variants = [each for each in variants_of(routine, layer.task, HOST) if isinstance(each, Variant)]
            found |= {each.descriptor: each.implementation for each in variants[:1]}
    return found


@pytest.fixture(scope="module")
def subjects() -> Subjects:
    """By type and case."""
    found: dict[str, tuple[Layer, Mapping[str, Array]]] = {
        layer.name: (layer, weights) for layer, weights in layers({"kernels": kernel_model}) if layer.name in CASES
    }
    return {
        dtype: {
            name: rounded_subject(Subject(layer, weights, _offered(layer, dtype)), dtype)
            for name, (layer, weights) in found.items()
        }
        for dtype in TYPES
    }


@pytest.fixture(scope="module")
def programs(subjects: Subjects) -> Mapping[str, Program]:
    return {dtype: load(subjects[dtype], HOST) for dtype in TYPES}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("case", CASES)
def test_kernels_compute_the_layer(case: str, dtype: str, subjects: Subjects, programs: Mapping[str, Program]) -> None:
    """Ranges of quantised images differ, and the result's is another one."""
    subject = subjects[dtype][case]
    offered = [each for name, each in subject.implementations.items() if name != "stock"]
    assert offered
    assert {schema.dtype for each in offered for schema in (*each.inputs, *each.outputs)} == {dtype}
    assert wrong(programs[dtype], subject, dtype) == {}


@pytest.mark.parametrize("case", JOINS)
def test_numbers_of_one_range_are_joined_too(case: str, subjects: Subjects, programs: Mapping[str, Program]) -> None:
    everywhere = QuantisedRange.of(-5.0, 7.0)
    assert wrong(programs["i8"], subjects["i8"][case], "i8", everywhere) == {}


def _rounding_model() -> ModelProto:
    """In f16, so that the difference reads numbers that were rounded before the mean of them was known."""
    nodes = [
        helper.make_node("ReduceSumSquare", ["x"], ["sum"], axes=[-3], keepdims=0),
        helper.make_node("ReduceMean", ["sum"], ["mean"], axes=[-1]),
        helper.make_node("Sub", ["sum", "mean"], ["y"]),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT16, shape)
        for name, shape in (("x", [1, 4, 6, 40]), ("y", [1, 6, 40]))
    ]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def test_rows_are_rounded_between_levels() -> None:
    found = layers({"rounding": _rounding_model})
    subjects = [Subject(layer, weights, _offered(layer, "f16", ROUTINES)) for layer, weights in found]
    (subject,) = (each for each in subjects if len(each.implementations) > 1)
    assert wrong(load({"rounding": subject}, HOST), subject, "f16") == {}
