"""How far outputs of a right module may be from ONNX Runtime's if the model rounds to integers.

Sums in another order differ by a ten thousandth of a step, and what lies so near a tie is rounded to the other side.
How far such a step moves the outputs is the model's own: it is measured, on the prepared model in ONNX Runtime, by
adding noise to everything that is about to be rounded. ONNX Runtime's optimisations move outputs likewise, and by what
its own operators over integers approximate; what they do is measured on the user's file.
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
from sartor.runtime.output_error import output_error
from sartor.runtime.reference import OnnxRuntimeReference

_INTEGER_OPS = frozenset(
    {"ConvInteger", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "QuantizeLinear"}
)
_INTEGER_PREFIX = "QLinear"
TIE_SAMPLES = 4
"""On how many samples of each kind it is measured what ties do."""

_DRAWS = 2
# In steps: ten times what another order of a thousand terms makes.
_NOISE = 2.0**-10


def rounds(model: ModelProto) -> bool:
    """Whether a model computes with integers that stand for reals."""
    return any(node.op_type in _INTEGER_OPS or node.op_type.startswith(_INTEGER_PREFIX) for node in nodes(model))


def tie_spread(path: Path, prepared: Path | bytes, samples: Sequence[Mapping[str, Array]]) -> float:
    """The largest relative error of float outputs that rounding to the other side makes.

    Args:
        path: the user's file.
        prepared: the same model as it is imported, its pairs taken out.
        samples: on which modules will be compared, or like those: how far an error spreads depends on the inputs.
    """
    model = prepared_model(prepared)
    disturbed = Disturbed(model, narrow=False)
    return max([*_by_optimising(path, samples, disturbed), *_by_noise(model, samples, disturbed)], default=0.0)


def _by_optimising(path: Path, samples: Sequence[Mapping[str, Array]], disturbed: Disturbed) -> Iterator[float]:
    """What ONNX Runtime's optimisations change."""
    try:
        plain, optimised = (OnnxRuntimeReference(path, optimises=each) for each in (False, True))
        for feeds in samples:
            right = plain(feeds)
            yield _float_error(optimised(feeds), right, disturbed.scales(right, disturbed(feeds)))
    except SartorError:
        # It does not run the user's file, so nothing will be compared with that.
        return


def _by_noise(model: ModelProto, samples: Sequence[Mapping[str, Array]], disturbed: Disturbed) -> Iterator[float]:
    """What noise changes; each run draws other numbers."""
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
    """Integers are compared one by one, and no bound on an error says by how much they may differ."""
    rows = zip(outputs, right, scales, strict=True)
    floats = [row for row in rows if np.issubdtype(row[1].dtype, np.floating)]
    return max((output_error(output, each, scale=scale) for output, each, scale in floats), default=0.0)


def _add_noise(model: ModelProto) -> None:
    """Move all that is rounded by a part of a step."""
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
    """A node that rounds, behind what adds noise to its operand; ``scale`` is a step, if that is not one."""
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
