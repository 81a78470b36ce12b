"""Converts quantised models to float models whose values have known ranges.

A pair of QuantizeLinear and DequantizeLinear defines the 8-bit range of a tensor. It is replaced by its definition in
floats: ``scale * clip(round(x / scale))``. The tensor's range is returned beside the model. As the values are multiples
of the scale, they can be stored in 8 bits by this range without loss. Dequantised weights become float constants,
from which packing computes the same integers again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor
from sartor.onnx_model.graphs.infer import infer_shapes
from sartor.onnx_model.quantisation.channel_scales import saturates, share_channel_scales
from sartor.onnx_model.quantisation.dequantised_constants import fold_dequantised
from sartor.onnx_model.quantisation.integer_products import take_out_integer_products
from sartor.onnx_model.rewrites.number_types.dequantise_early import MOVED_BEHIND, dequantises, fixed_range
from sartor.onnx_model.rewrites.structure.drop_unused import drop_unused
from sartor.onnx_model.rewrites.windowed.split_groups import split_groups
from sartor.tuning.calibration.quantised_range import QuantisedRange

_QUANTISED = frozenset({"ConvInteger", "DequantizeLinear", "MatMulInteger", "QuantizeLinear"})
# Operators whose results are elements of the first operand (for Concat: of any) or zeros, which every range contains.
_KEEPING = MOVED_BEHIND | {"Relu"}
# Operators whose results lie between the smallest and the largest element of the operand.
_AVERAGING = frozenset({"AveragePool", "GlobalAveragePool", "ReduceMean"})
# As a fraction of a step. A value that is at most this far outside a range is rounded to the range's end.
_LESS_THAN_HALF = 0.49
_BOUNDS: Mapping[str, tuple[float, float]] = {
    "Relu": (0.0, np.inf),
    "Sigmoid": (0.0, 1.0),
    "Softmax": (0.0, 1.0),
    "Tanh": (-1.0, 1.0),
}


def take_out_quantisation(model: ModelProto) -> dict[str, QuantisedRange]:
    """Convert a prepared model in place; returns the range of each tensor that may be stored in 8 bits, by name.

    Quantisation without one constant 8-bit range for the whole tensor is not changed.
    """
    if not any(node.op_type in _QUANTISED for node in model.graph.node):
        return {}
    share_channel_scales(model)
    ranges = take_out_integer_products(model)
    editor = GraphEditor(model.graph)
    fold_dequantised(editor)
    ranges |= _Pairs(editor).take_out()
    split_groups(model)
    drop_unused(model)
    infer_shapes(model)
    return ranges


def _limits(own: QuantisedRange, dtype: np.dtype[Any]) -> list[float] | None:
    """Numbers of ``dtype`` whose quotients by the scale round to the range's ends; None if there are none.

    Division and rounding are monotone, so numbers between these limits round to steps within the range.
    """
    scale = dtype.type(own.scale)
    with np.errstate(all="ignore"):
        limits = [dtype.type(end) * scale for end in own.steps]
        exact = all(np.rint(limit / scale) == end for limit, end in zip(limits, own.steps, strict=True))
    return [float(limit) for limit in limits] if exact else None


class _Pairs:
    """Replaces pairs of QuantizeLinear and DequantizeLinear in a graph, in topological order."""

    def __init__(self, editor: GraphEditor) -> None:
        self._editor = editor
        self._ranges: dict[str, QuantisedRange] = {}
        self._renamed: dict[str, str] = {}
        self._gone: set[str] = set()

    def take_out(self) -> dict[str, QuantisedRange]:
        """Change the graph; returns ranges of tensors by name."""
        kept = [replaced for node in self._editor.nodes for replaced in self._replacement(node)]
        self._editor.set_nodes(kept)
        self._editor.redirect(self._renamed)
        return self._ranges

    def _replacement(self, node: NodeProto) -> list[NodeProto]:
        if node.output[0] in self._gone:
            return []
        pair = self._pair(node)
        if pair is not None:
            return self._rounded(node, pair)
        if dequantises(node) and (own := fixed_range(node, self._editor)) is not None:
            self._ranges[node.output[0]] = own
        elif node.op_type in _KEEPING and not node.domain:
            self._inherit(node)
        return [node]

    def _pair(self, node: NodeProto) -> QuantisedRange | None:
        """The range of a QuantizeLinear whose readers all dequantise with the same parameters, or else None."""
        if node.op_type != "QuantizeLinear" or self._editor.is_output(node.output[0]):
            return None
        own, readers = fixed_range(node, self._editor), self._editor.consumers(node.output[0])
        same = all(dequantises(reader) and fixed_range(reader, self._editor) == own for reader in readers)
        return own if readers and same else None

    def _rounded(self, node: NodeProto, own: QuantisedRange) -> list[NodeProto]:
        """The nodes that replace a pair; none if its operand was already rounded to the same range."""
        editor, results = self._editor, [consumer.output[0] for consumer in self._editor.consumers(node.output[0])]
        self._gone.update(results)
        given = [name for name in results if editor.is_output(name)]
        source = self._name(node.input[0])
        if not given and self._ranges.get(source) == own:
            self._renamed.update((name, source) for name in results)
            return []
        emit, target = Emitter(editor, node), given[0] if given else results[0]
        self._emit(emit, own, target)
        self._ranges[target] = own
        for name in results:
            if name != target and editor.is_output(name):
                emit("Identity", target, part="copy", output=name)
            elif name != target:
                self._renamed[name] = target
        return emit.nodes

    def _emit(self, emit: Emitter, own: QuantisedRange, target: str) -> None:
        """Emit a pair in floats. It divides by the scale, as ONNX defines it: a product with the reciprocal would round
        some values next to a tie differently.

        The operand is clipped, rather than the rounded quotient, if both give the same. Then kernels need not handle
        infinite quotients.
        """
        source = emit.node.input[0]
        number, scale = self._unclipped(source, own), emit.like(own.scale, source, "scale")
        bounds = own.steps if not self._is_within(source, own) else None
        limits = _limits(own, emit.dtype(source))
        if bounds is not None and limits is not None:
            number = emit("Clip", number, *(emit.like(limit, source, "limit") for limit in limits), part="saturate")
        number = emit("Round", emit("Div", number, scale), part="round")
        if bounds is not None and limits is None:
            number = emit("Clip", number, *(emit.like(bound, source, "limit") for bound in bounds), part="saturate")
        emit("Mul", number, scale, part="scale", output=target)

    def _unclipped(self, source: str, own: QuantisedRange) -> str:
        """The operand of a Relu or Clip that only the pair reads, if clipping to the range does the same."""
        node, scale = self._editor.producer(source), np.asarray(own.scale, np.float32)
        if node is None or self._editor.only_consumer(source) is None:
            return source
        return self._name(node.input[0]) if saturates(node, scale, own.steps, self._editor) else source

    def _name(self, name: str) -> str:
        while name in self._renamed:
            name = self._renamed[name]
        return name

    def _is_within(self, name: str, own: QuantisedRange) -> bool:
        """Whether the value's bounds lie within the range, so that it need not be clipped."""
        node = self._editor.producer(name)
        if node is None:
            return False
        low, high = self._bounds(node)
        beyond = _LESS_THAN_HALF * own.scale
        return low >= own.limits[0] - beyond and high <= own.limits[1] + beyond

    def _bounds(self, node: NodeProto) -> tuple[float, float]:
        """Lower and upper bound of a node's results."""
        if node.op_type in _AVERAGING:
            before = self._ranges.get(self._name(node.input[0]))
            # An average may include the zeros of padding; every range contains zero.
            return before.limits if before is not None else (-np.inf, np.inf)
        return _BOUNDS.get(node.op_type, (-np.inf, np.inf))

    def _inherit(self, node: NodeProto) -> None:
        """Give the result of a node that moves elements the range of its operands, if they have the same."""
        ranges = set(self._operand_ranges(node))
        own = ranges.pop() if len(ranges) == 1 else None
        if own is not None:
            self._ranges |= {name: own for name in node.output[:1] if name}

    def _operand_ranges(self, node: NodeProto) -> Iterator[QuantisedRange | None]:
        for name in node.input if node.op_type == "Concat" else node.input[:1]:
            yield self._ranges.get(self._name(name))
