"""Quantised models as float models whose values have known ranges.

A pair of QuantizeLinear and DequantizeLinear says where in 8 bits a tensor lies. It becomes what ONNX defines it to
compute, in floats: ``scale * clip(round(x / scale))``. The tensor's range is kept beside the model: its values are
multiples of the scale, so that storing them in 8 bits by this range loses nothing. Dequantised weights become float
constants, from which packing finds the same integers again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, optional_input
from sartor.onnx_model.graphs.infer import infer_shapes
from sartor.onnx_model.quantisation.integer_products import take_out_integer_products
from sartor.onnx_model.rewrites.number_types.dequantise_early import MOVING, dequantises, fixed_range
from sartor.onnx_model.rewrites.structure.drop_unused import drop_unused
from sartor.onnx_model.rewrites.windowed.split_groups import split_groups
from sartor.tuning.calibration.quantised_range import QuantisedRange

_QUANTISED = frozenset({"ConvInteger", "DequantizeLinear", "MatMulInteger", "QuantizeLinear"})
# Results are elements of the first operand (for Concat: of any), or zeros, which every range has.
_KEEPING = MOVING | {"Relu"}
# Results lie between the smallest and the largest element of the operand.
_AVERAGING = frozenset({"AveragePool", "GlobalAveragePool", "ReduceMean"})
# Of a step: what is not as far beyond a range is rounded to its end.
_LESS_THAN_HALF = 0.49
_BOUNDS: Mapping[str, tuple[float, float]] = {
    "Relu": (0.0, np.inf),
    "Sigmoid": (0.0, 1.0),
    "Softmax": (0.0, 1.0),
    "Tanh": (-1.0, 1.0),
}


def take_out_quantisation(model: ModelProto) -> dict[str, QuantisedRange]:
    """Change a prepared model in place; ranges by name of the tensors that may be stored in 8 bits.

    What has no fixed range for the whole tensor in 8 bits stays as it is.
    """
    if not any(node.op_type in _QUANTISED for node in model.graph.node):
        return {}
    ranges = take_out_integer_products(model)
    editor = GraphEditor(model.graph)
    editor.rewrite(lambda node: _folded(node, editor))
    ranges |= _Pairs(editor).take_out()
    split_groups(model)
    drop_unused(model)
    infer_shapes(model)
    return ranges


def _folded(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Dequantised constants as constants."""
    values = editor.constant(node.input[0]) if node.op_type == "DequantizeLinear" else None
    scale = editor.constant(node.input[1]) if values is not None else None
    zero = editor.constant(node.input[2]) if optional_input(node, 2) else np.zeros((), np.int8)
    found = attributes(node)
    if values is None or scale is None or zero is None or found.get("block_size") or editor.is_output(node.output[0]):
        return None
    scale, zero = (_aligned(each, values.ndim, found.get("axis", 1)) for each in (scale, zero))
    # The difference is exact, so that the product is rounded once, as where it is computed in the scale's type.
    real = (values.astype(np.float64) - zero.astype(np.float64)) * scale.astype(np.float64)
    editor.set_constant(node.output[0], real.astype(scale.dtype))
    return []


def _limits(own: QuantisedRange, dtype: np.dtype[Any]) -> list[float] | None:
    """Numbers of a type whose quotients by the scale are rounded to a range's ends; None if it has no such.

    Quotients and rounding are monotone, so what lies between them is rounded to what lies between the ends.
    """
    scale = dtype.type(own.scale)
    with np.errstate(all="ignore"):
        found = [dtype.type(end) * scale for end in own.steps]
        exact = all(np.rint(limit / scale) == end for limit, end in zip(found, own.steps, strict=True))
    return [float(limit) for limit in found] if exact else None


def _aligned(numbers: Array, rank: int, axis: int) -> Array:
    """One number, or one for each index of an axis, in a shape that broadcasts."""
    if numbers.size == 1:
        return numbers.reshape(())
    return numbers.reshape([-1 if index == axis % rank else 1 for index in range(rank)])


class _Pairs:
    """Takes pairs out of a graph from its inputs on."""

    def __init__(self, editor: GraphEditor) -> None:
        self._editor = editor
        self._ranges: dict[str, QuantisedRange] = {}
        self._renamed: dict[str, str] = {}
        self._gone: set[str] = set()

    def take_out(self) -> dict[str, QuantisedRange]:
        """Change the graph; ranges of what remains."""
        kept = [each for node in self._editor.nodes for each in self._replacement(node)]
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
        """The range of what a node quantises, if that is all dequantised by the same."""
        if node.op_type != "QuantizeLinear" or self._editor.is_output(node.output[0]):
            return None
        own, readers = fixed_range(node, self._editor), self._editor.consumers(node.output[0])
        same = all(dequantises(each) and fixed_range(each, self._editor) == own for each in readers)
        return own if readers and same else None

    def _rounded(self, node: NodeProto, own: QuantisedRange) -> list[NodeProto]:
        """What takes a pair's place; of numbers that are rounded to its range already nothing."""
        editor, results = self._editor, [each.output[0] for each in self._editor.consumers(node.output[0])]
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
        """Nodes that compute what a pair does. Its scale divides, as ONNX has it: to multiply by the reciprocal would
        move what is next to a tie.

        Operands are clipped rather than integers where both give the same, so that kernels need not see to
        quotients that are infinite.
        """
        source = emit.node.input[0]
        number, scale = self._unclipped(source, own), emit.like(own.scale, source, "scale")
        bounds = own.steps if not self._is_within(source, own) else None
        limits = _limits(own, emit.dtype(source))
        if bounds is not None and limits is not None:
            number = emit("Clip", number, *(emit.like(each, source, "limit") for each in limits), part="saturate")
        number = emit("Round", emit("Div", number, scale), part="round")
        if bounds is not None and limits is None:
            number = emit("Clip", number, *(emit.like(each, source, "limit") for each in bounds), part="saturate")
        emit("Mul", number, scale, part="scale", output=target)

    def _unclipped(self, source: str, own: QuantisedRange) -> str:
        """What a Relu is of that a pair reads alone and repeats: a range that begins at zero."""
        node = self._editor.producer(source)
        is_repeated = node is not None and node.op_type == "Relu" and own.steps[0] == 0
        if node is None or not is_repeated or self._editor.only_consumer(source) is None:
            return source
        return self._name(node.input[0])

    def _name(self, name: str) -> str:
        while name in self._renamed:
            name = self._renamed[name]
        return name

    def _is_within(self, name: str, own: QuantisedRange) -> bool:
        """Whether saturation changes nothing."""
        node = self._editor.producer(name)
        if node is None:
            return False
        low, high = self._bounds(node)
        beyond = _LESS_THAN_HALF * own.scale
        return low >= own.limits[0] - beyond and high <= own.limits[1] + beyond

    def _bounds(self, node: NodeProto) -> tuple[float, float]:
        """Between what a node's results lie."""
        if node.op_type in _AVERAGING:
            before = self._ranges.get(self._name(node.input[0]))
            # Zeros around an image may be averaged too; they lie within every range.
            return before.limits if before is not None else (-np.inf, np.inf)
        return _BOUNDS.get(node.op_type, (-np.inf, np.inf))

    def _inherit(self, node: NodeProto) -> None:
        """What hands on numbers hands on their range."""
        found = set(self._operand_ranges(node))
        own = found.pop() if len(found) == 1 else None
        if own is not None:
            self._ranges |= {name: own for name in node.output[:1] if name}

    def _operand_ranges(self, node: NodeProto) -> Iterator[QuantisedRange | None]:
        for name in node.input if node.op_type == "Concat" else node.input[:1]:
            yield self._ranges.get(self._name(name))
