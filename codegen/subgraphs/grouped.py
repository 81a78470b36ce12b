"""Analysis of a convolution layer: the pad before the convolution, its groups, and the ops after it."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, replace

from sartor.codegen.ir.layer import LayerKind, Task, TensorType
from sartor.codegen.ir.layouts import IMAGE_RANK
from sartor.codegen.mlir.iree_compiler import ir, shared_context
from sartor.codegen.mlir.operations import body_of, defining_op, is_elementwise, nested, remap, used_values
from sartor.codegen.subgraphs.fusion import task_of

GROUPED = "linalg.conv_2d_ngchw_gfchw"
_DENSE = "linalg.conv_2d_nchw_fchw"
_EVERYTHING_ELSE = [0, 2, 3]

Pair = tuple[int, int]


@dataclass(frozen=True)
class Sliding:
    """A two-dimensional convolution and what surrounds it in its layer.

    Attributes:
        image: type of the activation, ``[N, IC, H, W]``.
        pads: zeros before and after its rows, and before and after its columns.
        filter: type of the filter by group, ``[G, OC / G, IC / G, KH, KW]``.
        result: type of the convolution's result and of the layer's, ``[N, OC, OH, OW]``.
        strides: along H and W.
        dilations: along H and W.
        activation: position of the image among the layer's activations.
        weight: position of the filter among the layer's weights.
        bias: position of the bias among the layer's weights; None if there is no bias.
        tail: the ops after the convolution, as a task over its result, then other activations; None if there are none.
        tail_inputs: positions of these other activations in the layer.
        tail_weights: positions of the tail's weights in the layer.
    """

    image: TensorType
    pads: tuple[Pair, Pair]
    filter: TensorType
    result: TensorType
    strides: Pair
    dilations: Pair
    activation: int
    weight: int
    bias: int | None
    tail: Task | None
    tail_inputs: tuple[int, ...]
    tail_weights: tuple[int, ...]

    @property
    def groups(self) -> int:
        """Number of groups."""
        return self.filter.shape[0]

    @property
    def is_pointwise(self) -> bool:
        """Whether each pixel of the result depends on one pixel."""
        return self.filter.shape[-2:] == (1, 1)

    @property
    def padded(self) -> TensorType:
        """Type of the image with its zeros."""
        batch, channels, height, width = self.image.shape
        rows, columns = self.pads
        return replace(self.image, shape=(batch, channels, height + sum(rows), width + sum(columns)))

    def with_channels(self, before: int, after: int) -> Sliding:
        """The convolution from ``before`` to ``after`` channels, in one group and without the tail."""
        kernel = self.filter.shape[-2:]
        return replace(
            self,
            image=_with_channels(self.image, before),
            filter=replace(self.filter, shape=(1, after, before, *kernel)),
            result=_with_channels(self.result, after),
            tail=None,
            tail_inputs=(),
            tail_weights=(),
        )


@functools.lru_cache(maxsize=1024)
def sliding_of(task: Task) -> Sliding | None:
    """The convolution of a layer, with the ops around it; None if the layer has another form."""
    if task.kind is not LayerKind.CONVOLUTION or len(task.results) != 1:
        return None
    with shared_context():
        module = ir.Module.parse(task.body)
        return _Reader(task, module.body.operations[0].operation).sliding()


class _Reader:
    """Follows values from the convolution to the layer's arguments and results."""

    def __init__(self, task: Task, function: ir.Operation) -> None:
        self._task = task
        self._block = body_of(function)
        self._ops = [view.operation for view in self._block.operations]
        self._arguments = list(self._block.arguments)

    def sliding(self) -> Sliding | None:
        roots = [op for op in self._ops if op.name in (GROUPED, _DENSE)]
        if len(roots) != 1:
            return None
        (root,) = roots
        grouped = root.name == GROUPED
        source, pads = self._image(root.operands[0], grouped)
        result = self._result(root, grouped)
        bias, known = self._bias(root.operands[2])
        activation, weight = self._activation(source), self._weight(root.operands[1])
        if pads is None or result is None or activation is None or weight is None or not known:
            return None
        tail = self._tail(result)
        if tail is None or activation in tail[1]:
            return None
        image, filters, made = (TensorType.parse(str(value.type)) for value in (source, root.operands[1], result))
        if len({tensor.dtype for tensor in (image, filters, made)}) > 1:
            # Sums of f16 are f32, which a layer's result is if the model casts it.
            return None
        return Sliding(
            image=image,
            pads=pads,
            filter=filters if grouped else replace(filters, shape=(1, *filters.shape)),
            result=made,
            strides=_pair(root, "strides"),
            dilations=_pair(root, "dilations"),
            activation=activation,
            weight=weight,
            bias=bias,
            tail=tail[0],
            tail_inputs=tail[1],
            tail_weights=tail[2],
        )

    def _image(self, value: ir.Value, grouped: bool) -> tuple[ir.Value, tuple[Pair, Pair] | None]:
        """The image before its padding, and that padding; None for padding of another kind."""
        op = defining_op(value)
        if grouped:
            if op is None or op.name != "tensor.expand_shape":
                return value, None
            value = op.operands[0]
            op = defining_op(value)
        if ir.RankedTensorType(value.type).rank != IMAGE_RANK:
            return value, None
        if op is None:
            return value, ((0, 0), (0, 0))
        if op.name != "tensor.pad" or len(op.operands) != 1 or not _pads_with_zero(op):
            return value, None
        low, high = (list(ir.DenseI64ArrayAttr(op.attributes[name])) for name in ("static_low", "static_high"))
        if any(low[:2]) or any(high[:2]):
            return value, None
        return op.operands[0], ((low[2], high[2]), (low[3], high[3]))

    def _result(self, root: ir.Operation, grouped: bool) -> ir.Value | None:
        """The convolution's result as an image."""
        value: ir.Value = root.results[0]
        if not grouped:
            return value
        users = [use.owner.operation for use in value.uses]
        if len(users) != 1 or users[0].name != "tensor.collapse_shape":
            return None
        image: ir.Value = users[0].results[0]
        return image if ir.RankedTensorType(image.type).rank == IMAGE_RANK else None

    def _bias(self, value: ir.Value) -> tuple[int | None, bool]:
        """The weight that the sums start from, None for zero; and whether they start from a weight or zero at all."""
        op = defining_op(value)
        while op is not None and op.name in ("tensor.expand_shape", "linalg.fill"):
            if op.name == "linalg.fill":
                return None, _is_zero(op.operands[0])
            op = defining_op(op.operands[0])
        if op is None or op.name != "linalg.broadcast":
            return None, False
        bias = self._weight(op.operands[0])
        kept = list(ir.DenseI64ArrayAttr(op.attributes["dimensions"]))
        return bias, bias is not None and kept == _EVERYTHING_ELSE

    def _activation(self, value: ir.Value) -> int | None:
        index = self._arguments.index(value) if value in self._arguments else len(self._arguments)
        return index if index < len(self._task.inputs) else None

    def _weight(self, value: ir.Value) -> int | None:
        """Position of a value among the weights; None if it is no weight or has other uses."""
        if value not in self._arguments or len(list(value.uses)) != 1:
            return None
        index = self._arguments.index(value) - len(self._task.inputs)
        return index if index >= 0 else None

    def _tail(self, image: ir.Value) -> tuple[Task | None, tuple[int, ...], tuple[int, ...]] | None:
        """The ops from the convolution's result to the layer's, with the activations and weights that they read."""
        (returned,) = self._ops[-1].operands
        if str(returned.type) != str(image.type):
            return None
        if returned == image:
            return None, (), ()
        ops, arguments = self._needed(returned, image)
        if any(op.name in (GROUPED, _DENSE, "tensor.pad") for op in ops):
            return None
        count = len(self._task.inputs)
        read = [index for index in arguments if index < count]
        parameters = [index - count for index in arguments if index >= count]
        given = [image, *(self._arguments[index] for index in arguments)]
        inputs = (TensorType.parse(str(image.type)), *(self._task.inputs[index] for index in read))
        weights = tuple(self._task.weights[index] for index in parameters)
        text = _function(ops, given, returned)
        return task_of(LayerKind.TOLERANT, text, inputs, weights, inputs[:1]), tuple(read), tuple(parameters)

    def _needed(self, result: ir.Value, image: ir.Value) -> tuple[list[ir.Operation], list[int]]:
        """Ops on the ways to ``result`` from ``image`` and arguments, in program order, and those arguments."""
        needed: set[ir.Operation] = set()
        arguments: set[int] = set()
        pending = [result]
        while pending:
            value = pending.pop()
            op = defining_op(value)
            if value == image or op in needed:
                continue
            if op is None:
                arguments.add(self._arguments.index(value))
            else:
                needed.add(op)
                pending.extend(used_values(op))
        return [op for op in self._ops if op in needed], sorted(arguments)


def _function(ops: Iterable[ir.Operation], given: list[ir.Value], result: ir.Value) -> str:
    """A function of ``ops`` over values that they read from elsewhere."""
    with ir.Location.unknown():
        arguments = ", ".join(f"%arg{index}: {value.type}" for index, value in enumerate(given))
        shell = ir.Module.parse(f"util.func public @layer({arguments}) -> ({result.type}) {{ util.unreachable }}")
        function = shell.body.operations[0].operation
        block = body_of(function)
        terminator = block.operations[0].operation
        mapping: dict[ir.Value, ir.Value] = dict(zip(given, block.arguments, strict=True))
        point = ir.InsertionPoint(terminator)
        for op in ops:
            clone = op.clone(ip=point)
            remap(clone, mapping)
            mapping.update(zip(op.results, clone.results, strict=True))
        ir.Operation.create("util.return", operands=[mapping[result]], ip=point)
        terminator.erase()
        return str(function.get_asm(use_local_scope=True))


def narrowed(tail: Task, channels: int) -> Task | None:
    """A tail over fewer channels of the same pixels; None if it reads anything but the image that it changes."""
    if len(tail.inputs) > 1 or tail.weights:
        return None
    whole = tail.inputs[0]
    part = _with_channels(whole, channels)
    with shared_context() as context, ir.Location.unknown(context):
        module = ir.Module.parse(tail.body)
        function = module.body.operations[0].operation
        block = body_of(function)
        wide, narrow = ir.Type.parse(str(whole)), ir.Type.parse(str(part))
        for view in block.operations:
            op = view.operation
            if not (op.name in ("tensor.empty", "arith.constant", "util.return") or is_elementwise(op)):
                return None
            # In a part, channels would be counted from 0, and a constant image keeps all of its elements.
            if any(child.name == "linalg.index" for child in nested(op)):
                return None
            for result in op.results:
                if result.type == wide and op.name != "arith.constant":
                    result.set_type(narrow)
                elif isinstance(result.type, ir.RankedTensorType):
                    return None
        block.arguments[0].set_type(narrow)
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get([narrow], [narrow]))
        return task_of(tail.kind, str(function.get_asm(use_local_scope=True)), (part,), (), (part,))


def _with_channels(image: TensorType, channels: int) -> TensorType:
    batch, _, height, width = image.shape
    return replace(image, shape=(batch, channels, height, width))


def _pads_with_zero(op: ir.Operation) -> bool:
    return _is_zero(list(op.regions[0].blocks[0].operations)[-1].operation.operands[0])


def _is_zero(value: ir.Value) -> bool:
    op = defining_op(value)
    if op is None or op.name != "arith.constant" or not isinstance(op.attributes["value"], ir.FloatAttr):
        return False
    return float(ir.FloatAttr(op.attributes["value"]).value) == 0.0


def _pair(op: ir.Operation, name: str) -> Pair:
    if name not in op.attributes:
        return 1, 1
    first, second = ir.DenseIntElementsAttr(op.attributes[name])
    return first, second
