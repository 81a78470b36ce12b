"""Tensors of open sizes as arguments of functions.

IREE 3.13 expands such arguments to a tensor and its sizes, without telling the type of a ``util.func``: "entry block
must have 4 arguments to match function signature". So they are views while a function is lowered, and imported and
exported with sizes that the function takes beside them; afterwards they become tensors.
"""

from __future__ import annotations

from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import body_of, source
from sartor.errors import CompileError

VIEW = "!hal.buffer_view"
"""The type of what stands for a tensor of open size."""
_IMPORT, _EXPORT = "hal.tensor.import", "hal.tensor.export"


def take_out_views(module: ir.Module) -> None:
    """Make tensors of the views that functions take and give, in place.

    Raises:
        CompileError: if a function gives what it takes.
    """
    with ir.Location.unknown(module.context):
        for view in module.body.operations:
            function = view.operation
            if function.name == "util.func" and VIEW in str(function.attributes["function_type"]):
                _take_out(function)


def _take_out(function: ir.Operation) -> None:
    block = body_of(function)
    for argument in block.arguments:
        if str(argument.type) == VIEW:
            _make_tensor(argument)
    returned = list(block.operations)[-1].operation
    for index, value in enumerate(returned.operands):
        if str(value.type) == VIEW:
            export = source(value)
            returned.operands[index] = export.operands[0]
            if not list(export.results[0].uses):
                export.erase()
    kinds = [[each.type for each in values] for values in (block.arguments, returned.operands)]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(*kinds))


def _make_tensor(argument: ir.Value) -> None:
    """Give an argument the type that it is imported as.

    Raises:
        CompileError: if it is returned as it is, so that nothing tells its type.
    """
    imports = [use.owner.operation for use in argument.uses]
    if any(each.name != _IMPORT for each in imports):
        raise CompileError("a layer of any size gives what it takes")
    kind = imports[0].results[0].type if imports else argument.type
    argument.set_type(kind)
    for each in imports:
        each.results[0].replace_all_uses_with(argument)
        each.erase()
