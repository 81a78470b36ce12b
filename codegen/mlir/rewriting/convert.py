"""Rewrite the function of one layer so that every image in it lies in another layout.

Layout-oblivious ops (elementwise) and layout-tolerant ones (convolution, pooling, concatenation, padding) are
rewritten by renaming dimensions; for anything that depends on ONNX's order the rewrite is rejected with the reason
(NeoCPU, section III-C). Weights do not change, except the filters of convolutions, which are repacked.
"""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.ir.layer import Task, TensorType
from sartor.codegen.ir.layouts import IMAGE_RANK, ImageLayout, image_layout, layouts_of
from sartor.codegen.ir.packing import Packing
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.schema import schemas_of
from sartor.codegen.ir.variants.routine import Implementation, Rejected
from sartor.codegen.mlir.iree_compiler import ir, run_passes, shared_context
from sartor.codegen.mlir.operations import body_of, defining_op, nested, used_values
from sartor.codegen.mlir.rewriting.generic_layout import GenericRewriter

_GENERALIZE = "builtin.module(util.func(linalg-generalize-named-ops))"


@dataclass(frozen=True)
class Converted:
    """A layer whose images lie in another layout.

    Attributes:
        module: holds the one function, its signature in physical types.
        task: the layer.
        layout: name of the images' layout.
        packings: for each weight the steps from ONNX's layout.
    """

    module: ir.Module
    task: Task
    layout: str
    packings: tuple[Packing, ...]

    @property
    def function(self) -> ir.Operation:
        return self.module.body.operations[0].operation

    def implementation(self, device: str) -> Implementation:
        """The current code, for a device."""
        inputs, outputs = (
            schemas_of(tensors, layouts_of(tensors, self.layout), device)
            for tensors in (self.task.inputs, self.task.results)
        )
        body = str(self.function.get_asm(use_local_scope=True))
        return Implementation(body, inputs, outputs, self.packings)


def has_images(task: Task) -> bool:
    """Whether an activation or a result is an image."""
    return any(len(tensor.shape) == IMAGE_RANK for tensor in (*task.inputs, *task.results))


def convert_images(task: Task, layout: str) -> Converted | Rejected:
    """``task`` with all images in ``layout``, including arguments and results; Rejected with what ties it to ONNX's."""
    context = shared_context()
    with context, ir.Location.unknown(context):
        module = ir.Module.parse(task.body)
        run_passes(module, _GENERALIZE)
        try:
            packings = _LayoutConverter(module, task, image_layout(layout)).run()
            module.operation.verify()
        except (RejectionError, ir.MLIRError) as error:
            return Rejected(str(error))
    return Converted(module, task, layout, packings)


def is_image(value: ir.Value) -> bool:
    """Whether a value is a rank-4 tensor."""
    return isinstance(value.type, ir.RankedTensorType) and ir.RankedTensorType(value.type).rank == IMAGE_RANK


def is_filter(weight: ir.Value) -> bool:
    """Whether a weight is the second input of a reduction, which is the filter of a convolution."""
    return any(_multiplies(use) for use in weight.uses)


def _multiplies(use: ir.OpOperand) -> bool:
    """Whether a weight is read as the filter of a convolution."""
    op = use.owner.operation
    is_second = op.name == "linalg.generic" and use.operand_number == 1
    return is_second and "reduction" in str(op.attributes["iterator_types"])


class _LayoutConverter:
    """Changes types, maps and attributes in place, one op after the other."""

    def __init__(self, module: ir.Module, task: Task, layout: ImageLayout) -> None:
        self._function = module.body.operations[0].operation
        self._layout = layout
        self._task = task
        block = body_of(self._function)
        self._weights = dict(zip(list(block.arguments)[len(task.inputs) :], task.weights, strict=True))
        filters = {value for value in self._weights if is_filter(value)}
        if any(is_image(value) and not all(map(_multiplies, value.uses)) for value in filters):
            raise RejectionError("the filters are read elsewhere too")
        self._images = {value for value in self._all_values(block) if is_image(value)} - filters
        self._generic = GenericRewriter(layout, self._images, self._weights)

    def _all_values(self, block: ir.Block) -> list[ir.Value]:
        return [*block.arguments, *(result for view in block.operations for result in view.operation.results)]

    def run(self) -> tuple[Packing, ...]:
        block = body_of(self._function)
        for view in block.operations:
            self._check(view.operation)
        for view in block.operations:
            self._rewrite(view.operation)
        for value in self._images:
            op = defining_op(value)
            if op is None or op.name != "arith.constant":
                value.set_type(self._physical(value.type))
        self._check_packed()
        self._sign(block)
        return tuple(self._packing(weight, logical) for weight, logical in self._weights.items())

    def _check_packed(self) -> None:
        """Refuse a weight that is packed for the convolution although an op reads it that no image goes through."""
        packed = (value for value, packing in self._generic.packings.items() if packing != Packing())
        if not all(self._touches_images(use.owner.operation) for value in packed for use in value.uses):
            raise RejectionError("a weight is read in two layouts")

    def _packing(self, weight: ir.Value, logical: TensorType) -> Packing:
        if weight in self._images:
            return self._layout.packing(logical)
        return self._generic.packings.get(weight, Packing())

    def _physical(self, tensor: ir.Type) -> ir.Type:
        return ir.Type.parse(str(self._layout.physical(TensorType.parse(str(tensor)))))

    def _touches_images(self, op: ir.Operation) -> bool:
        return any(value in self._images for value in [*used_values(op), *op.results])

    def _check(self, op: ir.Operation) -> None:
        if self._touches_images(op) and not hasattr(self, self._handler(op)):
            raise RejectionError(f"{op.name} depends on the layout")

    def _rewrite(self, op: ir.Operation) -> None:
        if self._touches_images(op):
            getattr(self, self._handler(op))(op)

    def _handler(self, op: ir.Operation) -> str:
        return "_on_" + str(op.name).replace(".", "_")

    def _on_util_return(self, op: ir.Operation) -> None:
        """Nothing to do: results change their types with the values."""

    def _on_tensor_empty(self, op: ir.Operation) -> None:
        """Nothing to do: the type of an empty tensor is changed with all others."""

    def _on_arith_constant(self, op: ir.Operation) -> None:
        attribute = op.attributes["value"]
        if not (isinstance(attribute, ir.DenseElementsAttr) and attribute.is_splat):
            raise RejectionError("a constant image depends on the layout")
        physical = self._physical(op.results[0].type)
        op.results[0].set_type(physical)
        op.attributes["value"] = ir.DenseElementsAttr.get_splat(physical, attribute.get_splat_value())

    def _on_linalg_generic(self, op: ir.Operation) -> None:
        self._generic.rewrite(op)

    def _on_tensor_pad(self, op: ir.Operation) -> None:
        for name in ("static_low", "static_high"):
            amounts = list(ir.DenseI64ArrayAttr(op.attributes[name]))
            if self._layout.block is not None and amounts[1]:
                raise RejectionError("channels are padded")
            physical = [amounts[axis] for axis in self._layout.order]
            op.attributes[name] = ir.DenseI64ArrayAttr.get(physical + [0] * (self._layout.block is not None))
        if self._layout.block is not None:
            op.regions[0].blocks[0].add_argument(ir.IndexType.get(), ir.Location.unknown())
        if any(child.name not in ("tensor.pad", "tensor.yield", "arith.constant") for child in nested(op)):
            raise RejectionError("a pad computes its value")

    def _on_tensor_concat(self, op: ir.Operation) -> None:
        axis = ir.IntegerAttr(op.attributes["dim"]).value
        op.attributes["dim"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), self._layout.order.index(axis))

    def _on_tensor_extract_slice(self, op: ir.Operation) -> None:
        self._permute_slice(op)

    def _on_tensor_insert_slice(self, op: ir.Operation) -> None:
        self._permute_slice(op)

    def _permute_slice(self, op: ir.Operation) -> None:
        small = op.results[0] if op.name == "tensor.extract_slice" else op.operands[0]
        static = len(op.operands) == (1 if op.name == "tensor.extract_slice" else 2)
        if not is_image(small) or not static:
            raise RejectionError("a slice changes the rank")
        for name in ("static_offsets", "static_sizes", "static_strides"):
            values = [list(ir.DenseI64ArrayAttr(op.attributes[name]))[axis] for axis in self._layout.order]
            op.attributes[name] = ir.DenseI64ArrayAttr.get(self._blocks_of(values, name))

    def _blocks_of(self, values: list[int], name: str) -> list[int]:
        """Offsets, sizes or strides of a slice of an image in blocks of channels, which takes entire blocks."""
        block = self._layout.block
        if block is None:
            return values
        batch, channels, *pixels = values
        if name == "static_strides":
            if channels != 1:
                raise RejectionError("a slice takes some channels of each block")
            return [*values, 1]
        if channels % block:
            raise RejectionError("a slice cuts a block of channels")
        return [batch, channels // block, *pixels, 0 if name == "static_offsets" else block]

    def _sign(self, block: ir.Block) -> None:
        """Set the function's signature from its body."""
        for weight, packing in self._generic.packings.items():
            weight.set_type(ir.Type.parse(str(packing.type_of(self._weights[weight]))))
        returned = list(block.operations)[-1].operation.operands
        signature = ir.FunctionType.get(
            [argument.type for argument in block.arguments], [value.type for value in returned]
        )
        self._function.attributes["function_type"] = ir.TypeAttr.get(signature)
