"""Measures how much outputs of a right module may differ from ONNX Runtime's if the model rounds to integers.

Sums in another order differ by a ten thousandth of a step, and a value that near to a tie may round to the other side.
The effect of such a step on the outputs depends on the model. It is measured on the prepared model in ONNX Runtime, by
adding noise to all values that are rounded. ONNX Runtime's optimisations have a similar effect, and its integer
operators approximate; the effect of both is measured on the user's file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from onnx import ModelProto, NodeProto, helper

from sartor.errors import SartorError
from sartor.onnx_model.graphs.graph import Array, GraphEditor
from sartor.onnx_model.graphs.prepared import prepared_model
from sartor.onnx_model.graphs.walk import nodes
from sartor.reference.expected_outputs import Disturbed
from sartor.runtime.driver.bound_input import BoundInput, bound_feeds
from sartor.runtime.output_error import output_error
from sartor.runtime.reference import OnnxRuntimeReference

_INTEGER_OPS = frozenset(
    {"ConvInteger", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "QuantizeLinear"}
)
_INTEGER_PREFIX = "QLinear"
TIE_SAMPLES = 4
"""Number of samples of each style on which the effect of ties is measured."""

_DRAWS = 2
# In steps: ten times the difference by another order of a thousand terms.
_NOISE = 2.0**-10


def rounds(model: ModelProto) -> bool:
    """Whether a model computes with integers that represent real numbers."""
    return any(node.op_type in _INTEGER_OPS or node.op_type.startswith(_INTEGER_PREFIX) for node in nodes(model))


def tie_spread(
    path: Path, prepared: Path | bytes, samples: Sequence[Mapping[str, Array]], bound: Sequence[BoundInput] = ()
) -> float:
    """The largest relative error of float outputs that is caused by rounding ties to the other side.

    Args:
        path: the user's file.
        prepared: the same model as it is imported, with quantised pairs replaced.
        samples: those on which modules will be compared, or similar ones, as the effect depends on the inputs.
        bound: inputs with a fixed value, which the user's file takes and the prepared model does not.
    """
    model = prepared_model(prepared)
    disturbed = Disturbed(model, narrow=False)
    found = [*_by_optimising(path, samples, bound_feeds(bound), disturbed), *_by_noise(model, samples, disturbed)]
    return max(found, default=0.0)


def _by_optimising(
    path: Path, samples: Sequence[Mapping[str, Array]], bound: Mapping[str, Array], disturbed: Disturbed
) -> Iterator[float]:
    """Errors by ONNX Runtime's optimisations."""
    try:
        plain, optimised = (OnnxRuntimeReference(path, optimises=each) for each in (False, True))
        for feeds in samples:
            right = plain({**feeds, **bound})
            yield _float_error(optimised({**feeds, **bound}), right, disturbed.scales(right, disturbed(feeds)))
    except SartorError:
        # ONNX Runtime cannot run the user's file, so modules will not be compared with it.
        return


def _by_noise(model: ModelProto, samples: Sequence[Mapping[str, Array]], disturbed: Disturbed) -> Iterator[float]:
    """Errors by noise, which differs from run to run."""
    plain = OnnxRuntimeReference(model.SerializeToString())
    noisy = ModelProto()
    noisy.CopyFrom(model)
    _add_noise(noisy)
    moved = OnnxRuntimeReference(noisy.SerializeToString())
    for feeds in samples:
        right = plain(feeds)
        scales = disturbed.scales(right, disturbed(feeds))
        for _ in range(_DRAWS):
            yield _float_error(moved(feeds), right, scales)


def _float_error(outputs: list[Array], right: list[Array], scales: list[Array]) -> float:
    """Relative error of the float outputs only: integer outputs must be equal, so no bound is measured for them."""
    rows = zip(outputs, right, scales, strict=True)
    floats = [row for row in rows if np.issubdtype(row[1].dtype, np.floating)]
    return max((output_error(output, each, scale=scale) for output, each, scale in floats), default=0.0)


def _add_noise(model: ModelProto) -> None:
    """Add noise of a fraction of a step to all values that are rounded."""
    editor = GraphEditor(model.graph)
    changed: list[NodeProto] = []
    for node in editor.nodes:
        producer = editor.producer(node.input[0]) if node.input else None
        if node.op_type == "Round" and producer is not None and producer.op_type == "Div":
            changed += _moved(node, editor, "")
        elif node.op_type == "QuantizeLinear" and editor.shape(node.input[1]) == ():
            changed += _moved(node, editor, node.input[1])
        else:
            changed.append(node)
    editor.set_nodes(changed)


def _moved(node: NodeProto, editor: GraphEditor, scale: str) -> list[NodeProto]:
    """A node that rounds, after nodes that add noise to its operand; ``scale`` is the step, empty for a step of 1."""
    source = node.input[0]
    noise, moved = (editor.fresh(f"{source}/{each}") for each in ("noise", "moved"))
    found = [helper.make_node("RandomUniformLike", [source], [noise], low=-_NOISE, high=_NOISE, seed=float(1))]
    if scale:
        scaled = editor.fresh(f"{source}/scaled")
        found.append(helper.make_node("Mul", [noise, scale], [scaled]))
        noise = scaled
    found.append(helper.make_node("Add", [source, noise], [moved]))
    copy = NodeProto()
    copy.CopyFrom(node)
    copy.input[0] = moved
    return [*found, copy]
