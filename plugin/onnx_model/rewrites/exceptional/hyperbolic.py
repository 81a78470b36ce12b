"""Writes out hyperbolic functions that IREE computes with lost digits or overflow."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import NodeProto, helper

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, node_rewrite

_NARROW = frozenset({"bfloat16", "float16"})
_LARGE = {np.dtype(np.float32): 1e4, np.dtype(np.float64): 1e8}
"""From here on 1 is nothing beside the square, which may overflow."""
_SERIES = {np.dtype(np.float32): 5, np.dtype(np.float64): 9}
"""Terms of the Taylor series of sinh that are exact to the last digit below 1, and of atanh below 0.1."""


@node_rewrite()
def written_hyperbolic(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Write out ``Sinh``, ``Cosh``, ``Asinh`` and ``Acosh``; compute them and others of short floats in float32.

    IREE 3.13 computes exponentials that overflow before their half does, squares that overflow before their root does,
    and differences of numbers close to 1 where an argument is small; in float16 nothing is left of 6e-5.
    """
    rule = _RULES.get(node.op_type)
    if rule is None or not editor.element_type(node.input[0]):
        return None
    emit, source = Emitter(editor, node), node.input[0]
    own = emit.dtype(source)
    is_narrow = own.name in _NARROW
    if not is_narrow and rule is _itself:
        return None
    if is_narrow:
        source = emit("Cast", source, part="widen", to=helper.np_dtype_to_tensor_dtype(np.dtype(np.float32)))
    value = rule(emit, source, np.dtype(np.float32) if is_narrow else own)
    emit("Cast", value, part="result", output=node.output[0], to=helper.np_dtype_to_tensor_dtype(own))
    return emit.nodes


def _itself(emit: Emitter, source: str, kind: np.dtype[Any]) -> str:
    return emit.copy([source])


def _halves(emit: Emitter, source: str, kind: np.dtype[Any]) -> tuple[str, str]:
    """Half of the exponentials of an argument's size and of its opposite, which only overflow where the result does."""
    size = emit("Abs", source, part="size")
    half = emit.constant(0.5, "half", kind)
    root = emit("Exp", emit("Mul", size, half, part="half_size"), part="root")
    large = emit("Mul", emit("Mul", root, half, part="half_root"), root, part="large")
    small = emit("Mul", emit("Exp", emit("Neg", size, part="opposite"), part="inverse"), half, part="small")
    return large, small


def _cosh(emit: Emitter, source: str, kind: np.dtype[Any]) -> str:
    return emit("Add", *_halves(emit, source, kind))


def _sinh(emit: Emitter, source: str, kind: np.dtype[Any]) -> str:
    size = emit("Sub", *_halves(emit, source, kind), part="difference")
    signed = emit("Mul", size, emit("Sign", source, part="sign"), part="signed")
    terms = [1 / math.factorial(2 * index + 1) for index in range(1, _SERIES[kind])]
    near = _odd_series(emit, source, terms, kind)
    return _where_large(emit, emit("Abs", source, part="argument"), 1.0, signed, near, kind)


def _atanh(emit: Emitter, source: str, kind: np.dtype[Any]) -> str:
    terms = [1 / (2 * index + 1) for index in range(1, _SERIES[kind])]
    near = _odd_series(emit, source, terms, kind)
    far = emit("Atanh", source)
    return _where_small(emit, emit("Abs", source, part="argument"), 0.1, near, far, kind)


def _odd_series(emit: Emitter, source: str, terms: list[float], kind: np.dtype[Any]) -> str:
    """``x`` and, from its cube on, the terms of a power series: what is added is small beside ``x``."""
    square = emit("Mul", source, source, part="square")
    series = emit.constant(terms[-1], "term", kind)
    for term in reversed(terms[:-1]):
        product = emit("Mul", series, square, part="product")
        series = emit("Add", product, emit.constant(term, "term", kind), part="sum")
    rest = emit("Mul", emit("Mul", square, source, part="cube"), series, part="rest")
    return emit("Add", source, rest, part="series")


def _asinh(emit: Emitter, source: str, kind: np.dtype[Any]) -> str:
    """``atanh(x / sqrt(1 + x x))`` below 1, ``log(x + sqrt(1 + x x))`` above, and ``log(2 x)`` far above."""
    one, size = emit.constant(1.0, "one", kind), emit("Abs", source, part="size")
    root = emit("Sqrt", emit("Add", emit("Mul", source, source, part="square"), one, part="above"), part="root")
    near = _atanh(emit, emit("Div", source, root, part="sine"), kind)
    signed = emit("Mul", _far(emit, size, root, kind), emit("Sign", source, part="sign"), part="signed")
    return _where_large(emit, size, 1.0, signed, near, kind)


def _acosh(emit: Emitter, source: str, kind: np.dtype[Any]) -> str:
    """``2 atanh(sqrt((x - 1) / (x + 1)))`` up to 2, ``log(x + sqrt((x - 1) (x + 1)))`` above; below 1 no number."""
    one, two = emit.constant(1.0, "one", kind), emit.constant(2.0, "two", kind)
    below, above = emit("Sub", source, one, part="below"), emit("Add", source, one, part="above")
    tangent = emit("Sqrt", emit("Div", below, above, part="square"), part="tangent")
    near = emit("Mul", _atanh(emit, tangent, kind), two, part="near")
    root = emit("Sqrt", emit("Mul", below, above, part="product"), part="root")
    chosen = _where_large(emit, source, 2.0, _far(emit, source, root, kind), near, kind)
    is_number = emit("GreaterOrEqual", source, one, part="is_number")
    return emit("Where", is_number, chosen, emit("Sqrt", below, part="no_number"), part="checked")


def _far(emit: Emitter, size: str, root: str, kind: np.dtype[Any]) -> str:
    """``log(x + root)``, where the root is that of a number beside the square; without the square where it is large."""
    middle = emit("Log", emit("Add", size, root, part="sum"), part="middle")
    large = emit("Add", emit("Log", size, part="log"), emit.constant(math.log(2), "log_two", kind), part="far")
    return _where_large(emit, size, _LARGE[kind], large, middle, kind)


def _where_small(emit: Emitter, value: str, bound: float, small: str, large: str, kind: np.dtype[Any]) -> str:
    is_small = emit("Less", value, emit.constant(bound, "bound", kind), part="is_small")
    return emit("Where", is_small, small, large, part="chosen")


def _where_large(emit: Emitter, value: str, bound: float, large: str, small: str, kind: np.dtype[Any]) -> str:
    is_large = emit("Greater", value, emit.constant(bound, "bound", kind), part="is_large")
    return emit("Where", is_large, large, small, part="chosen")


_RULES: Mapping[str, Callable[[Emitter, str, np.dtype[Any]], str]] = {
    "Acosh": _acosh,
    "Asin": _itself,
    "Asinh": _asinh,
    "Atanh": _atanh,
    "Celu": _itself,
    "Cosh": _cosh,
    "Elu": _itself,
    "Selu": _itself,
    "Sinh": _sinh,
}
