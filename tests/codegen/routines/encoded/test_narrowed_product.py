"""Weights of floats that are rounded to blocks of 4 bits: the rounding, and kernels that multiply by its result."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import ModelProto

from sartor.codegen.ir.block_packing import FOUR_BITS, USUAL_BLOCK, block_of
from sartor.codegen.ir.encoding import BlockEncoding
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Rejected, choices_of
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.encoded.rounded_rows import RoundedRows
from sartor.codegen.kernels.isa.multipliers import DotElement
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.machine import machine_of
from sartor.codegen.routines import LOW_PRECISION
from sartor.frontend.imported_model import ImportedModel
from tests.codegen.routines.harness import Subject, compiled, opened, run
from tests.importing import imported_model
from tests.plugin.onnx_model.builders import FLOAT, Array, model, node, weights

_TARGET = Target.create("cpu")
_BLOCK, _OTHERS = USUAL_BLOCK, (16, 256)
# Rows, depth and columns; whether the weight is transposed.
_CASES = {
    "row": (1, 100, 70, False),
    "rows": (3, 64, 7, True),
    "many": (21, 300, 40, False),
    "pair": (9, 45, 2, True),
}


def _weight(name: str) -> Array:
    _, depth, columns, _ = _CASES[name]
    return weights(depth, columns, seed=depth)


def _model() -> ModelProto:
    constants: dict[str, Array] = {}
    nodes = []
    for name, (_, _, _, is_turned) in _CASES.items():
        constants[f"{name}.w"] = np.ascontiguousarray(_weight(name).T) if is_turned else _weight(name)
        operator, values = ("Gemm", {"transB": 1}) if is_turned else ("MatMul", {})
        nodes.append(node(operator, [f"{name}.x", f"{name}.w"], [f"{name}.y"], name=name, **values))
    inputs = [(f"{name}.x", (rows, depth), FLOAT) for name, (rows, depth, _, _) in _CASES.items()]
    return model(nodes, inputs, [f"{name}.y" for name in _CASES], constants)


@pytest.fixture(scope="module")
def imported() -> ImportedModel:
    return imported_model(_model())


def _subjects(imported: ImportedModel, target: Target) -> dict[str, Subject]:
    subjects = {}
    for layer in imported.graph.layers:
        built: dict[str, Implementation] = {}
        rows, depth, _, _ = _CASES[layer.name]
        for block, routine in ((block, each) for block, dtype in FOUR_BITS.items() for each in LOW_PRECISION[dtype]):
            listed = choices_of(routine, layer.task, target)
            element = routine.traits.instruction
            is_missing = isinstance(element, DotElement) and element.refusal(machine_of(target)) is not None
            is_rejected = depth < block or (routine.name != "product_by_i4" and rows < 8) or is_missing
            assert isinstance(listed, Rejected) == is_rejected, listed
            # Blocks of other lengths differ in offsets and the number of steps.
            tried = None if block == _BLOCK else int(layer.name == "many" and block in _OTHERS)
            for each in [] if isinstance(listed, Rejected) else listed[:tried]:
                code = routine.build(layer.task, each, target)
                assert isinstance(code, Implementation), code
                built[f"{routine.traits.precision}/{routine.name}{dict(each)}"] = code
        subjects[layer.name] = Subject(layer, imported.weights, built)
    return subjects


@pytest.mark.parametrize("cpu", ["host", "x86-64-v3"])
def test_kernels_multiply_by_the_rounded_weight(cpu: str, imported: ImportedModel) -> None:
    if cpu != "host" and "avx2" not in machine_of(_TARGET).features:
        pytest.skip("the CPU has no AVX2")
    target = Target.create("cpu", cpu)
    subjects = _subjects(imported, target)
    program = opened(compiled(subjects, target), target, 1)
    for name, subject in subjects.items():
        inputs, weight = subject.inputs(), _weight(name)
        for variant, code in subject.implementations.items():
            of = BlockEncoding(4, block_of(variant.partition("/")[0]) or 0, *weight.shape)
            expected = inputs[0].astype(np.float64) @ of.decoded(*of.rounded(weight))
            error = np.abs(run(program, subject, variant, inputs) - expected).max() / np.abs(expected).max()
            # Some kernels round rows to 16 bits.
            assert error <= (3e-5 if "/word" in variant else 1e-5), (name, variant, error)
            stored = sum(packing.apply(weight).nbytes for packing in code.packings if weight.ndim == 2)
            assert stored == sum(
                packing.type_of(kind).bytes for packing, kind in zip(code.packings, subject.task.weights, strict=True)
            )


@pytest.mark.parametrize("cpu", ["host", "x86-64-v3"])
def test_rows_are_rounded_by_their_blocks(cpu: str, imported: ImportedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scale of a row that is taken from another block is seen."""
    if cpu != "host" and "avx2" not in machine_of(_TARGET).features:
        pytest.skip("the CPU has no AVX2")
    scale = RoundedRows.scale

    def wrong(self: RoundedRows, asm: Assembler, space: ir.Value, row: Index, block: Index) -> ir.Value:
        return scale(self, asm, space, row, 0)

    monkeypatch.setattr(RoundedRows, "scale", wrong)
    target = Target.create("cpu", cpu)
    subject = _subjects(imported, target)["many"]
    words = {name: code for name, code in subject.implementations.items() if name.startswith("i4/word")}
    if not words:
        pytest.skip("the CPU has no instruction for pairs of 16 bits")
    program = opened(compiled({"many": replace(subject, implementations=words)}, target), target, 1)
    inputs, weight = subject.inputs(), _weight("many")
    of = BlockEncoding(4, _BLOCK, *weight.shape)
    expected = inputs[0].astype(np.float64) @ of.decoded(*of.rounded(weight))
    for name in words:
        assert np.abs(run(program, subject, name, inputs) - expected).max() > 1e-2 * np.abs(expected).max()


def test_blocks_are_rounded_to_nearest() -> None:
    weight = weights(100, 3)
    weight[:32, 1] = 0
    of = BlockEncoding(4, _BLOCK, *weight.shape)
    codes, scales = of.rounded(weight)
    found = of.decoded(codes, scales)
    assert np.array_equal(found[:32, 1], np.zeros(32))
    plain = 0.0
    for column in range(3):
        for start in range(0, 100, _BLOCK):
            block = weight[start : start + _BLOCK, column].astype(np.float64)
            step = abs(scales[column, start // _BLOCK])
            # No code is nearer, but for what lies beyond the last one.
            nearest = np.clip(np.rint(block / step), -8, 8) * step if step else block
            error = np.abs(found[start : start + _BLOCK, column] - block)
            assert (error <= np.abs(nearest - block) + step).all()
            plain += (
                np.square(np.rint(block / np.abs(block).max() * 7) / 7 * np.abs(block).max() - block).sum()
                if step
                else 0
            )
    assert np.square(found - weight).sum() < 0.9 * plain, "better than seven steps to each side"


def test_rounded_blocks_stay_as_they_are() -> None:
    of = BlockEncoding(4, _BLOCK, 96, 40)
    once = of.decoded(*of.rounded(weights(96, 40))).astype(np.float32)
    assert np.array_equal(of.decoded(*of.rounded(once)).astype(np.float32), once)
