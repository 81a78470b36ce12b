"""Checks the rewrites of a model before anything is measured, where ONNX Runtime cannot vouch for them alone.

A rewrite that is wrong would otherwise show after the whole tuning, when no plan is right, or never, if nothing but the
prepared model were there to compare a module with.

A model that rounds to integers may amplify the other side of a tie without limit, so its outputs refuse nothing here.
Its single nodes may, and each layer of its modules is compared later (``sartor.reference.layerwise``).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from onnx import ModelProto

from sartor.errors import RewriteError, SartorError, UnsupportedModelError, UsageError
from sartor.onnx_model.graphs.halves import widened_eps
from sartor.onnx_model.graphs.mapped_data import mapped_model
from sartor.onnx_model.graphs.prepared import prepared_model
from sartor.onnx_model.graphs.walk import describe_node
from sartor.reference.expected_outputs import Expectation
from sartor.reference.tie_spread import rounds
from sartor.reference.tolerance import tolerance
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.reference.vouching.differences import is_quantised, steps_error
from sartor.reference.vouching.node_rewrites import NodeRewrites
from sartor.runtime.driver.bound_input import BoundInput, bound_feeds
from sartor.runtime.driver.signature import Array
from sartor.runtime.mapping.heap import trim_heap
from sartor.runtime.output_error import output_error
from sartor.tuning.workers.protocol import WorkerError

_LOG = logging.getLogger(__name__)
# ONNX Runtime rounds some operators of quantised values after other steps, so that ties fall to the other side.
_MOST_TIES = 0.2
USUAL = 1e-3
"""Bound on the relative error in f32, as for a module."""


@dataclass(frozen=True)
class Checked:
    """What a check compared.

    Attributes:
        is_compared: whether anything was.
        reasons: why nodes, or all, were not, a sentence each.
    """

    is_compared: bool
    reasons: tuple[str, ...] = ()


def checked_rewrites(
    path: Path,
    prepared: Path | bytes,
    samples: Sequence[Mapping[str, Array]],
    bound: Sequence[BoundInput],
    tie_spread: float,
) -> Checked | WorkerError:
    """Compare the prepared model with the user's on some samples, in a worker.

    Args:
        path: the user's file.
        prepared: the prepared model.
        samples: inputs.
        bound: inputs with a fixed value, which only the user's file takes.
        tie_spread: relative error by rounding ties to the other side.

    Returns:
        What was compared, or a ``RewriteError`` if they differ by more than rounding explains.
    """
    checked = _checked(path, prepared, samples, bound, tie_spread)
    # The worker goes on with other jobs, and ONNX Runtime's sessions leave free memory inside the heap.
    trim_heap()
    return checked


def _checked(
    path: Path,
    prepared: Path | bytes,
    samples: Sequence[Mapping[str, Array]],
    bound: Sequence[BoundInput],
    tie_spread: float,
) -> Checked | WorkerError:
    model = mapped_model(path)
    known = prepared_model(prepared)
    # Of each sample all nodes are compared.
    rewrites = [NodeRewrites(model, USUAL, widens=widened_eps(known) > 0) for _ in samples]
    try:
        vouched = [
            _check(path, model, nodes, known, prepared, feeds, bound, tie_spread)
            for nodes, feeds in zip(rewrites, samples, strict=True)
        ]
    except (UnsupportedModelError, UsageError) as error:
        # Nobody can run the user's file, or not on these samples.
        return Checked(False, (str(error),))
    except SartorError as error:
        return WorkerError(error)
    alone = dict.fromkeys(reason for nodes in rewrites for reason in nodes.uncompared)
    later = "later, as layers of modules are" if rounds(model) else "within the whole model alone"
    return Checked(any(vouched), tuple(f"{reason}; it is compared {later}" for reason in alone))


def _check(
    path: Path,
    model: ModelProto,
    rewrites: NodeRewrites,
    known: ModelProto,
    prepared: Path | bytes,
    feeds: Mapping[str, Array],
    bound: Sequence[BoundInput],
    tie_spread: float,
) -> bool:
    """Compare single nodes, and then the whole model; returns whether anything was compared.

    Raises:
        RewriteError: if they differ.
        UsageError: if the user's file does not run on the sample.
        UnsupportedModelError: if nobody can run it.
    """
    reference = ReferenceModel(path)
    taken = {name: value for name, value in bound_feeds(bound).items() if name in reference.input_names}
    calls = reference.calls({**feeds, **taken})
    for call, outputs in calls:
        difference = rewrites.compare(call, outputs)
        if difference is not None and difference.is_wrong:
            raise RewriteError(
                f"internal: the rewrite of {describe_node(call.node)} differs from its definition: relative error "
                f"{difference.error:.2g}, allowed is {difference.allowed:.2g}; please report it, with the node"
            )
    expectation = Expectation((path,), known, narrow=False, bound=bound)
    expected = expectation(feeds)
    own = ReferenceModel(prepared)(feeds)
    errors = list(map(_error_of, own, expected.outputs, expected.scales))
    allowed, error = tolerance(known, USUAL, tie_spread), max(errors, default=0.0)
    if error <= allowed:
        return True
    if rounds(model):
        _LOG.info("%s: rounding is amplified; layers of modules are compared with the nodes of the file", path.name)
        return bool(calls)
    name = reference.output_names[errors.index(error)]
    raise RewriteError(
        f"internal: the rewritten model differs from {reference.described} in the output '{name}': relative error "
        f"{error:.2g}, allowed is {allowed:.2g}; please report it, with the model"
    )


def _error_of(output: Array, right: Array, scale: Array) -> float:
    return (
        steps_error([(output, right)], _MOST_TIES) if is_quantised(right) else output_error(output, right, scale=scale)
    )
