"""Parse MLIR text and insert it into a function."""

from __future__ import annotations

from collections.abc import Sequence

from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import body_of, remap


def inline(text: str, operands: Sequence[ir.Value], point: ir.InsertionPoint) -> list[ir.Value]:
    """Clone the body of a function before ``point``.

    Args:
        text: one ``util.func`` whose arguments have the types of ``operands``.
        operands: values for its arguments.
        point: where the ops are inserted.

        Returns:
            The values that the function returns.

    Raises:
        RejectionError: if the text is not valid MLIR.
    """
    try:
        module = ir.Module.parse(text)
    except ir.MLIRError as error:
        raise RejectionError(first_error(error)) from None
    block = body_of(module.body.operations[0].operation)
    mapping = dict(zip(block.arguments, operands, strict=True))
    *ops, terminator = [view.operation for view in block.operations]
    for op in ops:
        clone = op.clone(ip=point)
        remap(clone, mapping)
        mapping.update(zip(op.results, clone.results, strict=True))
    return [mapping[value] for value in terminator.operands]


def first_error(error: Exception) -> str:
    """The first error message of MLIR, without its location."""
    lines = str(error).splitlines()
    return next((line.partition("error: ")[2] for line in lines if "error: " in line), lines[0])


def tensor_type(shape: Sequence[int], element: ir.Type | str) -> str:
    """``tensor<4x3xf32>``."""
    return f"tensor<{''.join(f'{size}x' for size in shape)}{element}>"


def tensor_parts(value: ir.Value) -> tuple[tuple[int, ...], str]:
    """Shape and element type of a tensor."""
    tensor = ir.RankedTensorType(value.type)
    return tuple(tensor.shape), str(tensor.element_type)
