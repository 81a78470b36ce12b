"""Tensors of open sizes as arguments of functions.

IREE 3.13 expands such arguments to a tensor and its sizes, without telling the type of a ``util.func``: "entry block
must have 4 arguments to match function signature". So they are views while a function is lowered, and imported and
exported with sizes that the function takes beside them; afterwards they become tensors. What a function gives as it
takes it, or does not read as it has no elements, is no longer imported then, so types are noted before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from sartor.codegen.ir.layer import VIEW
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import body_of, source, symbol

_IMPORT, _EXPORT = "hal.tensor.import", "hal.tensor.export"
_Types: TypeAlias = Mapping[tuple[str, int], str]
"""The types of tensors that views stand for, by a function's symbol and the number of its argument."""


def imported_types(text: str) -> _Types:
    """The types by which the functions of a module import the views that they take, before it is lowered."""
    types: dict[tuple[str, int], str] = {}
    module = ir.Module.parse(text)
    for function in _functions(module):
        for index, argument in enumerate(body_of(function).arguments):
            kinds = (str(user.results[0].type) for user in _users(argument) if user.name == _IMPORT)
            if (kind := next(kinds, None)) is not None:
                types[symbol(function), index] = kind
    return types


def take_out_views(module: ir.Module, types: _Types) -> None:
    """Make tensors of the views that functions take and give, in place."""
    with ir.Location.unknown(module.context):
        for function in _functions(module):
            _take_out(function, types)


def _functions(module: ir.Module) -> list[ir.Operation]:
    """The functions that take or give views."""
    ops = [view.operation for view in module.body.operations]
    return [op for op in ops if op.name == "util.func" and VIEW in str(op.attributes["function_type"])]


def _take_out(function: ir.Operation, types: _Types) -> None:
    block = body_of(function)
    for index, argument in enumerate(block.arguments):
        if str(argument.type) == VIEW:
            _make_tensor(argument, types[symbol(function), index])
    returned = list(block.operations)[-1].operation
    for index, value in enumerate(returned.operands):
        if str(value.type) == VIEW:
            export = source(value)
            returned.operands[index] = export.operands[0]
            if not list(export.results[0].uses):
                export.erase()
    kinds = [[value.type for value in values] for values in (block.arguments, returned.operands)]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(*kinds))


def _make_tensor(argument: ir.Value, kind: str) -> None:
    """Give an argument a type, in place of what it is imported as."""
    imports = [user for user in _users(argument) if user.name == _IMPORT]
    argument.set_type(ir.Type.parse(kind))
    for import_op in imports:
        import_op.results[0].replace_all_uses_with(argument)
        import_op.erase()


def _users(value: ir.Value) -> list[ir.Operation]:
    return [use.owner.operation for use in value.uses]
