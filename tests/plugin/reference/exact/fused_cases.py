"""Cases that only ONNX Runtime's own operators, or its optimisations, turn into products of 8-bit integers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from tests.plugin.onnx_model.builders import FLOAT, MS, Array, node
from tests.plugin.reference.exact.integers import by_channel, convolved, extreme, rounded, wide
from tests.plugin.reference.exact.saturating_cases import KINDS, PAIRS, SUPPLIES, Case, Graph, Wrong, wrong_of

# Functions of float32 are rounded, and ONNX Runtime approximates some.
_ROUNDING = 2e-6


def fused_cases() -> Iterator[Case]:
    """All cases."""
    yield from _gemms()
    yield from _products_to_float()
    yield from _dynamic_products()
    yield from _attentions()
    yield from _pairs_around_products()
    yield from _pairs_around_convolutions()
    yield from _rounded_operands()


def _zero(kind: str, dtype: np.dtype[np.generic]) -> Array:
    return np.array(3 if kind == "s8" else 120, dtype)


def _gemms() -> Iterator[Case]:
    for (left, right), supply, is_float in itertools.product(PAIRS, SUPPLIES, (False, True)):
        graph, a, b = Graph(), extreme(left, 5, 70), extreme(right, 9, 70, seed=1)
        a_zero, y_zero, bias = _zero(left, a.dtype), _zero(left, a.dtype), np.arange(9, dtype=np.int32) * 100
        b_zero = np.full(9, _zero(right, b.dtype))
        b_scale = (0.5 ** (1 + np.arange(9) % 3)).astype(np.float32)
        names = [graph.add("a", a, "fed"), graph.constant("a_scale", np.float32(0.5)), graph.constant("a_zero", a_zero)]
        names += [graph.add("b", b, supply), graph.constant("b_scale", b_scale), graph.constant("b_zero", b_zero)]
        names += [graph.constant("bias", bias)]
        values = (wide(a, a_zero) @ wide(b, b_zero[0]).T + bias) * (0.5 * b_scale.astype(np.float64))
        expected, kind = values.astype(np.float32), FLOAT
        if not is_float:
            names += [graph.constant("y_scale", np.float32(2.0**11)), graph.constant("y_zero", y_zero)]
            expected, kind = rounded(values / 2**11, left, int(y_zero)), KINDS[left]
        graph.nodes.append(node("QGemm", names, ["y"], domain=MS, transB=1))
        name = f"QGemm {left} {right} {supply} {'float' if is_float else 'quantised'}"
        yield graph.case(name, ("y", None, kind), expected, wrong=wrong_of(left, right))


def _products_to_float() -> Iterator[Case]:
    for (left, right), supply, zeros in itertools.product(PAIRS, SUPPLIES, (False, True)):
        graph, a, b = Graph(), extreme(left, 2, 5, 70), extreme(right, 70, 9, seed=1)
        b_scale, bias = (0.5 ** (1 + np.arange(9) % 3)).astype(np.float32), np.arange(9, dtype=np.float32)
        names = [graph.add("a", a, "fed"), graph.add("b", b, supply)]
        names += [graph.constant("a_scale", np.float32(0.5)), graph.constant("b_scale", b_scale)]
        a_zero, b_zero = (_zero(left, a.dtype), np.full(9, _zero(right, b.dtype))) if zeros else (0, 0)
        names += [graph.constant("a_zero", a_zero), graph.constant("b_zero", b_zero)] if zeros else ["", ""]
        graph.nodes.append(node("MatMulIntegerToFloat", [*names, graph.constant("bias", bias)], ["y"], domain=MS))
        expected = (wide(a, a_zero) @ wide(b, b_zero)) * (0.5 * b_scale.astype(np.float64)) + bias
        name = f"MatMulIntegerToFloat {left} {right} {supply} {'zeros' if zeros else 'none'}"
        yield graph.case(name, ("y", None, FLOAT), expected.astype(np.float32), wrong=wrong_of(left, right))


def _dynamic_products() -> Iterator[Case]:
    """The operand has the numbers 0 to 255, so that its step is 1 and its zero point 0."""
    for right, supply in itertools.product(("u8", "s8"), SUPPLIES):
        graph, a, b = Graph(), extreme("u8", 5, 70).astype(np.float32), extreme(right, 70, 9, seed=1)
        a[0, :2] = 0, 255
        graph.feeds["a"] = a
        graph.inputs.append(("a", a.shape, FLOAT))
        b_scale, b_zero = (0.5 ** (1 + np.arange(9) % 3)).astype(np.float32), np.full(9, _zero(right, b.dtype))
        names = ["a", graph.add("b", b, supply), graph.constant("b_scale", b_scale), graph.constant("b_zero", b_zero)]
        graph.nodes.append(node("DynamicQuantizeMatMul", names, ["y"], domain=MS))
        expected = (a.astype(np.int64) @ wide(b, b_zero)) * b_scale.astype(np.float64)
        name = f"DynamicQuantizeMatMul {right} {supply}"
        yield graph.case(name, ("y", None, FLOAT), expected.astype(np.float32), wrong=wrong_of("u8", right))


def _attentions() -> Iterator[Case]:
    """One head of eight; scores are small, so that no term is lost."""
    for right, supply, zeros in itertools.product(("u8", "s8"), SUPPLIES, (False, True)):
        graph, size, tokens = Graph(), 32, 4
        x, w = extreme("u8", 1, tokens, size), extreme(right, size, 3 * size, seed=1)
        x_scale, w_scale = np.float32(2.0**-10), np.float32(2.0**-6)
        bias = np.linspace(-1, 1, 3 * size, dtype=np.float32)
        names = [graph.add("x", x, "fed"), graph.add("w", w, supply), graph.constant("bias", bias)]
        names += [graph.constant("x_scale", x_scale), graph.constant("w_scale", w_scale), ""]
        x_zero, w_zero = (_zero("u8", x.dtype), _zero(right, w.dtype)) if zeros else (0, 0)
        names += [graph.constant("x_zero", x_zero), graph.constant("w_zero", w_zero)] if zeros else []
        graph.nodes.append(node("QAttention", names, ["y"], domain=MS, num_heads=2))
        projected = (wide(x, x_zero) @ wide(w, w_zero)) * (2.0**-16) + bias.astype(np.float64)
        name = f"QAttention {right} {supply} {'zeros' if zeros else 'none'}"
        expected = _attended(projected, 2).astype(np.float32)
        yield graph.case(name, ("y", None, FLOAT), expected, error=_ROUNDING, wrong=wrong_of("u8", right))


def _attended(projected: Array, heads: int) -> Array:
    """Attention over [N, T, 3 * H], with scores divided by the root of a head's size."""
    count, tokens, _ = projected.shape
    query, key, value = (
        part.reshape(count, tokens, heads, -1).transpose(0, 2, 1, 3) for part in np.split(projected, 3, axis=-1)
    )
    scores = query @ key.transpose(0, 1, 3, 2) / np.sqrt(query.shape[-1])
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    found = weights / weights.sum(axis=-1, keepdims=True) @ value
    return np.asarray(found.transpose(0, 2, 1, 3).reshape(count, tokens, -1))


def _dequantised(
    graph: Graph, name: str, values: Array, supply: str, scale: Array, zero: Array | None, **axis: int
) -> str:
    """Add a tensor and its DequantizeLinear; returns the name of the floats."""
    names = [graph.add(name, values, supply), graph.constant(f"{name}_scale", scale)]
    names += [] if zero is None else [graph.constant(f"{name}_zero", zero)]
    graph.nodes.append(node("DequantizeLinear", names, [f"{name}_float"], name=f"dequantise_{name}", **axis))
    return f"{name}_float"


def _quantise(graph: Graph, source: str, zero: Array) -> None:
    """Round floats to the output."""
    names = [source, graph.constant("y_scale", np.float32(2.0**11)), graph.constant("y_zero", zero)]
    graph.nodes.append(node("QuantizeLinear", names, ["y"], name="quantise_y"))


def _pairs_around_products() -> Iterator[Case]:
    columns = (0.5 ** (1 + np.arange(9) % 3)).astype(np.float32)
    for (left, right), supply, is_float, operator in itertools.product(
        PAIRS, SUPPLIES, (False, True), ("MatMul", "Gemm")
    ):
        graph, a, b = Graph(), extreme(left, 5, 70), extreme(right, 70, 9, seed=1)
        a_zero, y_zero = _zero(left, a.dtype), _zero(left, a.dtype)
        b_zero = np.full(9, 128 if right == "u8" else 0, b.dtype)
        # A zero point that is omitted is 0.
        operands = [_dequantised(graph, "a", a, "fed", np.array(0.5, np.float32), a_zero)]
        operands.append(_dequantised(graph, "b", b, supply, columns, b_zero if right == "u8" else None, axis=1))
        graph.nodes.append(node(operator, operands, ["floats" if not is_float else "y"], name="product"))
        values = (wide(a, a_zero) @ wide(b, b_zero)) * (0.5 * columns.astype(np.float64))
        expected, kind = values.astype(np.float32), FLOAT
        if not is_float:
            _quantise(graph, "floats", y_zero)
            expected, kind = rounded(values / 2**11, left, int(y_zero)), KINDS[left]
        name = f"QDQ {operator} {left} {right} {supply} {'float' if is_float else 'quantised'}"
        # A Gemm without a bias is not fused.
        wrong = wrong_of(left, right, "optimised") if operator == "MatMul" else "never"
        yield graph.case(name, ("y", None, kind), expected, wrong=wrong)


def _pairs_around_convolutions() -> Iterator[Case]:
    for (left, right), supply, groups in itertools.product(PAIRS, SUPPLIES, (1, 2)):
        graph, x, w = Graph(), extreme(left, 2, 8, 6, 5), extreme(right, 16, 8 // groups, 3, 3, seed=1)
        x_zero, y_zero = _zero(left, x.dtype), _zero(left, x.dtype)
        w_zero, w_scale = np.full(16, 128 if right == "u8" else 0, w.dtype), (0.5 ** (1 + np.arange(16) % 3))
        operands = [_dequantised(graph, "x", x, "fed", np.array(0.5, np.float32), x_zero)]
        operands.append(_dequantised(graph, "w", w, supply, w_scale.astype(np.float32), w_zero, axis=0))
        graph.nodes.append(node("Conv", operands, ["floats"], pads=[1] * 4, group=groups))
        _quantise(graph, "floats", y_zero)
        sums = convolved(wide(x, x_zero), wide(w, w_zero[0]), 1, groups)
        expected = rounded(sums * by_channel(0.5 * w_scale / 2**11, 4, 1), left, int(y_zero))
        name = f"QDQ Conv {left} {right} {supply} groups {groups}"
        yield graph.case(name, ("y", None, KINDS[left]), expected, wrong=wrong_of(left, right, "optimised"))


def _rounded_operands() -> Iterator[Case]:
    """One operand or both are floats that are rounded, and so is the result, which leaves as floats.

    ONNX Runtime makes what it rounds unsigned, but not weights.
    """
    for (left, right), is_weight in itertools.product(PAIRS, (False, True)):
        graph, a, b = Graph(), extreme(left, 2, 5, 70), extreme(right, 9, 70, seed=1)
        a_zero, b_zero = _zero(left, a.dtype), np.array(128 if right == "u8" else 0, b.dtype)
        _round(graph, "a", a, a_zero, is_weight=False)
        _round(graph, "b", b, b_zero, is_weight=is_weight)
        graph.nodes.append(node("Transpose", ["b_floats"], ["turned"], perm=[1, 0]))
        graph.nodes.append(node("MatMul", ["a_floats", "turned"], ["floats"]))
        names = [graph.constant("scale", np.float32(2.0**11)), graph.constant("zero", a_zero)]
        graph.nodes.append(node("QuantizeLinear", ["floats", *names], ["integers"], name="quantise"))
        graph.nodes.append(node("DequantizeLinear", ["integers", *names], ["y"], name="dequantise"))
        sums = wide(a, a_zero) @ wide(b, b_zero).T
        expected = wide(rounded(sums / 2**13, left, int(a_zero)), a_zero) * np.float32(2.0**11)
        name = f"QDQ of rounded operands {left} {right} {'weight' if is_weight else 'both'}"
        wrong: Wrong = "optimised" if is_weight and right == "s8" else "never"
        yield graph.case(name, ("y", None, FLOAT), expected.astype(np.float32), wrong=wrong)


def _round(graph: Graph, name: str, integers: Array, zero: Array, *, is_weight: bool) -> None:
    """Add a pair around floats that stand for integers, or the second half of one around a weight."""
    pair = [graph.constant(f"{name}_scale", np.float32(0.5)), graph.constant(f"{name}_zero", zero)]
    if is_weight:
        graph.constant(f"{name}_integers", integers)
    else:
        graph.feeds[name] = (wide(integers, zero) * 0.5).astype(np.float32)
        graph.inputs.append((name, integers.shape, FLOAT))
        graph.nodes.append(node("QuantizeLinear", [name, *pair], [f"{name}_integers"], name=f"quantise_{name}"))
    names = [f"{name}_integers", *pair]
    graph.nodes.append(node("DequantizeLinear", names, [f"{name}_floats"], name=f"dequantise_{name}"))
