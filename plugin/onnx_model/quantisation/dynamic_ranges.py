"""Lowers DynamicQuantizeLinear to arithmetic on floats: the quantised tensor holds integers as floats."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sartor.onnx_model.graphs.emit import Emitter

_STEPS = 255.0
_LEAST_STEP = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class DynamicRange:
    """Value names of a quantised tensor and its zero point.

    Attributes:
        values: integers from 0 to 255 as floats.
        zero: zero point, a scalar.
    """

    values: str
    zero: str


def emit_dynamic_range(emit: Emitter) -> DynamicRange:
    """Emit the emitter's DynamicQuantizeLinear as its ONNX operator page defines it; the scale keeps its name."""
    source, scale = emit.node.input[0], emit.node.output[1]
    nothing, one = (emit.constant(bound, hint, np.float32) for bound, hint in ((0.0, "nothing"), (1.0, "one")))
    most = emit.constant(_STEPS, "most", np.float32)
    low = emit("Min", emit("ReduceMin", source, part="min", keepdims=0), nothing, part="low")
    high = emit("Max", emit("ReduceMax", source, part="max", keepdims=0), nothing, part="high")
    step = emit("Div", emit("Sub", high, low, part="extent"), most, part="step")
    # IREE takes subnormal numbers for zero, by which the values would then be divided.
    step = emit("Max", step, emit.constant(_LEAST_STEP, "least", np.float32), part="normal_step")
    emit("Where", emit("Equal", high, low, part="is_empty"), one, step, part="scale", output=scale)
    start = emit("Div", emit("Neg", low, part="below"), scale, part="start")
    zero = emit("Round", emit("Clip", start, nothing, most, part="inside"), part="zero")
    moved = emit("Add", emit("Round", emit("Div", source, scale, part="divide"), part="round"), zero, part="shift")
    return DynamicRange(emit("Clip", moved, nothing, most), zero)
