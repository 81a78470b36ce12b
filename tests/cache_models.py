"""Tiny decoders whose caches grow, as exporters write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

POSITIONS = 24
"""Rows of the table of positions."""


@dataclass(frozen=True)
class Decoder:
    """Sizes of a decoder.

    Attributes:
        layers: number of attentions.
        heads, groups: number of heads of queries, and of keys.
        width: of a head.
        words: number of tokens that it knows.
        positions: rows of the table of positions.
        has_mask: whether it takes a mask of all positions.
        is_fused: whether its attentions are ONNX Runtime's GroupQueryAttention, which read lengths from the mask.
        is_standard: whether its attentions are ONNX's Attention, of opset 23.
        is_causal: whether positions see no later ones of their call, where attentions are not fused.
        counts: whether it computes the positions of tokens from the length of its caches.
        branches: whether what goes into its layers, and what comes out, is chosen by values.
    """

    layers: int = 2
    heads: int = 4
    groups: int = 2
    width: int = 8
    words: int = 11
    positions: int = POSITIONS
    has_mask: bool = False
    is_fused: bool = False
    is_standard: bool = False
    is_causal: bool = False
    branches: bool = False
    counts: bool = False

    def model(self) -> ModelProto:
        """The model as Optimum exports it: keys and values are appended by Concat, and repeated for heads; or as ONNX
        Runtime's model builder makes it."""
        return _Builder(self).model()


class _Builder:
    def __init__(self, decoder: Decoder) -> None:
        self.decoder, self._random = decoder, np.random.default_rng(0)
        self._nodes: list[NodeProto] = []
        self._held: dict[str, np.ndarray] = {}
        self._depth = decoder.heads * decoder.width

    def __call__(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        name = output or f"{operator.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, inputs, [name], name=f"n{len(self._nodes)}", **attributes))
        return name

    def numbers(self, *values: int) -> str:
        return self.hold(np.array(values, np.int64))

    def hold(self, array: np.ndarray) -> str:
        name = f"c{len(self._held)}"
        self._held[name] = array
        return name

    def weight(self, *shape: int) -> str:
        return self.hold((self._random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32))

    def model(self) -> ModelProto:
        size = self.decoder
        words, places = self.weight(size.words, self._depth), self.weight(size.positions, self._depth)
        positions = self._counted() if size.counts else "position_ids"
        x = self("Add", self("Gather", words, "input_ids"), self("Gather", places, positions))
        x = self._chosen(x) if size.branches else x
        hidden = [*([self._hidden()] if size.has_mask else []), *([self._later()] if size.is_causal else [])]
        plain = self._standard if size.is_standard else partial(self._attention, hidden=hidden)
        attention = self._fused() if size.is_fused else plain
        for layer in range(size.layers):
            x = self("Add", x, attention(x, layer))
        x = self._chosen(x) if size.branches else x
        self("MatMul", x, self.weight(self._depth, size.words), output="logits")
        graph = helper.make_graph(
            self._nodes,
            "decoder",
            [*_values(self._inputs(), TensorProto.INT64), *_values(self._caches("past_key_values", "past"))],
            [*_values({"logits": ("batch", "sequence", size.words)}), *_values(self._caches("present", "total"))],
            [numpy_helper.from_array(array, name) for name, array in self._held.items()],
        )
        opsets = [
            helper.make_opsetid("", 23 if size.is_standard else 17),
            *([helper.make_opsetid("com.microsoft", 1)] * size.is_fused),
        ]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
        onnx.checker.check_model(model)
        return model

    def _chosen(self, x: str) -> str:
        """Their tangents where numbers are positive in the mean, otherwise the negative numbers."""
        is_positive = self("Greater", self("ReduceMean", x, keepdims=0), self.hold(np.array(0, np.float32)))
        branches: dict[str, Any] = {}
        for branch, operator in (("then_branch", "Tanh"), ("else_branch", "Neg")):
            name = f"{operator.lower()}_of_{x}"
            body = [helper.make_node(operator, [x], [name], name=name)]
            (given,) = _values({name: ("batch", "sequence", self._depth)})
            branches[branch] = helper.make_graph(body, branch, [], [given])
        return self("If", is_positive, **branches)

    def _inputs(self) -> dict[str, tuple[int | str, ...]]:
        names = ("input_ids",) if self.decoder.counts else ("input_ids", "position_ids")
        found: dict[str, tuple[int | str, ...]] = dict.fromkeys(names, ("batch", "sequence"))
        return {**found, "attention_mask": ("batch", "total")} if self.decoder.has_mask else found

    def _caches(self, prefix: str, length: str) -> dict[str, tuple[int | str, ...]]:
        shape = ("batch", self.decoder.groups, length, self.decoder.width)
        return {f"{prefix}.{layer}.{kind}": shape for layer in range(self.decoder.layers) for kind in ("key", "value")}

    def _hidden(self) -> str:
        """What is added to scores: much less than they are where the mask is zero."""
        mask = self("Unsqueeze", self("Cast", "attention_mask", to=1), self.numbers(1, 2))
        shown = self("Sub", mask, self.hold(np.array(1, np.float32)))
        return self("Mul", shown, self.hold(np.array(1e4, np.float32)))

    def _lengths(self) -> tuple[str, str]:
        """The number of positions before the call, and with its own."""
        past, new = (
            self("Squeeze", self("Gather", self("Shape", name), self.numbers(place)), self.numbers(0))
            for name, place in (("past_key_values.0.key", 2), ("input_ids", 1))
        )
        return past, self("Add", past, new)

    def _counted(self) -> str:
        """The places of the call's tokens."""
        return self("Range", *self._lengths(), self.hold(np.array(1, np.int64)))

    def _later(self) -> str:
        """What hides the positions behind a call's own, as PyTorch's exporters compute it."""
        none, one = (self.hold(np.array(each, np.int64)) for each in (0, 1))
        past, total = self._lengths()
        own = self("Unsqueeze", self("Range", past, total, one), self.numbers(1))
        is_later = self("Greater", self("Range", none, total, one), own)
        shown, hidden = (self.hold(np.array(each, np.float32)) for each in (0, -1e4))
        return self("Where", is_later, hidden, shown)

    def _fused(self) -> Callable[[str, int], str]:
        """An attention with rotary embedding, packed operands in every other layer, and lengths that the mask tells."""
        size = self.decoder
        total = self("Cast", self("Gather", self("Shape", "attention_mask"), self.numbers(1)), to=6)
        lengths = self("Sub", self("ReduceSum", "attention_mask", self.numbers(1)), self.numbers(1))
        last = self("Cast", self("Squeeze", lengths, self.numbers(1)), to=6)
        angles = np.outer(np.arange(size.positions), 30.0 ** -np.linspace(0, 1, size.width // 2))
        tables = [self.hold(each.astype(np.float32)) for each in (np.cos(angles), np.sin(angles))]

        def attention(x: str, layer: int) -> str:
            counts = (size.heads, size.groups, size.groups)
            widths = [sum(counts)] if layer % 2 else [*counts]
            operands = [self("MatMul", x, self.weight(self._depth, each * size.width)) for each in widths]
            caches = [f"past_key_values.{layer}.{kind}" for kind in ("key", "value")]
            presents = [f"present.{layer}.{kind}" for kind in ("key", "value")]
            inputs = [*operands, *[""] * (3 - len(operands)), *caches, last, total, *tables]
            name = f"attention_{layer}"
            self._nodes.append(
                helper.make_node(
                    "GroupQueryAttention",
                    inputs,
                    [name, *presents],
                    name=name,
                    domain="com.microsoft",
                    do_rotary=1,
                    num_heads=size.heads,
                    kv_num_heads=size.groups,
                )
            )
            return self("MatMul", name, self.weight(self._depth, self._depth))

        return attention

    def _attention(self, x: str, layer: int, hidden: Sequence[str]) -> str:
        size = self.decoder
        counts = {"query": size.heads, "key": size.groups, "value": size.groups}
        query, key, value = (self._heads(x, count) for count in counts.values())
        keys = self("Concat", f"past_key_values.{layer}.key", key, output=f"present.{layer}.key", axis=2)
        values = self("Concat", f"past_key_values.{layer}.value", value, output=f"present.{layer}.value", axis=-2)
        turned = self("Transpose", self._repeated(keys), perm=[0, 1, 3, 2])
        scores = self("Div", self("MatMul", query, turned), self.hold(np.array(np.sqrt(size.width), np.float32)))
        for each in hidden:
            scores = self("Add", scores, each)
        shares = self("Softmax", scores, axis=-1)
        context = self("Transpose", self("MatMul", shares, self._repeated(values)), perm=[0, 2, 1, 3])
        joined = self("Reshape", context, self.numbers(0, 0, self._depth))
        return self("MatMul", joined, self.weight(self._depth, self._depth))

    def _standard(self, x: str, layer: int) -> str:
        size = self.decoder
        operands = [self("MatMul", x, self.weight(self._depth, count * size.width)) for count in self._counts]
        caches, presents = (
            [f"{name}.{layer}.{kind}" for kind in ("key", "value")] for name in ("past_key_values", "present")
        )
        name = f"attention_{layer}"
        heads: dict[str, Any] = {"q_num_heads": size.heads, "kv_num_heads": size.groups, "is_causal": 1}
        self._nodes.append(
            helper.make_node("Attention", [*operands, "", *caches], [name, *presents], name=name, **heads)
        )
        return self("MatMul", name, self.weight(self._depth, self._depth))

    @property
    def _counts(self) -> tuple[int, int, int]:
        return self.decoder.heads, self.decoder.groups, self.decoder.groups

    def _heads(self, x: str, count: int) -> str:
        projected = self("MatMul", x, self.weight(self._depth, count * self.decoder.width))
        split = self("Reshape", projected, self.numbers(0, 0, count, self.decoder.width))
        return self("Transpose", split, perm=[0, 2, 1, 3])

    def _repeated(self, cache: str) -> str:
        size = self.decoder
        if size.heads == size.groups:
            return cache
        raised = self("Unsqueeze", cache, self.numbers(2))
        spread = self("Expand", raised, self.numbers(1, 1, size.heads // size.groups, 1, 1))
        length = self("Gather", self("Shape", cache), self.numbers(2))
        shape = self("Concat", self.numbers(-1, size.heads), length, self.numbers(size.width), axis=0)
        return self("Reshape", spread, shape)


def _values(shapes: Mapping[str, tuple[int | str, ...]], kind: int = TensorProto.FLOAT) -> list[ValueInfoProto]:
    return [helper.make_tensor_value_info(name, kind, shape) for name, shape in shapes.items()]


def halved(model: ModelProto) -> ModelProto:
    """A decoder with all its floats in float16, in place."""
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            array = numpy_helper.to_array(tensor).astype(np.float16)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for value in (*model.graph.input, *model.graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    for attribute in [each for node in model.graph.node for each in node.attribute if each.name == "to"]:
        attribute.i = TensorProto.FLOAT16 if attribute.i == TensorProto.FLOAT else attribute.i
    return model
