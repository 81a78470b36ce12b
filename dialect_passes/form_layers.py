"""Outline each layer of the network as a separate function, named after its root's ONNX node."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import replace

from sartor.codegen.ir.graph import INPUT_PREFIX, OUTPUT_PREFIX, LayerGraph
from sartor.codegen.ir.layer import Layer, NetworkValue, Task, TensorType, ValueRef, task_key
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import (
    body_of,
    defining_op,
    entry_function,
    is_static_tensor,
    node_names,
    remap,
    source,
    used_values,
)
from sartor.dialect_passes.constants import constant_ops, is_weight, scalar_ops
from sartor.dialect_passes.partition import Group, pads_around_images, partition
from sartor.errors import UnsupportedModelError

LAYER_SYMBOL = "layer"


def split_shared_pads(module: ir.Module) -> None:
    """Clone pads of images with several consumers, because such a pad belongs to the layer that it feeds."""
    for view in list(body_of(entry_function(module)).operations):
        op = view.operation
        if op.name == "tensor.pad" and pads_around_images(op):
            for use in list(op.results[0].uses)[1:]:
                clone = op.clone(ip=ir.InsertionPoint(op))
                use.owner.operation.operands[use.operand_number] = clone.results[0]


def form_layers(module: ir.Module, inputs: Sequence[NetworkValue], outputs: Sequence[NetworkValue]) -> LayerGraph:
    """Partition the entry function of ``module`` into layers.

    Args:
        module: linalg on tensors after ``fold_weights``; pads are split in place, else unchanged.
        inputs: ONNX inputs, in order; used ones get the type that the module reads.
        outputs: ONNX outputs, in order; they get the type that the module returns, and their source.

    Raises:
        UnsupportedModelError: if no layer computes an output, which is named, or there is nothing to compute.
    """
    with module.context, ir.Location.unknown(module.context):
        split_shared_pads(module)
        return _Outliner(entry_function(module)).run(inputs, outputs)


class _Outliner:
    """Turns groups of ops into layers, and records the reference of each value."""

    def __init__(self, function: ir.Operation) -> None:
        self._function = function
        # Asked for several times for each op, which takes much of the time that a long network needs.
        self._reads = functools.cache(used_values)
        self._cloned = constant_ops(function, self._reads) | scalar_ops(function)
        self._refs: dict[ir.Value, ValueRef] = {}
        self._names: set[str] = set()
        self._suffixes: dict[str, int] = {}
        self._activations: dict[str, int] = {}

    def run(self, inputs: Sequence[NetworkValue], outputs: Sequence[NetworkValue]) -> LayerGraph:
        self._check_computes(outputs)
        self._names |= {INPUT_PREFIX + value.name for value in inputs} | {
            OUTPUT_PREFIX + output.name for output in outputs
        }
        read = tuple(self._input(index, value) for index, value in enumerate(inputs))
        layers = tuple(self._outline(group) for group in partition(self._function, self._reads))
        return LayerGraph(layers, read, self._outputs(outputs))

    def _check_computes(self, outputs: Sequence[NetworkValue]) -> None:
        returned = body_of(self._function).operations[-1].operation.operands
        if all(isinstance(view.owner, ir.Block) for view in returned):
            names = ", ".join(f"'{output.name}'" for output in outputs)
            raise UnsupportedModelError(f"the model computes nothing: its outputs {names} are inputs of it")

    def _input(self, index: int, given: NetworkValue) -> NetworkValue:
        """A network input with the type that the module reads; an unused one is not imported and keeps its type."""
        for use in body_of(self._function).arguments[index].uses:
            op = use.owner.operation
            if op.name == "hal.tensor.import":
                self._refs[op.results[0]] = ValueRef(None, index)
                given = replace(given, type=TensorType.parse(str(op.results[0].type)))
        return given

    def _outputs(self, given: Sequence[NetworkValue]) -> tuple[NetworkValue, ...]:
        returned = body_of(self._function).operations[-1].operation.operands
        return tuple(self._output(value, view) for value, view in zip(given, returned, strict=True))

    def _output(self, given: NetworkValue, view: ir.Value) -> NetworkValue:
        """The output that is exported as ``view``; equal outputs share one result of the barrier before the exports."""
        if isinstance(view.owner, ir.Block):
            # IREE returns such an input unchanged, without import and export.
            return replace(given, source=ValueRef(None, ir.BlockArgument(view).arg_number))
        value = source(view).operands[0]
        barrier = source(value)
        if barrier.name == "hal.tensor.barrier":
            value = barrier.operands[list(barrier.results).index(value)]
        output = replace(given, type=TensorType.parse(str(value.type)))
        if value in self._refs:
            return replace(output, source=self._refs[value])
        if source(value).name != "util.global.load":
            raise UnsupportedModelError(f"output '{given.name}' depends on no input; remove it from the model")
        return replace(output, constant=_weight_name(value))

    def _outline(self, group: Group) -> Layer:
        members = set(group.ops)
        activations, weights = self._arguments(group, members)
        results = [value for op in group.ops for value in op.results if self._leaves(value, members)]
        _check_static(group, [*activations, *results], results)
        body = self._body(group, [*activations, *weights], results)
        name = self._unique_name(group)
        task = Task(
            key=self._key(body, len(activations)),
            kind=group.kind,
            body=body,
            inputs=_types(activations),
            weights=_types(weights),
            results=_types(results),
        )
        for index, value in enumerate(results):
            self._refs[value] = ValueRef(name, index)
        inputs = tuple(self._refs[value] for value in activations)
        parameters = tuple(_weight_name(value) for value in weights)
        return Layer(name, node_names(group.ops), task, inputs, parameters)

    def _key(self, body: str, activations: int) -> str:
        """The key of a task, from its code and from which arguments are weights, which the code does not tell.

        The first step of a recurrent network reads a constant state, all others a computed one.
        """
        usual = self._activations.setdefault(body, activations)
        return task_key(body) if activations == usual else task_key(body, f"{activations} activations")

    def _leaves(self, value: ir.Value, members: set[ir.Operation]) -> bool:
        return any(self._is_outside(_top_level(use.owner.operation, self._function), members) for use in value.uses)

    def _is_outside(self, user: ir.Operation, members: set[ir.Operation]) -> bool:
        """Whether a user is neither a member nor a scalar or constant that only members use."""
        if user in self._cloned:
            return any(self._leaves(value, members) for value in user.results)
        return user not in members

    def _arguments(self, group: Group, members: set[ir.Operation]) -> tuple[list[ir.Value], list[ir.Value]]:
        activations: dict[ir.Value, None] = {}
        weights: dict[ir.Value, None] = {}
        pending = [value for op in reversed(group.ops) for value in reversed(self._reads(op))]
        while pending:
            value = pending.pop()
            op = defining_op(value)
            if op is None or op in members:
                continue
            if op not in self._cloned:
                activations.setdefault(value)
            elif is_weight(op):
                weights.setdefault(value)
            else:
                pending.extend(reversed(self._reads(op)))
        return list(activations), list(weights)

    def _body(self, group: Group, arguments: list[ir.Value], results: list[ir.Value]) -> str:
        signature = ", ".join(f"%arg{index}: {value.type}" for index, value in enumerate(arguments))
        types = ", ".join(str(value.type) for value in results)
        shell = ir.Module.parse(f"util.func public @{LAYER_SYMBOL}({signature}) -> ({types}) {{ util.unreachable }}")
        function = shell.body.operations[0].operation
        block = body_of(function)
        terminator = block.operations[0].operation
        mapping = dict(zip(arguments, block.arguments, strict=True))
        for op in group.ops:
            self._clone(op, mapping, ir.InsertionPoint(terminator))
        ir.Operation.create(
            "util.return", operands=[mapping[value] for value in results], ip=ir.InsertionPoint(terminator)
        )
        terminator.erase()
        return str(function.get_asm(use_local_scope=True))

    def _clone(self, op: ir.Operation, mapping: dict[ir.Value, ir.Value], point: ir.InsertionPoint) -> None:
        """Clone ``op`` after the constants it needs."""
        for value in self._reads(op):
            if value not in mapping:
                self._clone(source(value), mapping, point)
        clone = op.clone(ip=point)
        remap(clone, mapping)
        mapping.update(zip(op.results, clone.results, strict=True))

    def _unique_name(self, group: Group) -> str:
        nodes = node_names([group.root]) or node_names(group.ops) or (group.root.name,)
        stem = name = nodes[-1]
        suffix = self._suffixes.get(stem, 1)
        while name in self._names:
            suffix += 1
            name = f"{stem}#{suffix}"
        self._suffixes[stem] = suffix
        self._names.add(name)
        return name


def _top_level(op: ir.Operation, function: ir.Operation) -> ir.Operation:
    """The op of the function's own block that ``op`` is nested in."""
    while op.parent is not None and op.parent.operation != function:
        op = op.parent.operation
    return op


def _check_static(group: Group, values: Sequence[ir.Value], results: Sequence[ir.Value]) -> None:
    """Raise UnsupportedModelError if shapes inside a group are passed on, or only looked at, while the network runs."""
    dynamic = any(_is_dynamic(value) for value in values)
    if dynamic or not results:
        name = next(iter((*node_names([group.root]), *node_names(group.ops))), "")
        raise UnsupportedModelError(
            f"node '{name}' has a result whose shape is known only when it runs, which is not supported; "
            "make the shape a constant, or bind it, before exporting"
        )


def _is_dynamic(value: ir.Value) -> bool:
    """Whether a value is a size, or a tensor with one that is not known."""
    if isinstance(value.type, ir.RankedTensorType):
        return not is_static_tensor(value)
    return isinstance(value.type, ir.IndexType)


def _types(values: list[ir.Value]) -> tuple[TensorType, ...]:
    return tuple(TensorType.parse(str(value.type)) for value in values)


def _weight_name(value: ir.Value) -> str:
    return re.sub("^@", "", str(source(value).attributes["global"]))
