"""What experts of a mixture do between their products."""

from __future__ import annotations

import math

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import attributes

PLAIN = ("identity", "relu", "silu", "gelu")
"""Activations of one operand."""
GATED = "swiglu"
"""That of two."""
_INTERLEAVED = 1


class ExpertActivation:
    """The activation of a node of either operator.

    Args:
        emit: takes the nodes.
        inner: the depth of the second product.
    """

    def __init__(self, emit: Emitter, inner: int) -> None:
        self._emit, self._inner, self._found = emit, inner, attributes(emit.node)

    def of(self, first: str, gates: list[str]) -> str:
        """The activation of ``[rows, experts, results]`` of the first product, and of that of gates, if any."""
        emit, kind = self._emit, str(self._found.get("activation_type", "relu")).lower()
        if kind == GATED:
            return self._gated(*self._halves(first, gates))
        if kind == "relu":
            return emit("Relu", first, part="activation")
        if kind == "silu":
            return emit("Mul", first, emit("Sigmoid", first, part="gate"), part="activation")
        return self._bent(first) if kind == "gelu" else first

    def _bent(self, x: str) -> str:
        """GELU by a hyperbolic tangent, as ONNX Runtime's experts have it."""
        emit = self._emit
        cube = emit("Mul", emit("Mul", x, x, part="square"), x, part="cube")
        inner = emit("Add", x, emit("Mul", cube, self._number(0.044715, "cubic"), part="cubic"), part="bent")
        scaled = emit("Mul", inner, self._number(math.sqrt(2 / math.pi), "root"), part="scaled")
        raised = emit("Add", emit("Tanh", scaled, part="tangent"), self._number(1, "one"), part="raised")
        half = emit("Mul", x, self._number(0.5, "half"), part="half")
        return emit("Mul", half, raised, part="activation")

    def _halves(self, first: str, gates: list[str]) -> tuple[str, str]:
        """What is bent, and what is multiplied by it."""
        if gates:
            return first, gates[0]
        emit, inner = self._emit, self._inner
        is_interleaved = self._found.get("swiglu_fusion") == _INTERLEAVED
        pairs = [inner, 2] if is_interleaved else [2, inner]
        split = emit("Reshape", first, emit.constant([0, 0, *pairs], "pairs"), part="pairs")
        axis, ones = (3 if is_interleaved else 2), emit.constant([1, 1], "ones")
        halves = emit.many("Split", split, ones, part="halves", outputs=("", ""), axis=axis)
        one, other = (emit("Squeeze", half, emit.constant([axis], "axis"), part="half") for half in halves)
        return one, other

    def _gated(self, gate: str, linear: str) -> str:
        emit, settings = self._emit, self._found
        alpha, beta = (settings.get(name) for name in ("activation_alpha", "activation_beta"))
        limit = float(settings.get("swiglu_limit", math.inf))
        is_late = bool(settings.get("swiglu_limit_after_activation"))
        most = None if math.isinf(limit) else self._number(limit, "limit")
        if most is not None:
            linear = emit("Clip", linear, self._number(-limit, "least"), most, part="linear_limit")
            gate = gate if is_late else emit("Min", gate, most, part="gate_limit")
        steep = gate if alpha in (None, 1.0) else emit("Mul", gate, self._number(alpha, "alpha"), part="steep")
        bent = emit("Mul", gate, emit("Sigmoid", steep, part="gate"), part="bent")
        if most is not None and is_late:
            bent = emit("Min", bent, most, part="bent_limit")
        moved = linear if not beta else emit("Add", linear, self._number(beta, "beta"), part="moved")
        return emit("Mul", bent, moved, part="activation")

    def _number(self, value: float, hint: str) -> str:
        return self._emit.like(value, self._emit.node.input[0], hint)
