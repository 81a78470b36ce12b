"""ONNX nodes that round a tensor to the values of a narrower element type and keep its own type (fake quantisation)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from sartor.codegen.ir.block_packing import BITS, block_of, rounded_name
from sartor.codegen.ir.encoding import BlockEncoding
from sartor.codegen.ir.variants.rounding import FACTOR, LEAST_STEP, LEVELS, MOST_LEVELS, REACH, ROWS, STORED, WEIGHTS
from sartor.frontend.layer_tensors import ENCODED
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes
from sartor.onnx_model.operator_types.alike import BY_WEIGHTS
from sartor.tuning.calibration.quantised_range import QuantisedRange

BF16, F16, I8, TF32 = "bf16", "f16", "i8", "tf32"
_CASTS = {BF16: TensorProto.BFLOAT16, F16: TensorProto.FLOAT16}
_REALS = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16})
_SYMMETRIC_MOST = 127
_FACTORS = dict.fromkeys(sorted(BY_WEIGHTS), (0, 1))
# With f32's 24 significant bits, subtracting what is 2^13 times as large leaves the 11 of TF32.
_TF32_SPLITTER, _TF32_MOST = np.float32(2**13 + 1), np.float32(2.0**114)
# Version from which reductions take their axes as an input.
_AXES_ARE_INPUTS = 18


@dataclass
class FakeQuantiser:
    """Collects the nodes of one body that round tensors to one element type.

    Attributes:
        editor: the model's graph.
        dtype: ``tf32``, ``bf16``, ``f16``, ``i8``, ``STORED``, ``WEIGHTS``, ``ROWS``,
            ``FACTOR`` or a type of weights in blocks of 4 bits.
        ranges: the 8-bit range of activations, by tensor.
        prefix: of all new names.
        opset: version of ONNX's operators in the model.
        stored: what weights are rounded to in blocks, by ``rounded_name``; others are rounded to nearest.
    """

    editor: GraphEditor
    dtype: str
    ranges: Mapping[str, QuantisedRange]
    prefix: str
    opset: int
    stored: Mapping[str, Array] | None = None
    nodes: list[NodeProto] = field(default_factory=list)
    constants: list[TensorProto] = field(default_factory=list)

    @property
    def rounds_products_only(self) -> bool:
        """Whether values keep their type in memory, and only what is multiplied is rounded."""
        return self.dtype == TF32

    def activation(self, tensor: str, value: str) -> str:
        """Round ``value`` by the range of ``tensor``; returns the name of the rounded value. ``ROWS``, ``FACTOR``
        and ``WEIGHTS`` leave it."""
        if self.dtype in (ROWS, FACTOR, WEIGHTS) or block_of(self.dtype):
            return value
        if self.dtype in (I8, STORED):
            return self.factor(tensor, value)
        return self._as_float32(tensor, value, self._cast)

    def weight(self, tensor: str, axis: int) -> str:
        """Round a constant, to 8 bits symmetrically with a scale for each index of ``axis``; ``STORED`` leaves it."""
        if self.dtype == STORED:
            return tensor
        if block := block_of(self.dtype):
            return self._in_blocks(tensor, axis, block)
        if self.dtype in (ROWS, FACTOR, WEIGHTS):
            return self._as_float32(tensor, tensor, lambda name: self._rounded_weight(name, tensor, axis))
        if self.dtype == I8:
            scales = channel_scales(self.editor.constant(tensor), axis)
            zeros = np.zeros(scales.shape, np.int8)
            return self._as_float32(tensor, tensor, lambda name: self._quantised(name, scales, zeros, axis))
        return self._as_float32(tensor, tensor, self._cast)

    def _in_blocks(self, tensor: str, axis: int, block: int) -> str:
        """The weight of a product as ``codegen/ir/block_packing.py`` rounds it; others are left as they are."""
        values = self.editor.constant(tensor)
        if values is None or values.ndim != 2:
            return tensor
        name = rounded_name(tensor, block)
        if self.stored is not None and name in self.stored:
            return self._constant(np.ascontiguousarray(self.stored[name]))
        matrix = values if axis == 1 else values.T
        of = BlockEncoding(BITS, block, *matrix.shape)
        rounded = of.decoded(*of.rounded(matrix.astype(np.float32))).astype(values.dtype)
        return self._constant(np.ascontiguousarray(rounded if axis == 1 else rounded.T))

    def _rounded_weight(self, value: str, tensor: str, axis: int) -> str:
        """Round a weight without DequantizeLinear: ONNX Runtime would quantise what is multiplied by its result."""
        scales = channel_scales(self.editor.constant(tensor), axis)
        others = [index for index in range(self.editor.rank(tensor) or 0) if index != axis]
        factors = self._constant(np.expand_dims(scales, others))
        return self.node("Mul", self.node("Round", self.node("Div", value, factors)), factors)

    def factor(self, tensor: str, value: str) -> str:
        """Round ``value`` to 8 bits by the range of ``tensor``."""
        form = self.ranges[tensor]
        scale, zero = np.float32(form.scale), np.asarray(form.zero_point, form.dtype)
        return self._as_float32(tensor, value, lambda name: self._quantised(name, scale, zero))

    def rows(self, tensor: str, value: str) -> str:
        """Round ``value`` to 256 levels of a range of its own for each row, and outliers to the same step."""
        return self._as_float32(tensor, value, self._by_rows)

    def _by_rows(self, value: str) -> str:
        """As ``codegen/kernels/vector/row_scales.py`` rounds."""
        none = self._number(0.0)
        least = self.node("Min", self._of_rows("ReduceMin", value), none)
        most = self.node("Max", self._of_rows("ReduceMax", value), none)
        bound = self._bound(value, none)
        low = self.node("Max", least, self.node("Neg", bound))
        span = self.node("Sub", self.node("Min", most, bound), low)
        whole = self.node("Mul", self.node("Sub", most, least), self._number(1 / MOST_LEVELS))
        step = self.node("Max", self.node("Mul", span, self._number(1 / LEVELS)), whole, self._number(LEAST_STEP))
        numbers = self.node("Round", self.node("Div", self.node("Sub", value, low), step))
        return self.node("Add", self.node("Mul", numbers, step), low)

    def blocks(self, tensor: str, value: str, depth: int, size: int) -> str:
        """Round ``value``, rows of ``depth`` numbers, to 127 steps of the largest number of each block of ``size``."""
        before = [0] * ((self.editor.rank(tensor) or 1) - 1)
        return self._as_float32(tensor, value, lambda name: self._by_blocks(name, before, depth, size))

    def _by_blocks(self, value: str, before: Sequence[int], depth: int, size: int) -> str:
        """As ``codegen/kernels/encoded/rounded_rows.py`` rounds; ``before`` has a zero for each dimension before rows,
        which Reshape keeps."""
        filled = -(-depth // size) * size
        if filled > depth:
            value = self.node("Pad", value, self._integers(*before, 0, *before, filled - depth))
        split = self.node("Reshape", value, self._integers(*before, filled // size, size))
        step = self.node("Mul", self._of_rows("ReduceMax", self.node("Abs", split)), self._number(1 / _SYMMETRIC_MOST))
        step = self.node("Max", step, self._number(LEAST_STEP))
        rounded = self.node("Mul", self.node("Round", self.node("Div", split, step)), step)
        joined = self.node("Reshape", rounded, self._integers(*before, filled))
        if filled == depth:
            return joined
        return self.node("Slice", joined, self._integers(0), self._integers(depth), self._integers(-1))

    def _integers(self, *numbers: int) -> str:
        return self._constant(np.array(numbers, np.int64))

    def _bound(self, value: str, none: str) -> str:
        """The size from which a row's numbers are outliers."""
        sizes, reach = self.node("Abs", value), self._number(REACH)
        first = self.node("Mul", self._of_rows("ReduceMean", sizes), reach)
        kept = self.node("Where", self.node("LessOrEqual", sizes, first), sizes, none)
        return self.node("Mul", self._of_rows("ReduceMean", kept), reach)

    def _number(self, value: float) -> str:
        return self._constant(np.array(value, np.float32))

    def _of_rows(self, operator: str, value: str) -> str:
        if self.opset < _AXES_ARE_INPUTS:
            return self.node(operator, value, axes=[-1])
        return self.node(operator, value, self._constant(np.array([-1], np.int64)))

    def node(self, operator: str, *inputs: str, **values: Any) -> str:
        """Add a node with attributes; returns the name of its output."""
        output = f"{self.prefix}value{len(self.nodes)}"
        name = f"{self.prefix}node{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [output], name=name, **values))
        return output

    def _as_float32(self, tensor: str, value: str, rounded: Callable[[str], str]) -> str:
        """Cast to float32, apply ``rounded``, and cast back; returns the name of the result."""
        element = self.editor.element_type(tensor)
        if element == TensorProto.FLOAT:
            return rounded(value)
        return self.node("Cast", rounded(self.node("Cast", value, to=TensorProto.FLOAT)), to=element)

    def _cast(self, value: str) -> str:
        if self.dtype == TF32:
            return self._as_tf32(value)
        return self.node("Cast", self.node("Cast", value, to=_CASTS[self.dtype]), to=TensorProto.FLOAT)

    def _as_tf32(self, value: str) -> str:
        """Cut the mantissa by sums and differences that f32 rounds (Dekker 1971, section 5; Veltkamp's splitting)."""
        splitter, most = (self._constant(np.asarray(number)) for number in (_TF32_SPLITTER, _TF32_MOST))
        product = self.node("Mul", value, splitter)
        rounded = self.node("Sub", product, self.node("Sub", product, value))
        # The product of larger numbers would overflow; their rounding is left out.
        return self.node("Where", self.node("Greater", self.node("Abs", value), most), value, rounded)

    def _quantised(self, value: str, scale: Array | np.float32, zero: Array, axis: int = 0) -> str:
        parameters = [self._constant(np.asarray(array)) for array in (scale, zero)]
        stored = self.node("QuantizeLinear", value, *parameters, axis=axis)
        return self.node("DequantizeLinear", stored, *parameters, axis=axis)

    def _constant(self, array: Array) -> str:
        name = f"{self.prefix}constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name


def holds_reals(editor: GraphEditor, tensor: str) -> bool:
    """Whether a tensor holds floating-point numbers, which can be rounded."""
    return editor.element_type(tensor) in _REALS


def channel_scales(weight: Array | None, axis: int) -> Array:
    """The symmetric 8-bit scale of each index of ``axis`` (Krishnamoorthi 2018, section 3.1.1)."""
    if weight is None:
        raise ValueError("only constants have scales per channel")
    others = tuple(index for index in range(weight.ndim) if index != axis)
    largest = np.max(np.abs(weight.astype(np.float32)), axis=others, initial=0.0)
    return np.where(largest > 0, np.maximum(largest / _SYMMETRIC_MOST, np.finfo(np.float32).tiny), 1).astype(np.float32)


def rounded_weights(node: NodeProto, editor: GraphEditor) -> dict[int, int]:
    """Inputs of a node that kernels store in a narrower type, with the channel axis of each.

    Biases and elementwise operands are left out, because kernels add them in 32 bits.
    """
    rounded = {}
    for index, axis in _weight_axes(node, editor):
        if index < len(node.input) and editor.is_constant(node.input[index]) and holds_reals(editor, node.input[index]):
            rounded[index] = axis
    return rounded


def multiplied(node: NodeProto, editor: GraphEditor) -> tuple[int, ...]:
    """Inputs of a node that kernels multiply by each other; empty for nodes without products."""
    return tuple(place for place in _FACTORS.get(node.op_type, ()) if holds_reals(editor, node.input[place]))


def multiplies_rows(node: NodeProto, editor: GraphEditor) -> bool:
    """Whether a node multiplies rows, which lie along the last axis of its first input, by a weight."""
    if node.op_type == ENCODED:
        return True
    if node.op_type not in ("MatMul", "Gemm") or attributes(node).get("transA", 0):
        return False
    return rounded_weights(node, editor).keys() == {1}


def _weight_axes(node: NodeProto, editor: GraphEditor) -> list[tuple[int, int]]:
    match node.op_type:
        case "Conv":
            return [(1, 0)]
        case "ConvTranspose":
            return [(1, 1)]
        case "Gemm":
            return [(0, int(attributes(node).get("transA", 0))), (1, 1 - int(attributes(node).get("transB", 0)))]
        case "MatMul":
            rows, columns = (editor.rank(name) or 0 for name in node.input[:2])
            return [(0, max(rows - 2, 0)), (1, max(columns - 1, 0))]
    return []
