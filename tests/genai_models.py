"""Decoders as ONNX Runtime GenAI's model builder makes them: rotary embedding and caches inside GroupQueryAttention,
sums and norms in one node, lengths from the mask alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

_MICROSOFT = "com.microsoft"


@dataclass(frozen=True)
class BuiltDecoder:
    """Sizes of a decoder.

    Attributes:
        layers: number of attentions.
        heads, groups: number of heads of queries, and of keys.
        width: of a head.
        words: number of tokens that it knows.
        positions: rows of the tables of rotary embedding.
        has_codes: whether caches are in 8 bits, with a scale for each channel.
    """

    layers: int = 2
    heads: int = 4
    groups: int = 2
    width: int = 16
    words: int = 50
    positions: int = 64
    has_codes: bool = False

    @property
    def depth(self) -> int:
        """Numbers of a token between layers."""
        return self.heads * self.width

    def model(self) -> ModelProto:
        """The model."""
        return _Builder(self).model()


class _Builder:
    def __init__(self, decoder: BuiltDecoder) -> None:
        self._decoder, self._random = decoder, np.random.default_rng(0)
        self._nodes: list[NodeProto] = []
        self._held: list[TensorProto] = []

    def model(self) -> ModelProto:
        size = self._decoder
        x = self._add("Gather", self._hold(self._random.standard_normal((size.words, size.depth))), "input_ids")
        lengths = self._lengths()
        normed = self._add("SimplifiedLayerNormalization", x, self._norm(), axis=-1, epsilon=1e-5)
        for layer in range(size.layers):
            normed, x = self._summed(x, self._attention(normed, layer, lengths))
            normed, x = self._summed(x, self._gated(normed))
        self._add("MatMul", normed, self._weight(size.depth, size.words), output="logits")
        graph = helper.make_graph(self._nodes, "genai", self._inputs(), self._outputs(), self._held)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(_MICROSOFT, 1)]
        # ONNX's checker refuses the norm, an operator of ONNX Runtime's in ONNX's domain.
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def _add(self, operator: str, *inputs: str, output: str = "", domain: str = "", **attributes: Any) -> str:
        name = output or f"{operator.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, inputs, [name], name=name, domain=domain, **attributes))
        return name

    def _hold(self, array: np.ndarray, kind: type[np.generic] = np.float32) -> str:
        self._held.append(numpy_helper.from_array(array.astype(kind), f"held_{len(self._held)}"))
        return self._held[-1].name

    def _numbers(self, *values: int) -> str:
        return self._hold(np.array(values), np.int64)

    def _weight(self, rows: int, columns: int) -> str:
        return self._hold(self._random.standard_normal((rows, columns)) / np.sqrt(rows))

    def _norm(self) -> str:
        return self._hold(self._random.uniform(0.7, 1.3, self._decoder.depth))

    def _summed(self, x: str, branch: str) -> tuple[str, str]:
        """The norm of a sum, and the sum."""
        name = f"sum_{len(self._nodes)}"
        node = helper.make_node(
            "SkipSimplifiedLayerNormalization",
            [x, branch, self._norm()],
            [f"{name}_normed", "", "", name],
            name=name,
            domain=_MICROSOFT,
            epsilon=1e-5,
        )
        self._nodes.append(node)
        return f"{name}_normed", name

    def _gated(self, x: str) -> str:
        depth = self._decoder.depth
        gate = self._add("MatMul", x, self._weight(depth, 2 * depth))
        gate = self._add("Mul", gate, self._add("Sigmoid", gate))
        up = self._add("MatMul", x, self._weight(depth, 2 * depth))
        return self._add("MatMul", self._add("Mul", gate, up), self._weight(2 * depth, depth))

    def _lengths(self) -> list[str]:
        """The place of the last token, the number of positions, and tables of rotary embedding."""
        size = self._decoder
        total = self._add("Gather", self._add("Shape", "attention_mask"), self._hold(np.array(1), np.int64), axis=0)
        seen = self._add("ReduceSum", "attention_mask", self._numbers(1))
        last = self._add("Sub", seen, self._numbers(1))
        angles = np.outer(np.arange(size.positions), 1e4 ** -np.linspace(0, 1, size.width // 2, endpoint=False))
        kinds = [self._add("Cast", name, to=TensorProto.INT32) for name in (last, total)]
        return [*kinds, *(self._hold(table) for table in (np.cos(angles), np.sin(angles)))]

    def _attention(self, x: str, layer: int, lengths: list[str]) -> str:
        size = self._decoder
        counts = size.heads + 2 * size.groups
        packed = self._add("MatMul", x, self._weight(size.depth, counts * size.width))
        caches = [f"past_key_values.{layer}.{kind}" for kind in ("key", "value")]
        presents = [f"present.{layer}.{kind}" for kind in ("key", "value")]
        name, codes = f"attention_{layer}", dict[str, Any]()
        operands = [packed, "", "", *caches, *lengths]
        if size.has_codes:
            scales = [self._hold(np.linspace(0.01, 0.03, size.groups * size.width)) for _ in caches]
            operands += ["", "", "", *scales]
            codes = {"k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL", "kv_cache_bit_width": 8}
        node = helper.make_node(
            "GroupQueryAttention",
            operands,
            [name, *presents],
            name=name,
            domain=_MICROSOFT,
            num_heads=size.heads,
            kv_num_heads=size.groups,
            do_rotary=1,
            **codes,
        )
        self._nodes.append(node)
        return self._add("MatMul", name, self._weight(size.depth, size.depth))

    def _inputs(self) -> list[ValueInfoProto]:
        tokens = ("input_ids", ["batch_size", "sequence_length"]), ("attention_mask", ["batch_size", "total"])
        whole = [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name, shape in tokens]
        return [*whole, *self._caches("past_key_values", "past")]

    def _outputs(self) -> list[ValueInfoProto]:
        dims: list[str | int | None] = ["batch_size", "sequence_length", self._decoder.words]
        logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, dims)
        return [logits, *self._caches("present", "total")]

    def _caches(self, prefix: str, length: str) -> list[ValueInfoProto]:
        size, kind = self._decoder, TensorProto.INT8 if self._decoder.has_codes else TensorProto.FLOAT
        dims: list[str | int | None] = ["batch_size", size.groups, length, size.width]
        names = [f"{prefix}.{layer}.{each}" for layer in range(size.layers) for each in ("key", "value")]
        return [helper.make_tensor_value_info(name, kind, dims) for name in names]
