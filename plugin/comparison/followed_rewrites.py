"""Runs a model behind each of its rewrites, to find the first one behind which it computes something else."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from onnx import ModelProto, helper

from sartor.comparison.compare_job import Answer, Question, asked_model
from sartor.errors import SartorError
from sartor.onnx_model.graphs.held_data import serialised
from sartor.onnx_model.graphs.prepared import Change
from sartor.onnx_model.preparing.prepare import prepare
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.driver.bound_input import bound_feeds
from sartor.runtime.driver.signature import Array
from sartor.runtime.output_error import output_error
from sartor.tuning.workers.calls import call
from sartor.tuning.workers.pool import WorkerPool
from sartor.tuning.workers.protocol import WorkerError

_STEP = "following rewrites"


@dataclass(frozen=True)
class FollowedRewrite:
    """A rewrite that changed something, and what the model computes behind it.

    Attributes:
        change: the rewrite, and what it changed.
        error: the largest relative error of an output; None if nothing runs the model as it is there.
        reason: why nothing runs it; empty if it ran.
    """

    change: Change
    error: float | None
    reason: str = ""


def follow_rewrites(pool: WorkerPool, question: Question, right: Answer) -> list[FollowedRewrite]:
    """Run a model behind each of its rewrites on the feeds, in a separate process.

    Args:
        pool: workers.
        question: names the model and the feeds.
        right: the answer to it.

    Raises:
        SartorError: as ``ask``.
    """
    arguments = {"question": replace(question, model=question.model.absolute()), "right": right}
    with pool.beside() as single:
        return call(single, followed, arguments, _STEP)


def followed(question: Question, right: Answer) -> list[FollowedRewrite] | WorkerError:
    """Worker side of ``follow_rewrites``."""
    try:
        asked, widens = asked_model(question), question.widens
        follower = _Follower({**asked.feeds, **bound_feeds(question.bound)}, right)
        prepare(asked.model, right.shapes, bindings=asked.bindings, watch=follower.watch, widens=widens)
        return follower.found
    except SartorError as error:
        return WorkerError(error)


def first_beyond(rewrites: Sequence[FollowedRewrite], allowed: float) -> FollowedRewrite | None:
    """The first rewrite behind which outputs are further off than is allowed; None if there is none."""
    return next((rewrite for rewrite in rewrites if rewrite.error is not None and not rewrite.error <= allowed), None)


@dataclass
class _Follower:
    """Runs the model that rewrites change.

    Attributes:
        feeds: one array per input of the loaded model.
        right: its outputs.
        found: what was run so far.
    """

    feeds: Mapping[str, Array]
    right: Answer
    found: list[FollowedRewrite] = field(default_factory=list)

    def watch(self, change: Change, model: ModelProto) -> None:
        """Run the model behind a change."""
        try:
            reference = ReferenceModel(b"".join(serialised(model)), optimises=False)
            outputs = dict(zip(reference.output_names, reference(self._fed(model)), strict=True))
        except SartorError as error:
            self.found.append(FollowedRewrite(change, None, str(error)))
        else:
            self.found.append(FollowedRewrite(change, self._error(outputs)))

    def _fed(self, model: ModelProto) -> dict[str, Array]:
        """Feeds in the types that the inputs have by now: some rewrites store types in others of the same size."""
        types = {
            value.name: helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type) for value in model.graph.input
        }
        return {name: _stored(array, types[name]) for name, array in self.feeds.items() if name in types}

    def _error(self, outputs: Mapping[str, Array]) -> float:
        errors = [
            output_error(_stored(outputs[name], expected.dtype), expected, scale=scale) if name in outputs else math.inf
            for name, expected, scale in zip(self.right.names, self.right.outputs, self.right.scales, strict=True)
        ]
        return max(errors, default=0.0)


def _stored(array: Array, dtype: np.dtype[Any]) -> Array:
    """An array as another type of the same size, with the same bits."""
    return array if array.dtype.itemsize != dtype.itemsize or array.dtype.kind in "OSU" else array.view(dtype)
