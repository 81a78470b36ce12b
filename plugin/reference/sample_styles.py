"""Worker side of drawing samples: inputs on which every output says something.

Random values leave some models without a result: they are not numbers, or the same whatever the input is, because a
threshold is never reached or a score is saturated. Nothing can be checked by such outputs, so that other values are
drawn, and who compiles is told of what is left.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import ModelProto

from sartor.errors import SartorError, UsageError
from sartor.onnx_model.graphs.graph import GraphEditor
from sartor.onnx_model.graphs.walk import names_read
from sartor.reference.random_inputs import OTHERS, USUAL, Style, sample_inputs
from sartor.runtime.driver.signature import Array
from sartor.runtime.reference import OnnxRuntimeReference

_LOG = logging.getLogger(__name__)
_EACH = 2
# Of floats that take two values only, both are ends of what is computed: 0 and 1 of a saturated Sigmoid or Softmax.
_SATURATED = 2

Run = Callable[[Mapping[str, Array]], Sequence[Array]]


@dataclass(frozen=True)
class Chosen:
    """How samples are drawn.

    Attributes:
        styles: samples of all of these are needed.
        unchecked: outputs that say nothing in any style.
    """

    styles: tuple[Style, ...] = (USUAL,)
    unchecked: tuple[str, ...] = ()


def choose_styles(model: ModelProto, prepared: Path | bytes) -> Chosen:
    """The usual style, or those others in which outputs say something that say nothing in it.

    Args:
        model: the prepared model; weights are not read.
        prepared: the same as ONNX Runtime takes it.
    """
    names = dependent_outputs(model)
    try:
        reference = OnnxRuntimeReference(prepared)
    except SartorError:
        # Who compares with it says so.
        return Chosen()
    wanted = [index for index, name in enumerate(reference.output_names) if name in names]
    missing = set(_silent(model, reference, USUAL, wanted))
    styles = [USUAL]
    for style in OTHERS if missing else ():
        silent = set(_silent(model, reference, style, wanted))
        if not silent:
            return Chosen((style,))
        if missing - silent:
            styles.append(style)
            missing &= silent
    return Chosen(tuple(styles), tuple(reference.output_names[index] for index in sorted(missing)))


def says_nothing(values: Sequence[Array]) -> bool:
    """Whether one output on several samples cannot tell a right module from a wrong one.

    It holds no finite number, always the same one, or floats of just two values. An empty output says what it can.
    """
    if values[0].dtype.kind not in "biuf" and values[0].dtype.name != "bfloat16":
        return False
    flat = np.concatenate([each.astype(np.float64).reshape(-1) for each in values])
    finite = flat[np.isfinite(flat)]
    if not flat.size:
        return False
    distinct = np.unique(finite).size
    is_real = values[0].dtype.kind not in "biu"
    return distinct < _SATURATED or (is_real and distinct == _SATURATED < finite.size)


def silent_outputs(outputs: Mapping[str, Array]) -> tuple[str, ...]:
    """Outputs by name that say nothing on one sample; of a single number none knows whether it is always the same."""
    return tuple(
        name
        for name, array in outputs.items()
        if says_nothing([array]) and not (array.size == 1 and np.isfinite(array.astype(np.float64)).all())
    )


def dependent_outputs(model: ModelProto) -> set[str]:
    """Outputs that follow from some input; others are constants, and right to be."""
    editor = GraphEditor(model.graph)
    inputs = {value.name for value in model.graph.input if not editor.is_constant(value.name)}
    return {value.name for value in model.graph.output if _reaches(value.name, inputs, editor)}


def _reaches(name: str, inputs: Iterable[str], editor: GraphEditor) -> bool:
    pending, seen = [name], {name}
    while pending:
        current = pending.pop()
        if current in inputs:
            return True
        node = editor.producer(current)
        sources = set(names_read(node)) - seen if node is not None else set()
        pending.extend(sources)
        seen |= sources
    return False


def _silent(model: ModelProto, run: Run, style: Style, wanted: Sequence[int]) -> list[int]:
    """Of the outputs by number, those that say nothing in a style; all if the model does not run on it."""
    try:
        found = [run(sample_inputs(model, seed, style)) for seed in range(_EACH)]
    except UsageError as error:
        _LOG.debug("no samples in %s: %s", style, error)
        return list(wanted)
    return [index for index in wanted if says_nothing([each[index] for each in found])]
