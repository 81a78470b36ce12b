"""Worker side of ``sartor compare``: the model's file, which is not trusted, is read nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from onnx import ModelProto

from sartor.errors import SartorError, UsageError
from sartor.onnx_model.graphs.graph import GraphEditor
from sartor.onnx_model.graphs.held_data import serialised
from sartor.onnx_model.graphs.infer import without_weights
from sartor.onnx_model.preparing.prepare import prepare
from sartor.onnx_model.quantisation.quantised_values import take_out_quantisation
from sartor.onnx_model.reading.load import load_model
from sartor.reference.expected_outputs import Expectation, Expected
from sartor.reference.random_inputs import sample_inputs
from sartor.reference.sample_styles import dependent_outputs, silent_outputs
from sartor.reference.tie_spread import TIE_SAMPLES, rounds, tie_spread
from sartor.reference.tolerance import tolerance
from sartor.runtime.driver.signature import Array, Signature
from sartor.tuning.workers.calls import WorkerError, call
from sartor.tuning.workers.pool import WorkerPool

_STEP = "running ONNX Runtime"


@dataclass(frozen=True)
class Question:
    """What is right for a module.

    Attributes:
        model: the file that the module was compiled from.
        signature: of the module.
        feeds: one array per input.
        usual: error that is usual with what the module computes in.
        max_error: what the user allows; None if that is left to ``usual`` and the model.
        narrow: whether the module rounds to less than the model's own types.
    """

    model: Path
    signature: Signature
    feeds: Mapping[str, Array]
    usual: float
    max_error: float | None
    narrow: bool


@dataclass(frozen=True)
class Answer:
    """What ONNX Runtime computes, and what a module may differ by.

    Attributes:
        names: of the model's outputs, in its order.
        outputs: as ONNX Runtime computes them.
        scales: for each output, by element, what a difference is divided by (``scales_of``).
        shapes: as ``bound_shapes`` finds them.
        allowed: relative error of a right module.
        unchecked: outputs that say nothing on these inputs.
    """

    names: tuple[str, ...]
    outputs: tuple[Array, ...]
    scales: tuple[Array, ...]
    shapes: Mapping[str, tuple[int, ...]]
    allowed: float
    unchecked: tuple[str, ...]


def ask(pool: WorkerPool, question: Question) -> Answer:
    """Run ONNX Runtime on the model's file, in a process that serves for nothing else.

    Raises:
        UsageError: if the file cannot be read, the module was not compiled from it, or it fails on the feeds.
        UnsupportedModelError: if it is no model, or neither Sartor nor ONNX Runtime takes it.
        CompileError: if the worker crashes, hangs or takes too much memory.
    """
    # Absolute, as workers need not be where the command was called.
    absolute = replace(question, model=question.model.resolve())
    with pool.beside() as single:
        return call(single, right_outputs, {"question": absolute}, _STEP)


def right_outputs(question: Question) -> Answer | WorkerError:
    """Worker side of ``ask``."""
    try:
        return _answer(question)
    except SartorError as error:
        return WorkerError(error)


def _answer(question: Question) -> Answer:
    model = load_model(question.model)
    shapes = bound_shapes(model, question.signature)
    names, dependent = tuple(each.name for each in model.graph.output), dependent_outputs(model)
    is_rounding = rounds(model)
    prepared = prepare(model, shapes).model
    asked = without_weights(prepared)
    take_out_quantisation(prepared)
    expected = _expected(question, prepared)
    if question.max_error is None:
        spread = 0.0
        if is_rounding:
            alike = [question.feeds, *(sample_inputs(asked, seed) for seed in range(TIE_SAMPLES))]
            spread = tie_spread(question.model, b"".join(serialised(prepared)), alike)
        allowed = tolerance(model, question.usual, spread)
    else:
        allowed = question.max_error
    silent = silent_outputs(dict(zip(names, expected.outputs, strict=True)))
    unchecked = tuple(name for name in silent if name in dependent)
    return Answer(names, tuple(expected.outputs), tuple(expected.scales), shapes, allowed, unchecked)


def _expected(question: Question, prepared: ModelProto) -> Expected:
    return Expectation((question.model,), prepared, narrow=question.narrow)(question.feeds)


def bound_shapes(model: ModelProto, signature: Signature) -> dict[str, tuple[int, ...]]:
    """Shapes that a module was compiled for, of those inputs of its model that leave a dimension open.

    Raises:
        UsageError: if the module has no such input.
    """
    compiled = {spec.name: tuple(size or 0 for size in spec.shape) for spec in signature.inputs}
    editor = GraphEditor(model.graph)
    free = [
        each.name
        for each in model.graph.input
        if not editor.is_constant(each.name) and _is_free(editor.shape(each.name))
    ]
    for name in free:
        if name not in compiled:
            raise UsageError(f"the module has no input '{name}' as the model has; name the model it was compiled from")
    return {name: compiled[name] for name in free}


def _is_free(shape: tuple[int, ...] | None) -> bool:
    """A size of 0 has to be asked for as well."""
    return shape is None or 0 in shape
