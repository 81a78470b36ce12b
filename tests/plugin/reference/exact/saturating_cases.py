"""Models that multiply integers of 8 bits, with inputs whose products saturate where they are added in 16 bits."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto

from tests.plugin.onnx_model.builders import Array, Value, model, node
from tests.plugin.reference.exact.integers import by_channel, convolved, extreme, rounded, wide

KINDS = {"u8": TensorProto.UINT8, "s8": TensorProto.INT8}
INT32 = TensorProto.INT32

Wrong = Literal["never", "always", "optimised"]


@dataclass(frozen=True)
class Case:
    """A model and what it means.

    Attributes:
        name: of the case.
        model: one output.
        feeds: of the model.
        expected: by definition.
        error: the largest difference that is allowed, relative to the largest value; 0 for equal bits.
        wrong: when ONNX Runtime is wrong on CPUs with AVX2 and without VNNI: never, always, or with its optimisations.
    """

    name: str
    model: ModelProto
    feeds: dict[str, Array]
    expected: Array
    error: float = 0.0
    wrong: Wrong = "always"


@dataclass
class Graph:
    """Collects the parts of a model."""

    nodes: list[NodeProto] = field(default_factory=list)
    inputs: list[Value] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)
    feeds: dict[str, Array] = field(default_factory=dict)

    def add(self, name: str, values: Array, supply: str) -> str:
        """Add a tensor of 8-bit integers as a constant, as an input, or as what a node computes; returns its name."""
        kind = KINDS["u8" if values.dtype == np.uint8 else "s8"]
        if supply == "constant":
            self.constants[name] = values
            return name
        given = name if supply == "fed" else f"{name}_wide"
        self.feeds[given] = values if supply == "fed" else values.astype(np.int32)
        self.inputs.append((given, values.shape, kind if supply == "fed" else INT32))
        if supply == "computed":
            self.nodes.append(node("Cast", [given], [name], name=f"cast_{name}", to=kind))
        return name

    def constant(self, name: str, values: Any) -> str:
        """Add a constant; returns its name."""
        self.constants[name] = np.asarray(values)
        return name

    def case(self, name: str, output: Value, expected: Array, opset: int = 17, **options: Any) -> Case:
        """The case of this graph."""
        built = model(self.nodes, self.inputs, [output], self.constants, opset=opset)
        return Case(name, built, self.feeds, expected, **options)


def cases() -> Iterator[Case]:
    """All cases."""
    yield from _integer_products()
    yield from _integer_convolutions()
    yield from _quantised_products()
    yield from _quantised_convolutions()


SIGNS = ("u8", "s8")
PAIRS = (("u8", "u8"), ("u8", "s8"), ("s8", "s8"))
SUPPLIES = ("constant", "fed", "computed")


def wrong_of(left: str, right: str, when: Wrong = "always") -> Wrong:
    """When ONNX Runtime is wrong by how it multiplies these types: it saturates if only the second one has a sign."""
    return when if (left, right) == ("u8", "s8") else "never"


def _zeros(kind: str, *, some: bool) -> int:
    return (3 if kind == "s8" else 120) if some else (0 if kind == "s8" else 128)


def _integer_products() -> Iterator[Case]:
    for left, right, supply, zeros in itertools.product(SIGNS, SIGNS, SUPPLIES, ("none", "one", "column")):
        graph, a, b = Graph(), extreme(left, 5, 70), extreme(right, 70, 9, seed=1)
        names = [graph.add("a", a, "fed"), graph.add("b", b, supply)]
        a_zero, b_zero = np.array(0, a.dtype), np.array(0, b.dtype)
        if zeros != "none":
            a_zero = np.array(7, a.dtype)
            b_zero = np.array(5, b.dtype) if zeros == "one" else np.arange(9).astype(b.dtype)
            names += [graph.constant("a_zero", a_zero), graph.constant("b_zero", b_zero)]
        graph.nodes.append(node("MatMulInteger", names, ["y"]))
        expected = (wide(a, a_zero) @ wide(b, b_zero)).astype(np.int32)
        name = f"MatMulInteger {left} {right} {supply} {zeros}"
        yield graph.case(name, ("y", None, INT32), expected, wrong=wrong_of(left, right))


def _integer_convolutions() -> Iterator[Case]:
    for left, right, supply, groups in itertools.product(SIGNS, SIGNS, SUPPLIES, (1, 2)):
        graph, x, w = Graph(), extreme(left, 1, 8, 6, 5), extreme(right, 6, 8 // groups, 3, 3, seed=1)
        names = [graph.add("x", x, "fed"), graph.add("w", w, supply)]
        x_zero, w_zero = np.array(9, x.dtype), np.array(4, w.dtype)
        names += [graph.constant("x_zero", x_zero), graph.constant("w_zero", w_zero)]
        graph.nodes.append(node("ConvInteger", names, ["y"], pads=[1] * 4, group=groups))
        expected = convolved(wide(x, x_zero), wide(w, w_zero), 1, groups).astype(np.int32)
        name = f"ConvInteger {left} {right} {supply} groups {groups}"
        # ONNX Runtime multiplies filters by images, in this order.
        yield graph.case(name, ("y", None, INT32), expected, wrong=wrong_of(right, left))


def _quantised_products() -> Iterator[Case]:
    for kinds, supply, some in itertools.product(PAIRS, SUPPLIES, (False, True)):
        left, right = kinds
        graph, a, b = Graph(), extreme(left, 2, 5, 70), extreme(right, 70, 9, seed=1)
        a_zero, y_zero = (np.array(_zeros(left, some=each), a.dtype) for each in (some, not some))
        b_zero = np.array([_zeros(right, some=some)] * 9, b.dtype)
        b_scale = (0.5 ** (1 + np.arange(9) % 3)).astype(np.float32)
        names = [graph.add("a", a, "fed"), graph.constant("a_scale", np.float32(0.5)), graph.constant("a_zero", a_zero)]
        names += [graph.add("b", b, supply), graph.constant("b_scale", b_scale), graph.constant("b_zero", b_zero)]
        names += [graph.constant("y_scale", np.float32(2.0**11)), graph.constant("y_zero", y_zero)]
        graph.nodes.append(node("QLinearMatMul", names, ["y"]))
        sums = wide(a, a_zero) @ wide(b, b_zero)
        expected = rounded(sums * (0.5 * b_scale.astype(np.float64) / 2**11), left, int(y_zero))
        name = f"QLinearMatMul {left} {right} {supply} {'asymmetric' if some else 'symmetric'}"
        yield graph.case(name, ("y", None, KINDS[left]), expected, wrong=wrong_of(left, right))


def _quantised_convolutions() -> Iterator[Case]:
    for kinds, supply, groups in itertools.product(PAIRS, SUPPLIES, (1, 2, 8)):
        left, right = kinds
        graph, x, w = Graph(), extreme(left, 2, 8, 6, 5), extreme(right, 16, 8 // groups, 3, 3, seed=1)
        x_zero, y_zero = np.array(_zeros(left, some=True), x.dtype), np.array(_zeros(left, some=False), x.dtype)
        w_zero = np.full(16, _zeros(right, some=False), w.dtype)
        w_scale = (0.5 ** (1 + np.arange(16) % 3)).astype(np.float32)
        bias = np.arange(-8, 8, dtype=np.int32) * 50
        names = [graph.add("x", x, "fed"), graph.constant("x_scale", np.float32(0.5)), graph.constant("x_zero", x_zero)]
        names += [graph.add("w", w, supply), graph.constant("w_scale", w_scale), graph.constant("w_zero", w_zero)]
        names += [graph.constant("y_scale", np.float32(2.0**11)), graph.constant("y_zero", y_zero)]
        names += [graph.constant("bias", bias)]
        graph.nodes.append(node("QLinearConv", names, ["y"], pads=[1] * 4, group=groups))
        sums = convolved(wide(x, x_zero), wide(w, w_zero[0]), 1, groups) + by_channel(bias, 4, 1)
        factor = by_channel(0.5 * w_scale.astype(np.float64) / 2**11, 4, 1)
        name = f"QLinearConv {left} {right} {supply} groups {groups}"
        yield graph.case(
            name,
            ("y", None, KINDS[left]),
            rounded(sums * factor, left, int(y_zero)),
            wrong=wrong_of(left, right),
        )
