"""A layer's function while a routine rewrites it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.layouts import layouts_of
from sartor.codegen.ir.packing import Packing, Step
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.schema import schemas_of
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Rejected
from sartor.codegen.mlir.iree_compiler import ir, run_passes, shared_context
from sartor.codegen.mlir.operations import body_of
from sartor.codegen.mlir.rewriting.chain import Chain, chain_of, root_of
from sartor.codegen.mlir.rewriting.convert import convert_images
from sartor.codegen.mlir.snippet import first_error
from sartor.errors import CompileError

_GENERALIZE = "linalg-generalize-named-ops"


@dataclass
class Rewrite:
    """One function over activations, then weights, in which named ops are generalised to ``linalg.generic``.

    Attributes:
        module: holds the function alone.
        task: the layer.
        inputs: layout of each activation.
        outputs: layout of each result.
        packings: for each weight the steps from ONNX's layout so far.
    """

    module: ir.Module
    task: Task
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    packings: list[Packing]

    @staticmethod
    def plain(task: Task) -> Rewrite:
        """The layer in ONNX's layouts."""
        module = _copied(_generalised(task.body))
        return Rewrite(
            module, task, layouts_of(task.inputs), layouts_of(task.results), [Packing() for _ in task.weights]
        )

    @staticmethod
    def images(task: Task, layout: str) -> Rewrite | Rejected:
        """The layer with every image in ``layout``; Rejected with what ties it to ONNX's."""
        converted = convert_images(task, layout)
        if isinstance(converted, Rejected):
            return converted
        inputs, outputs = layouts_of(task.inputs, layout), layouts_of(task.results, layout)
        return Rewrite(converted.module, task, inputs, outputs, list(converted.packings))

    @property
    def function(self) -> ir.Operation:
        """The one function."""
        return self.module.body.operations[0].operation

    @property
    def root(self) -> ir.Operation:
        """The single reduction of the layer.

        Raises:
            RejectionError: if there is none, or several.
        """
        root = root_of(self.function)
        if root is None:
            raise RejectionError("the layer does not have exactly one reduction")
        return root

    @property
    def chain(self) -> Chain:
        """The root with its initial value and the elementwise ops that follow.

        Raises:
            RejectionError: if the root's initial value is no broadcast.
        """
        return chain_of(self.function, self.root)

    @property
    def weights(self) -> list[ir.Value]:
        """The arguments that are weights."""
        return list(body_of(self.function).arguments)[len(self.task.inputs) :]

    def weight_index(self, value: ir.Value) -> int | None:
        """Position of ``value`` among the weights; None if it is no weight or has several uses."""
        weights = self.weights
        return weights.index(value) if value in weights and len(list(value.uses)) == 1 else None

    def pack(self, index: int, steps: Iterable[Step], packed: str) -> None:
        """Add steps to a weight's packing; its argument gets the type ``packed``."""
        self.packings[index] = Packing((*self.packings[index].steps, *steps))
        with self.module.context:
            self.weights[index].set_type(ir.Type.parse(packed))

    def set_packing(self, index: int, steps: Iterable[Step]) -> None:
        """Set all packing steps of a weight from ONNX's layout, without changing its argument's type.

        Raises:
            RejectionError: if it is packed in another way, which another reader of it needs.
        """
        packing = Packing(tuple(steps))
        if self.packings[index] not in (Packing(), packing):
            raise RejectionError("a weight is read in two layouts")
        self.packings[index] = packing

    def extend_packing(self, index: int, steps: Iterable[Step]) -> None:
        """Add steps to a weight's packing, without changing its argument's type."""
        self.packings[index] = Packing((*self.packings[index].steps, *steps))

    def run_passes(self, *passes: str) -> None:
        """Run function passes on the layer.

        Raises:
            RejectionError: if one fails.
        """
        self._sign()
        try:
            run_passes(self.module, f"builtin.module(util.func({','.join(passes)}))")
        except CompileError as error:
            raise RejectionError(first_error(error)) from None

    def _sign(self) -> None:
        """Set the function's signature from its body."""
        block = body_of(self.function)
        returned = list(block.operations)[-1].operation.operands
        with self.module.context:
            arguments = [argument.type for argument in block.arguments]
            signature = ir.FunctionType.get(arguments, [value.type for value in returned])
            self.function.attributes["function_type"] = ir.TypeAttr.get(signature)

    def implementation(self, device: str) -> Implementation:
        """The current code, for a device.

        Raises:
            RejectionError: if it is not valid MLIR.
        """
        self._sign()
        try:
            self.module.operation.verify()
        except ir.MLIRError as error:
            raise RejectionError(first_error(error)) from None
        body = str(self.function.get_asm(use_local_scope=True))
        inputs = schemas_of(self.task.inputs, self.inputs, device)
        outputs = schemas_of(self.task.results, self.outputs, device)
        return Implementation(body, inputs, outputs, tuple(self.packings))


def rewritten(
    rewrite: Rewrite | Rejected, change: Callable[[Rewrite], None], target: Target
) -> Implementation | Rejected:
    """The code of a rewrite after ``change``; Rejected if the rewrite was, or if ``change`` raises RejectionError."""
    if isinstance(rewrite, Rejected):
        return rewrite
    try:
        change(rewrite)
        return rewrite.implementation(target.device)
    except RejectionError as error:
        return Rejected(error.reason)


# All variants of a task are made one after the other.
@functools.lru_cache(maxsize=1)
def _generalised(body: str) -> ir.Module:
    """A layer's module with named ops generalised; it is shared, so that nobody may change it.

    Raises:
        RejectionError: if the ops cannot be generalised.
    """
    module = ir.Module.parse(body, shared_context())
    try:
        run_passes(module, f"builtin.module(util.func({_GENERALIZE}))")
    except CompileError as error:
        raise RejectionError(first_error(error)) from None
    return module


def _copied(module: ir.Module) -> ir.Module:
    """A module that can be changed, with the same operations."""
    with module.context, ir.Location.unknown():
        copied = ir.Module.create()
        for view in module.body.operations:
            view.operation.clone(ip=ir.InsertionPoint(copied.body))
    return copied
