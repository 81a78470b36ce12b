"""Which experts of a mixture a token goes to, and by which weights its results are added up."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import attributes, optional_input
from sartor.onnx_model.graphs.halves import HALVES

# The place of the weights that a model gives itself, among the operands of ``QMoE``.
_ROUTER_WEIGHTS = 14


class ExpertRoutes:
    """The routes of a node of either operator.

    Args:
        emit: takes the nodes.
        rows: how many tokens there are.
        count: of the experts.
        chosen: experts of a token.
    """

    def __init__(self, emit: Emitter, rows: int, count: int, chosen: int) -> None:
        self._emit, self._rows, self._count, self._places = emit, rows, count, chosen
        self._normalises = bool(attributes(emit.node).get("normalize_routing_weights"))

    def chosen(self) -> tuple[str, str]:
        """The weights of the chosen experts of each token, and their numbers, ``[rows, chosen]``.

        They are chosen in float32, as ONNX ranks no bfloat16.
        """
        emit, kind = self._emit, self._emit.editor.element_type(self._emit.node.input[1])
        best, numbers = self._by_router(self._wide(emit.node.input[1], "logits"))
        if self._own_weights:
            own = self._wide(self._own_weights, "own_weights")
            best = self._by_own(emit("GatherElements", own, numbers, part="own_best", axis=-1))
        return (emit("Cast", best, part="narrow_best", to=kind) if kind in HALVES else best), numbers

    def _wide(self, routes: str, part: str) -> str:
        """Something of each token and expert in float32, ``[rows, experts]``."""
        emit = self._emit
        shaped = emit("Reshape", routes, self._emit.constant([self._rows, self._count], "shape"), part=part)
        is_half = emit.editor.element_type(routes) in HALVES
        return emit("Cast", shaped, part=f"wide_{part}", to=TensorProto.FLOAT) if is_half else shaped

    def _by_router(self, logits: str) -> tuple[str, str]:
        """The weights that the router gives, and the numbers of their experts.

        In ONNX Runtime ``QMoE`` ranks logits, and ``MoE`` shares, of which more may be equal. The weights of ``QMoE``
        always have the sum one, whatever ``normalize_routing_weights`` is.
        """
        emit = self._emit
        if emit.node.op_type == "QMoE":
            best, numbers = self._highest(logits)
            return emit("Softmax", best, part="shares", axis=-1), numbers
        best, numbers = self._highest(emit("Softmax", logits, part="shares", axis=-1))
        return (emit("Div", best, self._total(best), part="normalised") if self._normalises else best), numbers

    def _by_own(self, weights: str) -> str:
        """The weights of chosen experts from those that the model gives: negative ones are left out, once they are
        divided by the sum of all, and so are all of a token whose sum is zero."""
        emit = self._emit
        if self._normalises:
            total = self._total(weights)
            zero, one = (emit.constant(number, "number", np.float32) for number in (0.0, 1.0))
            is_zero = emit("Equal", total, zero, part="is_zero")
            divisor = emit("Where", is_zero, one, total, part="divisor")
            weights = emit("Where", is_zero, zero, emit("Div", weights, divisor, part="divided"), part="normalised")
        return emit("Relu", weights, part="positive")

    def _total(self, weights: str) -> str:
        return self._emit("ReduceSum", weights, self._emit.constant([-1], "axis"), part="total", keepdims=1)

    def _highest(self, routes: str) -> tuple[str, str]:
        """The highest of some ``[rows, experts]`` and their numbers, of equals the last, as in ONNX Runtime."""
        emit, last = self._emit, self._count - 1
        order = emit.constant([*range(last, -1, -1)], "last_to_first")
        turned = emit("Gather", routes, order, part="last_to_first", axis=-1)
        count = emit.constant([self._places], "chosen")
        # TopK takes the first of equals.
        best, places = emit.many("TopK", turned, count, part="choose", outputs=("", ""), axis=-1)
        return best, emit("Sub", emit.constant([last], "last"), places, part="numbers")

    @property
    def _own_weights(self) -> str:
        return optional_input(self._emit.node, _ROUTER_WEIGHTS) if self._emit.node.op_type == "QMoE" else ""
