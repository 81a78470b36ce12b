"""Measures how much outputs of a right module may differ from ONNX Runtime's if the model rounds to integers.

Sums in another order differ by a ten thousandth of a step, and a value that near to a tie may round to the other side.
The effect of such a step on the outputs depends on the model. It is measured on the prepared model in ONNX Runtime, by
adding noise to all values that are rounded. Networks that amplify a step have a large effect, which tells nothing of a
module: beyond a fixed bound its layers are compared (``sartor.reference.layerwise``).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, helper

from sartor.errors import UsageError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor
from sartor.onnx_model.graphs.prepared import prepared_model
from sartor.onnx_model.graphs.walk import nodes
from sartor.onnx_model.rewrites.operator_sets.contrib.cached_codes import has_codes
from sartor.reference.expected_outputs import Disturbed
from sartor.reference.tied_codes import coded_outputs
from sartor.reference.tolerance import MOST_BY_ITSELF
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.output_error import output_error

_INTEGER_OPS = frozenset(
    {
        *("ConvInteger", "DequantizeLinear", "DynamicQuantizeLinear", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul"),
        *("MatMulInteger", "MatMulIntegerToFloat", "QGemm", "QuantizeLinear"),
    }
)
_INTEGER_PREFIX = "QLinear"
_CACHING = "GroupQueryAttention"
_ROUNDING_OPS = frozenset(
    {
        *("DynamicQuantizeLinear", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "QGemm", "QuantizeLinear", "Round"),
    }
)
TIE_SAMPLES = 4
"""Number of samples of each style on which the effect of ties is measured."""

_DRAWS = 2
# Numbers of a draw, which are repeated, from another one on for each value that is rounded. The length is prime, so
# that no dimension of a tensor divides it.
_LENGTH = 8191
# In steps: ten times the difference by another order of a thousand terms.
_NOISE = 2.0**-10


def rounds(model: ModelProto) -> bool:
    """Whether a model computes with integers that represent real numbers."""
    return any(_is_integer(node) for node in nodes(model)) or bool(coded_outputs(model))


def _is_integer(node: NodeProto) -> bool:
    keeps_codes = node.op_type == _CACHING and has_codes(node)
    return node.op_type in _INTEGER_OPS or node.op_type.startswith(_INTEGER_PREFIX) or keeps_codes


def rounds_values(root: ModelProto | GraphProto | FunctionProto) -> bool:
    """Whether a model rounds values to integers, where others only have weights that are integers."""
    return any(_rounds(node) for node in nodes(root))


def _rounds(node: NodeProto) -> bool:
    return node.op_type in _ROUNDING_OPS or node.op_type.startswith(_INTEGER_PREFIX)


def tie_spread(prepared: Path | bytes, samples: Sequence[Mapping[str, Array]], enough: float = MOST_BY_ITSELF) -> float:
    """The largest relative error of float outputs that is caused by rounding ties to the other side.

    Args:
        prepared: the model as it is imported, with quantised pairs replaced.
        samples: those on which modules will be compared, or similar ones, as the effect depends on the inputs.
        enough: an error from which on no further samples are run; by default that beyond which layers decide.
    """
    model, largest = prepared_model(prepared), 0.0
    for error in _by_noise(model, samples, Disturbed(model, narrow=False)):
        largest = max(largest, error)
        if largest >= enough:
            break
    return largest


def _by_noise(model: ModelProto, samples: Sequence[Mapping[str, Array]], disturbed: Disturbed) -> Iterator[float]:
    """Errors by noise, which differs from run to run."""
    plain = ReferenceModel(model.SerializeToString())
    noisy = ModelProto()
    noisy.CopyFrom(model)
    noise = _add_noise(noisy)
    moved = ReferenceModel(noisy.SerializeToString())
    random = np.random.default_rng(1)
    for feeds in samples:
        try:
            right = plain(feeds)
        except UsageError:
            # Not every drawn sample is one that the model takes, as of indices; the user's own are tried elsewhere.
            continue
        scales = disturbed.scales(right, disturbed(feeds))
        for _ in range(_DRAWS):
            draw = random.uniform(-_NOISE, _NOISE, _LENGTH).astype(np.float32)
            yield _float_error(moved({**feeds, noise: draw}), right, scales)


def _float_error(outputs: list[Array], right: list[Array], scales: list[Array]) -> float:
    """Relative error of the float outputs only: integer outputs must be equal, so no bound is measured for them."""
    rows = zip(outputs, right, scales, strict=True)
    floats = [row for row in rows if np.issubdtype(row[1].dtype, np.floating)]
    return max((output_error(output, array, scale=scale) for output, array, scale in floats), default=0.0)


def _add_noise(model: ModelProto) -> str:
    """Add noise of a fraction of a step to all values that are rounded; returns the input that takes its numbers.

    They are an input, as ONNX Runtime has no operator of random numbers in opset 22 and later ones.
    """
    editor = GraphEditor(model.graph)
    noise = editor.fresh("noise")
    changed: list[NodeProto] = []
    for node in editor.nodes:
        producer = editor.producer(node.input[0]) if node.input else None
        if node.op_type == "Round" and producer is not None and producer.op_type == "Div":
            changed += _moved(node, editor, noise, "")
        elif node.op_type == "QuantizeLinear" and editor.shape(node.input[1]) == ():
            changed += _moved(node, editor, noise, node.input[1])
        else:
            changed.append(node)
    editor.set_nodes(changed)
    model.graph.input.append(helper.make_tensor_value_info(noise, TensorProto.FLOAT, [_LENGTH]))
    return noise


def _moved(node: NodeProto, editor: GraphEditor, numbers: str, scale: str) -> list[NodeProto]:
    """A node that rounds, after nodes that add noise to its operand; ``scale`` is the step, empty for a step of 1."""
    emit, source = Emitter(editor, node), node.input[0]
    noise = _repeated(emit, source, numbers)
    if scale:
        noise = emit("Mul", noise, scale, part="scaled")
    moved = emit("Add", source, noise, part="moved")
    emit.copy([moved, *node.input[1:]], node.output[0])
    return emit.nodes


def _repeated(emit: Emitter, source: str, numbers: str) -> str:
    """The numbers of a draw, repeated in the shape and type of a value."""

    def number(value: int) -> str:
        return emit.constant(value, "number", np.int64)

    first = number(zlib.crc32(source.encode()) % _LENGTH)
    end = emit("Add", emit("Size", source, part="size"), first, part="end")
    places = emit("Range", first, end, number(1), part="places")
    taken = emit("Gather", numbers, emit("Mod", places, number(_LENGTH), part="repeated"), part="taken")
    shaped = emit("Reshape", taken, emit("Shape", source, part="shape"), part="shaped", allowzero=1)
    return emit("CastLike", shaped, source, part="noise")
