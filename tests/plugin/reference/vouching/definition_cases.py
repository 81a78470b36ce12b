"""Models of operators that definitions vouch for, with the faults that are planted in their rewrites."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor
from tests.plugin.onnx_model.builders import FLOAT, FLOAT16, INT64, MS, Value, model, node, weights

Lowering = Callable[[NodeProto, GraphEditor], Any]
UINT8 = TensorProto.UINT8


@dataclass(frozen=True)
class Fault:
    """A rewrite that misreads its node.

    Attributes:
        dropped: index of an operand that it does not read.
        swapped: index of a constant operand of which it swaps two axes.
        axes: these axes.
        attributes: that it reads wrongly.
        scale: of a first output that it scales.
    """

    dropped: int | None = None
    swapped: int | None = None
    axes: tuple[int, int] = (0, 1)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    scale: float | None = None

    def planted(self, right: Lowering, given: NodeProto, editor: GraphEditor) -> Any:
        """What the faulty rewrite makes of a node."""
        seen = NodeProto()
        seen.CopyFrom(given)
        if self.dropped is not None:
            seen.input[self.dropped] = ""
            while not seen.input[-1]:
                del seen.input[-1]
        if self.swapped is not None:
            values = editor.constant(seen.input[self.swapped])
            assert values is not None
            seen.input[self.swapped] = editor.add_constant("swapped", np.swapaxes(values, *self.axes).copy())
        if self.attributes:
            kept = [attribute for attribute in seen.attribute if attribute.name not in self.attributes]
            del seen.attribute[:]
            seen.attribute.extend([*kept, *(helper.make_attribute(*each) for each in self.attributes.items())])
        if self.scale is None:
            return right(seen, editor)
        seen.output[0] = editor.fresh("unscaled")
        emit = Emitter(editor, given)
        nodes = right(seen, editor)
        emit("Mul", seen.output[0], emit.like(self.scale, given.input[0], "scale"), part="s", output=given.output[0])
        return nodes and [*nodes, *emit.nodes]


@dataclass(frozen=True)
class Case:
    """A model, the operator whose rewrite is checked, and the faults."""

    operator: str
    build: Callable[[], ModelProto]
    faults: Sequence[Fault] = (Fault(scale=1.05),)


def _case(
    operator: str,
    inputs: Sequence[str],
    *faults: Fault,
    fed: Sequence[Value],
    outputs: Sequence[str | Value] = ("y",),
    constants: Mapping[str, Any] | None = None,
    opset: int = 17,
    **attributes: Any,
) -> Case:
    named = [output if isinstance(output, str) else output[0] for output in outputs]
    item = node(operator, inputs, named, domain=MS, **attributes)
    scaled = (
        (Fault(scale=1.05),) if not any(isinstance(output, tuple) and output[2] == UINT8 for output in outputs) else ()
    )
    return Case(operator, lambda: model([item], fed, outputs, constants, opset), (*scaled, *faults))


_IMAGE: list[Value] = [("x", (2, 6, 6, 4), FLOAT)]
_ROWS: list[Value] = [("x", (2, 3, 8), FLOAT)]
_GROUPED = {"g": weights(4), "b": weights(4, seed=1), "s": weights(2, 4, seed=2), "bias": weights(4, seed=3)}
_QUANTISED = {
    "s": np.float32(0.1),
    "z": np.uint8(3),
    "r": np.float32(0.1),
    "v": np.uint8(0),
}

CASES: Mapping[str, Case] = {
    "nhwc_conv": _case(
        "NhwcConv",
        ["x", "w", "b"],
        Fault(dropped=2),
        Fault(swapped=1, axes=(1, 2)),
        Fault(swapped=1, axes=(1, 3)),
        Fault(attributes={"pads": [0, 1, 1, 0]}),
        fed=_IMAGE,
        constants={"w": weights(5, 4, 4, 4), "b": weights(5)},
        pads=[1, 0, 0, 1],
    ),
    "nhwc_conv_with_groups": _case(
        "NhwcConv",
        ["x", "w"],
        Fault(swapped=1, axes=(1, 2)),
        Fault(attributes={"dilations": [2, 1]}),
        fed=_IMAGE,
        constants={"w": weights(6, 3, 3, 2)},
        group=2,
        strides=[1, 2],
        auto_pad="SAME_LOWER",
    ),
    "nhwc_conv_in_half": _case(
        "NhwcConv",
        ["x", "w", "b"],
        Fault(dropped=2),
        Fault(swapped=1, axes=(1, 3)),
        fed=[("x", (2, 6, 6, 3), FLOAT16)],
        outputs=[("y", None, FLOAT16)],
        constants={"w": weights(5, 3, 3, 3).astype(np.float16), "b": weights(5).astype(np.float16)},
    ),
    "nhwc_fused_conv": _case(
        "NhwcFusedConv",
        ["x", "w", "b", "z"],
        Fault(dropped=2),
        Fault(dropped=3),
        Fault(swapped=1, axes=(2, 3)),
        Fault(attributes={"activation": "Tanh"}),
        fed=_IMAGE,
        constants={"w": weights(6, 4, 3, 3), "b": weights(6), "z": weights(2, 4, 4, 6)},
        activation="Relu",
    ),
    "bias_add": _case(
        "BiasAdd",
        ["x", "b", "s"],
        Fault(swapped=2, axes=(1, 2)),
        fed=[("x", (2, 8, 8), FLOAT)],
        constants={"b": weights(8), "s": weights(2, 8, 8, seed=1)},
    ),
    "bias_split_gelu": _case(
        "BiasSplitGelu",
        ["x", "b"],
        fed=_ROWS,
        constants={"b": weights(8)},
    ),
    "layer_norm": _case(
        "LayerNormalization",
        ["x", "g", "b"],
        Fault(dropped=2),
        Fault(attributes={"epsilon": 1e-12}),
        fed=_ROWS,
        constants={"g": weights(8), "b": weights(8, seed=1)},
        axis=-1,
    ),
    "simplified_layer_norm": _case(
        "SimplifiedLayerNormalization",
        ["x", "g"],
        Fault(attributes={"epsilon": 1e-5}),
        fed=_ROWS,
        constants={"g": weights(8)},
        axis=-1,
        epsilon=1e-6,
    ),
    "bias_softmax": _case(
        "BiasSoftmax",
        ["x", "b"],
        Fault(swapped=1, axes=(0, 2)),
        fed=[("x", (3, 4, 3), FLOAT)],
        constants={"b": weights(3, 1, 3)},
        axis=2,
        is_inner_broadcast=1,
    ),
    "gemm_fast_gelu": _case(
        "GemmFastGelu",
        ["x", "w", "b"],
        Fault(dropped=2),
        Fault(swapped=1),
        fed=_ROWS,
        constants={"w": weights(8, 8), "b": weights(8)},
    ),
    "group_norm": _case(
        "GroupNorm",
        ["x", "g", "b"],
        Fault(attributes={"groups": 4}),
        Fault(attributes={"activation": 0}),
        Fault(attributes={"epsilon": 0.0}),
        Fault(attributes={"epsilon": 1e-6}),
        fed=_IMAGE,
        constants=_GROUPED,
        groups=2,
        activation=1,
    ),
    "group_norm_in_half": _case(
        "GroupNorm",
        ["x", "g", "b"],
        Fault(attributes={"epsilon": 0.0}),
        Fault(attributes={"epsilon": 1e-3}),
        fed=[("x", (2, 6, 6, 4), FLOAT16)],
        outputs=[("y", None, FLOAT16)],
        constants=_GROUPED,
        groups=2,
        activation=0,
    ),
    "skip_group_norm": _case(
        "SkipGroupNorm",
        ["x", "g", "b", "s", "bias"],
        Fault(dropped=4),
        Fault(attributes={"groups": 1}),
        Fault(attributes={"epsilon": 0.0}),
        fed=_IMAGE,
        outputs=["y", "sum"],
        constants=_GROUPED,
        groups=2,
        activation=0,
    ),
    "torch_embedding": _case(
        "TorchEmbedding",
        ["w", "i"],
        Fault(swapped=0),
        fed=[("i", (2, 3), INT64)],
        constants={"w": weights(4, 4)},
    ),
    "reduced_mean": _case(
        "QLinearReduceMean",
        ["x", "s", "z", "r", "v"],
        Fault(dropped=2),
        Fault(attributes={"axes": [1]}),
        fed=[("x", (3, 4, 4), UINT8)],
        outputs=[("y", None, UINT8)],
        constants=_QUANTISED,
        axes=[2],
        keepdims=0,
    ),
    "reduced_mean_of_all": _case(
        "QLinearReduceMean",
        ["x", "s", "z", "r", "v"],
        Fault(dropped=2),
        fed=[("x", (1, 5), UINT8)],
        outputs=[("y", None, UINT8)],
        constants=_QUANTISED | {"z": np.uint8(1)},
        axes=[0, 1],
        keepdims=0,
    ),
}
