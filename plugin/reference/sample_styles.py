"""Worker side of drawing samples: finds inputs on which every output can be checked.

On random values some models return NaN, or the same result for every input, because a threshold is never reached or a
score is saturated. Such outputs cannot be checked. So other values are drawn, and the user is told of outputs that
still cannot be checked.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import ModelProto

from sartor.errors import ReferenceFailedError, SartorError, UsageError
from sartor.onnx_model.graphs.graph import GraphEditor
from sartor.onnx_model.graphs.prepared import is_long
from sartor.onnx_model.graphs.walk import names_read, nodes
from sartor.reference.random_inputs import OTHERS, UNSET, USUAL, InputSampler, Style
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.driver.signature import Array
from sartor.runtime.output_error import count_not_finite

_LOG = logging.getLogger(__name__)
_EACH = 2
# The comparison runs a sample about five times within one call of a worker, which may take fifteen minutes.
_MOST_SECONDS = 120.0
# A model that is slow to import is still compiled, though not in time.
_LEAST_SECONDS = 10.0
# Floats with only two values are the ends of a saturated Sigmoid or Softmax, 0 and 1.
_SATURATED = 2


@dataclass(frozen=True)
class Doubts:
    """Outputs that some samples cannot check, or check in part only.

    Attributes:
        unchecked: outputs by which a wrong module cannot be told from a right one.
        not_finite: outputs with elements that are NaN or infinite. Only that can be checked of these elements.
    """

    unchecked: tuple[str, ...] = ()
    not_finite: tuple[str, ...] = ()


NO_DOUBTS = Doubts()
"""If every element of every output can be checked."""


@dataclass(frozen=True)
class Chosen:
    """The styles in which samples are drawn.

    Attributes:
        styles: samples of all these styles are needed.
        doubts: about outputs that cannot be checked in any style, or that are not finite in one of ``styles``.
        is_hurried: whether some samples took longer than the compilation had, and other styles may be better.
    """

    styles: tuple[Style, ...] = (USUAL,)
    doubts: Doubts = NO_DOUBTS
    is_hurried: bool = False


def choose_styles(model: ModelProto, prepared: Path | bytes, end: float = math.inf) -> Chosen:
    """Choose the default style, or others in which outputs can be checked that cannot in the default style.

    Args:
        model: the prepared model; weights are not read.
        prepared: the same model with weights, for ONNX Runtime.
        end: when the compilation should end, by ``time.monotonic()``.

    Raises:
        ReferenceFailedError: if one inference takes longer than that, or so long that no module can be compared.
    """
    names = dependent_outputs(model)
    try:
        reference = ReferenceModel(prepared, layouts=not is_long(model))
    except SartorError:
        # The comparison reports this.
        return Chosen()
    wanted = [name for name in reference.output_names if name in names]
    look = _Look(InputSampler(model), reference, wanted, end)
    known = {USUAL: look.at_usual()}
    missing = set(known[USUAL].unchecked)
    styles = [USUAL]
    for style in OTHERS if missing else ():
        known[style] = look.at(style)
        silent = set(known[style].unchecked)
        if not silent and style is not UNSET:
            styles, missing = [style], silent
            break
        if missing - silent:
            styles.append(style)
            missing &= silent
    if any(node.op_type == "If" for node in nodes(model)):
        # Of two branches the usual samples take one, if an input of truth values or integers decides.
        for style in (UNSET, USUAL):
            if style not in known:
                known[style] = look.at(style)
            if style not in styles and set(known[style].unchecked) < {*wanted}:
                styles.append(style)
    # An output without any finite number in one of several styles is looked at in another.
    partly = {name for style in styles for name in set(known[style].not_finite) - set(known[style].unchecked)}
    doubts = Doubts(_in_order(wanted, missing), _in_order(wanted, partly))
    return Chosen(tuple(styles), doubts, look.is_hurried)


def _in_order(names: Sequence[str], chosen: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name in chosen)


def doubts_of(reference: ReferenceModel, runs: Sequence[Sequence[Array]], wanted: Collection[str]) -> Doubts:
    """The doubts about some outputs. One whose size depends on data must have elements in at least one run.

    Args:
        reference: the model.
        runs: its outputs, sample by sample.
        wanted: which outputs matter.
    """
    names, cut = reference.output_names, reference.cut_names
    values_by_name = {name: [run[index] for run in runs] for index, name in enumerate(names) if name in wanted}
    empty = {name for name, values in values_by_name.items() if name in cut and not any(value.size for value in values)}
    return Doubts(
        tuple(name for name, values in values_by_name.items() if name in empty or says_nothing(values)),
        tuple(name for name, values in values_by_name.items() if any(map(count_not_finite, values))),
    )


def says_nothing(values: Sequence[Array]) -> bool:
    """Whether the values of one output on several samples cannot show that a module is wrong.

    They have no finite number, are all equal, or are floats with only two values. An empty output can be checked.
    """
    if values[0].dtype.kind not in "biuf" and values[0].dtype.name != "bfloat16":
        return False
    flat = np.concatenate([value.astype(np.float64).reshape(-1) for value in values])
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


class _Look:
    """Looks at outputs on samples of a style, for some time.

    Args:
        sampler: draws samples.
        reference: the model.
        wanted: outputs that matter.
        end: when the compilation should end, by ``time.monotonic()``.

    Attributes:
        is_hurried: whether a sample took longer than the compilation had.
    """

    is_hurried = False

    def __init__(self, sampler: InputSampler, reference: ReferenceModel, wanted: Sequence[str], end: float) -> None:
        self._sampler, self._reference, self._wanted = sampler, reference, wanted
        now = time.monotonic()
        self._has_less = end - now < _MOST_SECONDS
        self._end = now + min(_MOST_SECONDS, max(end - now, _LEAST_SECONDS))

    def at_usual(self) -> Doubts:
        """The doubts about outputs in the usual style, none if there is time for one inference only.

        No output can be checked if the model fails on it.

        Raises:
            ReferenceFailedError: if there is no time for one inference.
        """
        try:
            runs = [self._run(0, USUAL)]
        except UsageError as error:
            return self._none(USUAL, error)
        except ReferenceFailedError as error:
            advice = "; allow more by --time-budget" if self._has_less else ""
            raise ReferenceFailedError(f"{error}, and every module is compared with its results{advice}") from None
        try:
            runs.append(self._run(1, USUAL))
        except UsageError as error:
            return self._none(USUAL, error)
        except ReferenceFailedError:
            return NO_DOUBTS
        return doubts_of(self._reference, runs, self._wanted)

    def at(self, style: Style) -> Doubts:
        """The doubts about outputs in another style; none can be checked if the model fails or takes too long."""
        try:
            return doubts_of(self._reference, [self._run(seed, style) for seed in range(_EACH)], self._wanted)
        except SartorError as error:
            return self._none(style, error)

    def _run(self, seed: int, style: Style) -> list[Array]:
        try:
            return self._reference(self._sampler(seed, style), max(0.0, self._end - time.monotonic()))
        except ReferenceFailedError:
            self.is_hurried = self._has_less
            raise

    def _none(self, style: Style, error: SartorError) -> Doubts:
        _LOG.debug("no samples in %s: %s", style, error)
        return Doubts(tuple(self._wanted))
