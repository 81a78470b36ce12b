"""Keeps modules from writing into their caller's inputs.

IREE lets operations that work in place, such as a sort or a scatter, overwrite an input if nothing reads it later,
though the caller may (docs/records/iree-notes.md). A transfer to the device on which the input is already keeps that
from happening: IREE makes a copy of what is overwritten, and nothing of what is only read.
"""

from __future__ import annotations

from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import nested

HERE = "@__device_0"
"""The device of a module."""


def as_own(name: str, borrowed: str, tensor: object) -> str:
    """A line of flow-level MLIR that defines ``name`` as a value of the module's own, equal to an input."""
    return f"{name} = flow.tensor.transfer {borrowed} : {tensor} to #hal.device.affinity<{HERE}>"


def protect_inputs(module: ir.Module) -> None:
    """Do the same to all inputs of a module that IREE has not taken apart yet, and so has no device."""
    for function in module.body.operations:
        for op in [*nested(function.operation)]:
            if op.name == "hal.tensor.import":
                _protect(op)


def _protect(taken: ir.Operation) -> None:
    # IREE's bindings create another operation than the one that is named, so it is parsed and copied.
    tensor = taken.result.type
    text = f"%own = flow.tensor.transfer %borrowed : {tensor} to #hal.device.promise<{HERE}>"
    parsed = ir.Module.parse(
        f"util.func private @own(%borrowed: {tensor}) -> {tensor} {{ {text}\n util.return %own : {tensor} }}"
    )
    model = next(op for op in nested(parsed.operation) if op.name == "flow.tensor.transfer")
    own = model.clone(ip=ir.InsertionPoint.after(taken)).operation
    own.operands[0] = taken.result
    taken.result.replace_all_uses_except(own.result, own)
