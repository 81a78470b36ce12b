"""Worker side of drawing samples: finds inputs on which every output can be checked.

On random values some models return NaN, or the same result for every input, because a threshold is never reached or a
score is saturated. Such outputs cannot be checked. So other values are drawn, and the user is told of outputs that
still cannot be checked.
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
# Floats with only two values are the ends of a saturated Sigmoid or Softmax, 0 and 1.
_SATURATED = 2

Run = Callable[[Mapping[str, Array]], Sequence[Array]]


@dataclass(frozen=True)
class Chosen:
    """The styles in which samples are drawn.

    Attributes:
        styles: samples of all these styles are needed.
        unchecked: outputs that cannot be checked in any style.
    """

    styles: tuple[Style, ...] = (USUAL,)
    unchecked: tuple[str, ...] = ()


def choose_styles(model: ModelProto, prepared: Path | bytes) -> Chosen:
    """Choose the default style, or others in which outputs can be checked that cannot in the default style.

    Args:
        model: the prepared model; weights are not read.
        prepared: the same model with weights, for ONNX Runtime.
    """
    names = dependent_outputs(model)
    try:
        reference = OnnxRuntimeReference(prepared)
    except SartorError:
        # The comparison reports this.
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
    """Whether the values of one output on several samples cannot show that a module is wrong.

    They have no finite number, are all equal, or are floats with only two values. An empty output can be checked.
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
    """Names of outputs that cannot be checked on one sample. A single number counts as checkable: it may vary."""
    return tuple(
        name
        for name, array in outputs.items()
        if says_nothing([array]) and not (array.size == 1 and np.isfinite(array.astype(np.float64)).all())
    )


def dependent_outputs(model: ModelProto) -> set[str]:
    """Outputs that depend on an input. Others are constants, which is right."""
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
    """The indices in ``wanted`` of outputs that cannot be checked in a style; all if the model fails on it."""
    try:
        found = [run(sample_inputs(model, seed, style)) for seed in range(_EACH)]
    except UsageError as error:
        _LOG.debug("no samples in %s: %s", style, error)
        return list(wanted)
    return [index for index in wanted if says_nothing([each[index] for each in found])]
