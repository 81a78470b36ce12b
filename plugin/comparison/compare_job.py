"""Worker side of ``sartor compare``: only workers read the model's file, which is untrusted."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from onnx import ModelProto, helper

from sartor.comparison.known_length import at_length
from sartor.errors import SartorError, UsageError
from sartor.onnx_model.graphs.graph import GraphEditor
from sartor.onnx_model.graphs.held_data import serialised
from sartor.onnx_model.graphs.infer import without_weights
from sartor.onnx_model.preparing.prepare import prepare
from sartor.onnx_model.quantisation.quantised_values import take_out_quantisation
from sartor.onnx_model.reading.check_inputs import check_inputs
from sartor.onnx_model.reading.load import load_model
from sartor.onnx_model.states.cache_branch import CHOICE, take_cached_branch
from sartor.reference.expected_outputs import Expectation
from sartor.reference.random_inputs import sample_inputs
from sartor.reference.sample_styles import dependent_outputs, silent_outputs
from sartor.reference.tie_spread import TIE_SAMPLES, rounds, tie_spread
from sartor.reference.tied_codes import coded_outputs
from sartor.reference.tolerance import has_half_precision, tolerance
from sartor.runtime.driver.bound_input import Bindings, BoundInput, bound_feeds
from sartor.runtime.driver.signature import Array, Signature
from sartor.tuning.workers.calls import call
from sartor.tuning.workers.pool import WorkerPool
from sartor.tuning.workers.protocol import WorkerError

_STEP = "running ONNX Runtime"


@dataclass(frozen=True)
class Question:
    """A request for a module's reference outputs.

    Attributes:
        model: the file that the module was compiled from.
        signature: of the module.
        feeds: one array per input.
        usual: default bound on the error, by the types in which the module computes.
        max_error: the user's bound; None if ``usual`` and the model determine it.
        narrow: whether the module computes in narrower types than the model.
        bound: the model's inputs whose values were fixed when the module was compiled.
        widens: whether it computes half precision in float32.
        caches: inputs that are caches which the module keeps.
    """

    model: Path
    signature: Signature
    feeds: Mapping[str, Array]
    usual: float
    max_error: float | None
    narrow: bool
    bound: tuple[BoundInput, ...] = ()
    widens: bool = False
    caches: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """Reference outputs, and the allowed error.

    Attributes:
        names: of the model's outputs, in the model's order.
        outputs: of the reference.
        scales: for each output the scales by which differences of its elements are divided (``scales_of``).
        shapes: of inputs with open dimensions, as ``bound_shapes`` finds them.
        allowed: the largest relative error of a right module.
        amplifies: whether a module with a larger error may be right by its layers, and the user gave no bound.
        rounded: the caches that the reference took rounded to a narrower type of the model's, in the module's type.
        unchecked: outputs that are constant or arbitrary on these inputs, so that they cannot be compared.
        reference: who computed the outputs, as messages say it.
        coded: outputs that hold codes of numbers, which ties leave open.
    """

    names: tuple[str, ...]
    outputs: tuple[Array, ...]
    scales: tuple[Array, ...]
    shapes: Mapping[str, tuple[int, ...]]
    allowed: float
    unchecked: tuple[str, ...]
    reference: str
    amplifies: bool = False
    rounded: Mapping[str, Array] = field(default_factory=dict)
    coded: frozenset[str] = frozenset()


def ask(pool: WorkerPool, question: Question) -> Answer:
    """Run ONNX Runtime on the model's file, in a separate process.

    Raises:
        UsageError: if the file cannot be read, the module was not compiled from it, or it fails on the feeds.
        UnsupportedModelError: if it is not a model, or neither Sartor nor ONNX Runtime supports it.
        CompileError: if the worker crashes, hangs or runs out of memory.
    """
    # An absolute path, as workers may have another working directory. Links stay, as external data lies beside them.
    absolute = replace(question, model=question.model.absolute())
    with pool.beside() as single:
        return call(single, right_outputs, {"question": absolute}, _STEP)


def right_outputs(question: Question) -> Answer | WorkerError:
    """Worker side of ``ask``."""
    try:
        return _answer(question)
    except SartorError as error:
        return WorkerError(error)


@dataclass(frozen=True)
class AskedModel:
    """The model of which a module was compiled.

    Attributes:
        model: that of the file, or of two decoders that were merged the one whose caches the module keeps.
        bindings: values of its inputs that were fixed.
        feeds: one array per input of the module, of which caches have the model's type.
        left_out: outputs of the file that it has not.
    """

    model: ModelProto
    bindings: Bindings
    feeds: Mapping[str, Array]
    left_out: frozenset[str]


def asked_model(question: Question) -> AskedModel:
    """Read the model that a question is about.

    Raises:
        UsageError: if the file cannot be read, or has no input of which the module fixed the value.
        UnsupportedModelError: if it is not a model.
    """
    model = load_model(question.model)
    bindings = {bound.spec.name: bound.values for bound in question.bound}
    _check_bound(model, bindings)
    names = {value.name for value in model.graph.output}
    if question.caches and CHOICE in bindings:
        fixed = {bound.spec.name for bound in take_cached_branch(model)}
        bindings = {name: values for name, values in bindings.items() if name not in fixed}
    left_out = frozenset(names - {value.name for value in model.graph.output})
    return AskedModel(model, bindings, {**question.feeds, **_stored_caches(model, question)}, left_out)


def _stored_caches(model: ModelProto, question: Question) -> dict[str, Array]:
    """Caches that the module keeps in a wider type than the model has them, in that of the model."""
    types = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
    dtypes = {name: helper.tensor_dtype_to_np_dtype(types[name]) for name in question.caches if name in types}
    arrays = {name: question.feeds[name] for name in dtypes}
    return {name: array.astype(dtypes[name]) for name, array in arrays.items() if array.dtype != dtypes[name]}


def _answer(question: Question) -> Answer:
    asked_for = asked_model(question)
    model, bindings, feeds = asked_for.model, asked_for.bindings, asked_for.feeds
    check_inputs(model, {*bindings, *(spec.name for spec in question.signature.inputs)})
    shapes = bound_shapes(model, question.signature, bindings)
    names, dependent = tuple(value.name for value in model.graph.output), dependent_outputs(model)
    is_rounding = rounds(model)
    known = at_length(model, feeds, shapes, bound_feeds(question.bound))
    feeds = known.feeds
    prepared = prepare(known.model, known.shapes, bindings=bindings, widens=question.widens).model
    asked, coded = without_weights(prepared), coded_outputs(prepared)
    take_out_quantisation(prepared)
    expectation = Expectation(
        (question.model,), prepared, narrow=question.narrow, bound=question.bound, left_out=asked_for.left_out
    )
    expected = expectation(feeds)
    if question.max_error is None:
        spread = 0.0
        if is_rounding:
            alike = [feeds, *(sample_inputs(asked, seed) for seed in range(TIE_SAMPLES))]
            spread = tie_spread(b"".join(serialised(prepared)), alike)
        allowed = tolerance(model, question.usual, spread)
    else:
        allowed = question.max_error
    silent = silent_outputs(dict(zip(names, expected.outputs, strict=True)))
    unchecked = tuple(name for name in silent if name in dependent)
    reference = expectation.described
    amplifies = question.max_error is None and (is_rounding or has_half_precision(model))
    rounded = {
        name: array.astype(question.feeds[name].dtype) for name, array in _stored_caches(model, question).items()
    }
    return Answer(
        names,
        tuple(expected.outputs),
        tuple(expected.scales),
        shapes,
        allowed,
        unchecked,
        reference,
        amplifies,
        rounded,
        coded,
    )


def _check_bound(model: ModelProto, bindings: Bindings) -> None:
    names = {value.name for value in model.graph.input}
    for name in bindings:
        if name not in names:
            raise UsageError(
                f"the module was compiled with input '{name}' bound, which the model does not have; "
                "name the model it was compiled from"
            )


def bound_shapes(model: ModelProto, signature: Signature, bound: Collection[str] = ()) -> dict[str, tuple[int, ...]]:
    """The module's shapes of those inputs that have an open dimension in the model, by name.

    ``bound`` names inputs with a fixed value, which the module does not take.

    Raises:
        UsageError: if the module has no such input.
    """
    compiled = {spec.name: tuple(size or 0 for size in spec.shape) for spec in signature.inputs}
    editor = GraphEditor(model.graph)
    free = [
        value.name
        for value in model.graph.input
        if not editor.is_constant(value.name) and value.name not in bound and _is_free(editor.shape(value.name))
    ]
    for name in free:
        if name not in compiled:
            raise UsageError(f"the module has no input '{name}' as the model has; name the model it was compiled from")
    return {name: compiled[name] for name in free}


def _is_free(shape: tuple[int, ...] | None) -> bool:
    """Whether a shape has an open dimension, as some exporters write a size of 0 or -1."""
    return shape is None or any(size < 1 for size in shape)
