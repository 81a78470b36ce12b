"""Gives pairs of QuantizeLinear and DequantizeLinear one scale where they have one for each channel.

NNCF quantises what depthwise convolutions read by a scale for each channel, while a tensor that is stored in 8 bits has
one range. A depthwise filter reads one channel alone, so it takes the channel's scale, relative to a power of two; the
weights that compute the channel are divided by it, or else the values are (Nagel et al., Data-Free Quantization Through
Weight Equalization and Bias Correction, 2019, section 4.1). The integers stay the same: to divide a value by its scale,
or by the scale's ratio to a power of two and then by that, gives the same number.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from onnx import ModelProto, NodeProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, optional_input
from sartor.onnx_model.quantisation.dequantised_constants import fold_dequantised
from sartor.onnx_model.rewrites.number_types.dequantise_early import dequantises

_CHANNELS = 1
_EIGHT_BITS = frozenset({"int8", "uint8"})
# A larger ratio of scales might make weights subnormal, or infinite.
_MOST_EXPONENT = 60


def share_channel_scales(model: ModelProto) -> None:
    """Change all pairs by channel that only depthwise convolutions with constant weights read, in place."""
    editor = GraphEditor(model.graph)
    if any(_scales(node, editor) is not None for node in editor.nodes if node.op_type == "QuantizeLinear"):
        fold_dequantised(editor)
        pairs = [pair for node in editor.nodes if (pair := _pair(node, editor)) is not None]
        _Sharing(editor).run(pairs)


def saturates(node: NodeProto, steps: Array, ends: tuple[int, int], editor: GraphEditor) -> bool:
    """Whether what a Clip, or a Relu, leaves out is beyond the ends of a range, in steps, once it is rounded to it.

    Division and rounding are monotone, so the range then bounds as the node does.
    """
    if node.domain or node.op_type not in ("Clip", "Relu"):
        return False
    bounds: list[Array | None] = [np.zeros(1), None]
    if node.op_type == "Clip":
        names = [optional_input(node, index) for index in (1, 2)]
        bounds = [editor.constant(name) if name else None for name in names]
        if any(name and bound is None for name, bound in zip(names, bounds, strict=True)):
            return False
    low, high = bounds
    is_below = low is None or bool((np.rint(low.astype(steps.dtype) / steps) <= ends[0]).all())
    return is_below and (high is None or bool((np.rint(high.astype(steps.dtype) / steps) >= ends[1]).all()))


class _Scales(NamedTuple):
    """The parameters of a node that quantises or dequantises by channel.

    Attributes:
        steps: one for each channel.
        zero: the zero point of all channels.
    """

    steps: Array
    zero: Array

    @property
    def shared(self) -> Array:
        """A power of two, near the largest step."""
        return np.asarray(np.exp2(np.rint(np.log2(self.steps.max()))), np.float32)

    @property
    def ratios(self) -> Array:
        """Of the steps to the shared one; exact."""
        return np.asarray(self.steps / self.shared)

    @property
    def ends(self) -> tuple[int, int]:
        """The range's ends, in steps."""
        limits = np.iinfo(self.zero.dtype)
        return limits.min - int(self.zero), limits.max - int(self.zero)


class _Pair(NamedTuple):
    """A QuantizeLinear by channel that only depthwise convolutions read, through nodes that dequantise."""

    node: NodeProto
    readers: list[NodeProto]
    filters: list[NodeProto]
    scales: _Scales


def _pair(node: NodeProto, editor: GraphEditor) -> _Pair | None:
    own = _scales(node, editor) if node.op_type == "QuantizeLinear" else None
    readers = editor.consumers(node.output[0]) if own is not None else []
    if own is None or not all(_restores(reader, own, editor) for reader in readers):
        return None
    given = [name for other in (node, *readers) for name in other.output if editor.is_output(name)]
    filters = [conv for reader in readers for conv in editor.consumers(reader.output[0])]
    if given or not filters or not all(_is_depthwise(conv, len(own.steps), editor) for conv in filters):
        return None
    return _Pair(node, readers, filters, own)


def _scales(node: NodeProto, editor: GraphEditor) -> _Scales | None:
    """The parameters of a node with a scale for each channel; None if it has others, or zero points that differ."""
    steps, zero = editor.constant(node.input[1]), editor.constant(optional_input(node, 2))
    rank, settings = editor.rank(node.input[0]), attributes(node)
    if steps is None or zero is None or not rank or settings.get("block_size"):
        return None
    if steps.ndim != 1 or steps.size < 2 or settings.get("axis", _CHANNELS) % rank != _CHANNELS:
        return None
    if steps.dtype != np.float32 or not np.isfinite(steps).all() or steps.min() <= 0:
        return None
    if zero.dtype.name not in _EIGHT_BITS or (zero != zero.flat[0]).any():
        return None
    own = _Scales(steps, zero.flat[0])
    return own if np.abs(np.log2(own.ratios)).max() <= _MOST_EXPONENT else None


def _restores(reader: NodeProto, own: _Scales, editor: GraphEditor) -> bool:
    """Whether a node dequantises by these parameters."""
    restored = _scales(reader, editor) if dequantises(reader) else None
    return restored is not None and np.array_equal(restored.steps, own.steps) and restored.zero == own.zero


def _is_depthwise(node: NodeProto, channels: int, editor: GraphEditor) -> bool:
    """Whether a node is a convolution with constant filters that read one channel each."""
    weight = _weight(node, editor)
    return weight is not None and weight.shape[1] == 1 and attributes(node).get("group", 1) == channels


def _weight(node: NodeProto, editor: GraphEditor) -> Array | None:
    """The weights of a convolution whose weights and bias are constants in f32."""
    if node.op_type != "Conv" or node.domain:
        return None
    constants = [editor.constant(name) for name in list(node.input)[1:] if name]
    return constants[0] if all(array is not None and array.dtype == np.float32 for array in constants) else None


@dataclass
class _Factors:
    """What a convolution's weights, and its bias, are multiplied by, for each channel of its result."""

    weight: Array = field(default_factory=lambda: np.ones(1))
    bias: Array = field(default_factory=lambda: np.ones(1))


class _Sharing:
    """Changes pairs, and the convolutions before and behind them."""

    def __init__(self, editor: GraphEditor) -> None:
        self._editor = editor
        self._factors: dict[str, _Factors] = {}
        self._replaced: dict[str, list[NodeProto]] = {}
        self._renamed: dict[str, str] = {}

    def run(self, pairs: list[_Pair]) -> None:
        """Change the graph."""
        for pair in pairs:
            self._change(pair)
        for name, factors in self._factors.items():
            node = self._editor.producer(name)
            if node is not None:
                self._replaced[name] = self._scaled(node, factors)
        self._editor.rewrite(lambda node: self._replaced.get(node.output[0]) if node.output else None)
        self._editor.redirect(self._renamed)

    def _change(self, pair: _Pair) -> None:
        ratios = pair.scales.ratios.astype(np.float64)
        for node in pair.filters:
            filters = _weight(node, self._editor)
            count = 0 if filters is None else len(filters) // len(ratios)
            factors = self._factors.setdefault(node.output[0], _Factors())
            factors.weight = factors.weight * np.repeat(ratios, count)
        emit, source, before = Emitter(self._editor, pair.node), pair.node.input[0], self._before(pair)
        if before is None:
            shape = [-1, *(1,) * ((self._editor.rank(source) or 2) - 2)]
            divisors = emit.constant(pair.scales.ratios.reshape(shape), "ratios")
            source = emit("Div", source, divisors, part="divide")
        else:
            factors = self._factors.setdefault(before.output[0], _Factors())
            factors.weight, factors.bias = factors.weight / ratios, factors.bias / ratios
        self._replace(emit, source, pair.scales, pair.node.output[0])
        for reader in pair.readers:
            self._replace(
                Emitter(self._editor, reader), pair.node.output[0], pair.scales, self._other(reader.output[0])
            )

    def _replace(self, emit: Emitter, source: str, scales: _Scales, output: str) -> None:
        """Replace a node that quantises or dequantises by one with the shared step."""
        node = emit.node
        settings = {key: value for key, value in attributes(node).items() if key != "axis"}
        numbers = [emit.constant(scales.shared, "step"), emit.constant(scales.zero, "zero")]
        emit(node.op_type, source, *numbers, output=output, **settings)
        self._replaced[node.output[0]] = emit.nodes

    def _other(self, name: str) -> str:
        """The new name of a tensor whose values are divided."""
        if name not in self._renamed:
            self._renamed[name] = self._editor.fresh(f"{name}/divided")
        return self._renamed[name]

    def _before(self, pair: _Pair) -> NodeProto | None:
        """The convolution that computes what a pair quantises, if only nodes that commute with factors are between.

        A Clip does not, so one that changes no integer is left out.
        """
        name, between = pair.node.input[0], list[NodeProto]()
        while self._editor.only_consumer(name) is not None:
            node = self._editor.producer(name)
            if node is None:
                return None
            if _weight(node, self._editor) is not None:
                self._divide(node, between, pair.scales)
                return node
            if node.domain or not (node.op_type == "Relu" or self._is_saturated(node, pair.scales)):
                return None
            between.append(node)
            name = node.input[0]
        return None

    def _is_saturated(self, node: NodeProto, scales: _Scales) -> bool:
        return saturates(node, scales.steps, scales.ends, self._editor)

    def _divide(self, convolution: NodeProto, between: list[NodeProto], scales: _Scales) -> None:
        """Rename the result of a convolution, and those of the nodes behind it, of which some are left out."""
        self._other(convolution.output[0])
        for node in between:
            name = node.output[0]
            if self._is_saturated(node, scales):
                self._replaced[name], self._renamed[name] = [], node.input[0]
            else:
                emit = Emitter(self._editor, node)
                emit.copy(list(node.input), self._other(name))
                self._replaced[name] = emit.nodes

    def _scaled(self, node: NodeProto, factors: _Factors) -> list[NodeProto]:
        """A convolution with other weights, and another bias."""
        emit, inputs = Emitter(self._editor, node), list(node.input)
        for index, hint, factor in ((1, "weight", factors.weight), (2, "bias", factors.bias)):
            known = self._editor.constant(optional_input(node, index))
            if known is not None:
                shaped = factor.reshape(-1, *(1,) * (known.ndim - 1))
                inputs[index] = emit.constant((known * shaped).astype(known.dtype), hint)
        emit.copy(inputs, self._renamed.get(node.output[0], node.output[0]))
        return emit.nodes
