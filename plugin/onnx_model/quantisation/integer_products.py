"""Rewrites products of integers to products of floats that hold the same numbers.

Integers of 8 bits are floats in a range of step 1, so kernels store and multiply them unchanged. The zero point of the
activation may be known at run time only. So it is multiplied by the sums of the weights and subtracted from the
product (Jacob et al. 2018, section 2.3).

Nothing is rounded. In every order of summation, partial sums lie between the sum of the negative and the sum of the
positive weights, times the largest activation. A product is rewritten only if f32 represents these bounds exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, optional_input
from sartor.onnx_model.quantisation.dynamic_ranges import DynamicRange, emit_dynamic_range
from sartor.onnx_model.quantisation.padded_windows import padding_of, pads_of, unpadded_window, window_sums
from sartor.tuning.calibration.quantised_range import QuantisedRange

_PRODUCTS = ("ConvInteger", "MatMulInteger")
_RANGES: Mapping[int, QuantisedRange] = {
    TensorProto.UINT8: QuantisedRange(1.0, -128, "int8", is_integer=True),
    TensorProto.INT8: QuantisedRange(1.0, 0, "int8", is_integer=True),
}
# f32 represents integers up to this exactly.
_MOST = 1 << 24
_LARGEST = 256
_MATRIX_RANK = 2


@dataclass(frozen=True)
class _Product:
    """A product of activations and constant weights.

    Attributes:
        values: name of the activation, without padding.
        zero: name of its zero point, empty if it has none.
        weights: integers minus their zero points.
        is_image: whether it is a convolution.
        padding: the Pad node before a convolution, or None.
    """

    values: str
    zero: str
    weights: Array
    is_image: bool
    padding: NodeProto | None = None


@dataclass(frozen=True)
class _Scaling:
    """A Mul of sums by the product of the activation's scale, known at run time only, and the weights' scales.

    Attributes:
        output: name of the Mul's result.
        sums: name of the scaled operand.
        scale: name of the activation's scale.
        weight_scales: one for each output channel, so that layers differ in weights alone.
    """

    output: str
    sums: str
    scale: str
    weight_scales: Array

    def emit(self, emit: Emitter) -> list[NodeProto]:
        """Multiply by one scale after the other: the product of the scales would be a separate small layer."""
        scaled = emit("Mul", self.sums, self.scale, part="scale")
        emit("Mul", scaled, emit.constant(self.weight_scales, "weight_scales"), output=self.output)
        return emit.nodes


def take_out_integer_products(model: ModelProto) -> dict[str, QuantisedRange]:
    """Rewrite integer products of a model in place; returns ranges of the tensors that hold 8-bit integers, by name.

    Products of two activations, and those whose sums f32 may not represent exactly, are not changed.
    """
    editor = GraphEditor(model.graph)
    return _Rewriter(editor).run()


class _Rewriter:
    """Rewrites the integer products of a graph."""

    def __init__(self, editor: GraphEditor) -> None:
        self._editor = editor
        self._products = {
            node.output[0]: product
            for node in editor.nodes
            if node.op_type in _PRODUCTS and not node.domain and (product := _product(node, editor)) is not None
        }
        self._scalings = {found_scaling.output: found_scaling for found_scaling in self._found_scalings()}
        self._floats: dict[str, str] = {}
        self._ranges: dict[str, QuantisedRange] = {}
        self._renamed: dict[str, str] = {}

    def run(self) -> dict[str, QuantisedRange]:
        """Change the graph; returns ranges of tensors by name."""
        if self._products:
            self._editor.rewrite(self._replacement)
            self._editor.redirect(self._renamed)
        return self._ranges

    def _replacement(self, node: NodeProto) -> list[NodeProto] | None:
        if node.op_type == "DynamicQuantizeLinear" and self._is_taken_out(node):
            return self._quantised(node)
        if node.op_type == "Cast" and node.output[0] in self._renamed:
            return []
        if node.output and node.output[0] in self._scalings:
            return self._scalings[node.output[0]].emit(Emitter(self._editor, node))
        product = self._products.get(node.output[0]) if node.output else None
        return None if product is None else self._multiplied(node, product)

    def _found_scalings(self) -> Iterator[_Scaling]:
        """Yield each Mul of a product's sums, cast to floats, by the scales of both operands."""
        for name, product in self._products.items():
            casts = [consumer for consumer in self._editor.consumers(name) if _makes_floats(consumer)]
            for node in (consumer for cast in casts for consumer in self._editor.consumers(cast.output[0])):
                scaling = _scaling(node, product, self._editor)
                if scaling is not None:
                    yield scaling

    def _is_taken_out(self, node: NodeProto) -> bool:
        """Whether only rewritten products read the quantised tensor and its zero point."""
        values, _, zero = node.output
        given = any(self._editor.is_output(output) for output in (values, zero))
        return not given and self._is_multiplied(values) and self._is_multiplied(zero)

    def _is_multiplied(self, name: str) -> bool:
        paddings = [product.padding for product in self._products.values() if product.padding is not None]
        read = self._editor.consumers(name)
        return all(node.output[0] in self._products or node in paddings for node in read)

    def _quantised(self, node: NodeProto) -> list[NodeProto]:
        """Replace a DynamicQuantizeLinear by arithmetic on floats."""
        emit = Emitter(self._editor, node)
        dynamic: DynamicRange = emit_dynamic_range(emit)
        self._floats |= {node.output[0]: dynamic.values, node.output[2]: dynamic.zero}
        self._ranges[dynamic.values] = _RANGES[TensorProto.UINT8]
        return emit.nodes

    def _multiplied(self, node: NodeProto, product: _Product) -> list[NodeProto]:
        emit, editor = Emitter(self._editor, node), self._editor
        values = self._float(emit, product.values, "values")
        self._ranges[values] = _RANGES[editor.element_type(product.values)]
        result = self._sums(emit, product, values)
        if product.zero:
            weighed = self._zeros(emit, product, _weight_sums(node, product, editor))
            result = emit("Sub", result, weighed, part="centre")
        self._hand_on(emit, result)
        return emit.nodes

    def _sums(self, emit: Emitter, product: _Product, values: str) -> str:
        weights = emit.constant(product.weights.astype(np.float32), "weights")
        if emit.node.op_type == "MatMulInteger":
            return emit("MatMul", values, weights)
        settings = attributes(emit.node)
        if product.padding is not None:
            settings |= {"pads": pads_of(product.padding, self._editor)}
        return emit("Conv", values, weights, **settings)

    def _zeros(self, emit: Emitter, product: _Product, sums: Array) -> str:
        """Emit the share of the zero point in each result: zero point times sum of weights."""
        known = self._editor.constant(product.zero)
        if known is not None:
            return emit.constant((known.reshape(()).astype(np.float64) * sums).astype(np.float32), "zeros")
        zero = self._float(emit, product.zero, "zero")
        return emit("Mul", zero, emit.constant(sums.astype(np.float32), "weight_sums"), part="zeros")

    def _float(self, emit: Emitter, name: str, part: str) -> str:
        """Emit the cast of an 8-bit tensor to floats, once for all readers."""
        if name not in self._floats:
            self._floats[name] = emit("Cast", name, part=part, to=TensorProto.FLOAT)
        return self._floats[name]

    def _hand_on(self, emit: Emitter, sums: str) -> None:
        """Let readers that cast the integers to floats read the floats; cast to int32 for all others."""
        output, editor = emit.node.output[0], self._editor
        readers = editor.consumers(output)
        floats = [reader for reader in readers if _makes_floats(reader) and not editor.is_output(reader.output[0])]
        self._renamed |= {node.output[0]: sums for node in floats}
        if editor.is_output(output) or len(floats) < len(readers):
            emit("Cast", sums, part="integer", output=output, to=TensorProto.INT32)


def _makes_floats(node: NodeProto) -> bool:
    return node.op_type == "Cast" and attributes(node)["to"] == TensorProto.FLOAT


def _scaling(node: NodeProto, product: _Product, editor: GraphEditor) -> _Scaling | None:
    """The scaling that ``node``, which reads sums of ``product``, computes; None if it is not one."""
    if node.op_type != "Mul" or node.domain:
        return None
    sums, factor = sorted(node.input, key=lambda name: not _is_cast(name, editor))
    scales = editor.producer(factor)
    if scales is None or scales.op_type != "Mul":
        return None
    known = [editor.constant(name) for name in scales.input]
    for scale, weight_scales in (scales.input, known[1]), (scales.input[::-1], known[0]):
        if weight_scales is not None and weight_scales.dtype == np.float32 and editor.shape(scale[0]) == ():
            aligned = _along_results(weight_scales, product)
            return None if aligned is None else _Scaling(node.output[0], sums, scale[0], aligned)
    return None


def _is_cast(name: str, editor: GraphEditor) -> bool:
    producer = editor.producer(name)
    return producer is not None and _makes_floats(producer)


def _along_results(scales: Array, product: _Product) -> Array | None:
    """One scale for each channel or column, None if they belong to something else."""
    shape = (-1, *(1,) * (product.weights.ndim - 2)) if product.is_image else (-1,)
    count = product.weights.shape[0 if product.is_image else -1]
    # More dimensions than weights have might be more than the result has.
    if scales.ndim > product.weights.ndim:
        return None
    if scales.size == 1:
        return np.full(count, scales.item(), np.float32).reshape(shape)
    fitting = np.broadcast_shapes(scales.shape, np.empty(count).reshape(shape).shape)
    return scales.reshape(shape) if scales.size == count == int(np.prod(fitting)) else None


def _product(node: NodeProto, editor: GraphEditor) -> _Product | None:
    """The product that ``node`` computes; None if it cannot be computed in floats."""
    weights, values, zero = _weights(node, editor), node.input[0], optional_input(node, 2)
    if weights is None or editor.is_constant(values) or editor.element_type(values) not in _RANGES:
        return None
    if zero and not _is_single(editor.shape(zero)):
        return None
    padding = padding_of(node, editor)
    is_image = node.op_type == "ConvInteger"
    if is_image and unpadded_window(node, padding, editor) is None:
        return None
    return _Product(values if padding is None else padding.input[0], zero, weights, is_image, padding)


def _is_single(shape: tuple[int, ...] | None) -> bool:
    """Whether a tensor is known to have one element."""
    return shape is not None and int(np.prod(shape)) == 1


def _weights(node: NodeProto, editor: GraphEditor) -> Array | None:
    """Weights minus their zero points; None if they are not constant or the sums are too large for f32."""
    stored = editor.constant(node.input[1])
    name, rank = optional_input(node, 3), editor.rank(node.input[0])
    zero = editor.constant(name) if name else np.zeros((), np.int8)
    if stored is None or zero is None or rank is None or min(rank, stored.ndim) < _MATRIX_RANK:
        return None
    axis = 0 if node.op_type == "ConvInteger" else stored.ndim - 1
    if zero.size != 1 and zero.shape != (stored.shape[axis],):
        return None
    aligned = (
        zero.reshape(())
        if zero.size == 1
        else zero.reshape([-1 if index == axis else 1 for index in range(stored.ndim)])
    )
    weights: Array = stored.astype(np.int64) - aligned.astype(np.int64)
    reduced = tuple(range(1, weights.ndim)) if node.op_type == "ConvInteger" else (weights.ndim - 2,)
    positive, negative = (np.maximum(array, 0).sum(axis=reduced).max(initial=0) for array in (weights, -weights))
    return weights if max(positive, negative) * _LARGEST <= _MOST else None


def _weight_sums(node: NodeProto, product: _Product, editor: GraphEditor) -> Array:
    """The sum of the weights of each result, in a shape that broadcasts with the results."""
    window = unpadded_window(node, product.padding, editor) if product.is_image else None
    if window is not None:
        return window_sums(product.weights, window)
    return np.asarray(product.weights.sum(axis=-2, keepdims=product.weights.ndim > _MATRIX_RANK))
