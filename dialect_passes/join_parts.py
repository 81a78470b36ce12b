"""Join modules that compute consecutive parts of a network to the module of the whole, as IREE would have made it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import body_of, defining_op, entry_function, symbol
from sartor.dialect_passes.dump import bytecode

_IMPORT, _BARRIER, _EXPORT, _RETURN = "hal.tensor.import", "hal.tensor.barrier", "hal.tensor.export", "util.return"
_FENCED = 'inlining_policy = #util.inline.never, iree.abi.model = "coarse-fences", iree.abi.stub'
# What IREE 3.13 makes of a function, without its operations.
_SHELL = """
util.func public @main_graph$async({arguments}%wait: !hal.fence, %signal: !hal.fence){results}
    attributes {{{fenced}}} {{
  %begin = util.null : !hal.fence
  util.unreachable
}}
util.func public @main_graph({parameters}){results} attributes {{iree.abi.stub}} {{
  %0 = util.null : !hal.fence
  %c-1_i32 = arith.constant -1 : i32
  %c0 = arith.constant 0 : index
  %device_0 = hal.devices.get %c0 : !hal.device
  %fence = hal.fence.create device(%device_0 : !hal.device) flags("None") : !hal.fence
  %1:{count} = util.call @main_graph$async({names}%0, %fence) : ({types}!hal.fence, !hal.fence){results}
  %status = hal.fence.await until([%fence]) timeout_millis(%c-1_i32) flags("None") : i32
  util.return {returned} : {views}
}}
"""


@dataclass(frozen=True)
class Part:
    """A part of a network as IREE lowered it to linalg.

    Attributes:
        bytecode: of its module.
        inputs: names of its inputs, which are the network's or earlier parts' outputs.
        outputs: names of its outputs.
    """

    bytecode: bytes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def join_parts(parts: Sequence[Part], inputs: Sequence[str], outputs: Sequence[str]) -> bytes | None:
    """The module of the network with these inputs and outputs, as bytecode.

    None if IREE made something else of a part than operations on tensors, such as an output that is an input.
    """
    context = ir.Context()
    with context, ir.Location.unknown(context):
        opened = [_opened(part) for part in parts]
        parts_opened = [part for part in opened if part is not None]
        if len(parts_opened) < len(opened) or not _fit(parts_opened, outputs):
            return None
        joiner = _Joiner(inputs, outputs)
        for part in parts_opened:
            joiner.add(part)
        joiner.finish()
        return bytecode(joiner.module)


@dataclass(frozen=True)
class _Opened:
    """A part's module, and the operations at its borders.

    Attributes:
        module: the module.
        imports: of inputs that are used, with their names.
        barrier: at which all results wait.
        exports: of all results, by name.
        returned: the end of the function.
    """

    module: ir.Module
    imports: list[tuple[str, ir.Operation]]
    barrier: ir.Operation
    exports: dict[str, ir.Operation]
    returned: ir.Operation

    def tensor(self, name: str) -> ir.Value:
        """The result of this name, before the barrier."""
        index = list(self.barrier.results).index(self.exports[name].operands[0])
        return self.barrier.operands[index]


def _opened(part: Part) -> _Opened | None:
    """Look at a part; None if it has something else than tensors at its borders."""
    module = ir.Module.parse(part.bytecode)
    if any(view.operation.name not in ("util.func", "util.global") for view in module.body.operations):
        return None
    body = body_of(entry_function(module))
    ops = [view.operation for view in body.operations]
    barriers = [op for op in ops if op.name == _BARRIER]
    exports = [defining_op(view) for view in ops[-1].operands]
    exports_found = [op for op in exports if op is not None and op.name == _EXPORT]
    if len(barriers) != 1 or len(exports_found) < len(part.outputs):
        return None
    names = dict(zip(body.arguments, part.inputs, strict=False))
    imports = [(names[op.operands[0]], op) for op in ops if op.name == _IMPORT]
    return _Opened(module, imports, barriers[0], dict(zip(part.outputs, exports_found, strict=True)), ops[-1])


def _fit(parts: Sequence[_Opened], outputs: Sequence[str]) -> bool:
    """Whether parts compute all outputs, and every part reads what an earlier one computes, in the same type."""
    types: dict[str, ir.Type] = {}
    for part in parts:
        if any(types.setdefault(name, op.results[0].type) != op.results[0].type for name, op in part.imports):
            return False
        if any(types.setdefault(name, part.tensor(name).type) != part.tensor(name).type for name in part.exports):
            return False
    return all(any(name in part.exports for part in parts) for name in outputs)


def _shell(inputs: int, outputs: int) -> str:
    views = ["!hal.buffer_view"] * outputs
    names = [f"%arg{index}" for index in range(inputs)]
    parameters = [f"{name}: !hal.buffer_view" for name in names]
    return _SHELL.format(
        arguments="".join(f"{parameter}, " for parameter in parameters),
        parameters=", ".join(parameters),
        names="".join(f"{name}, " for name in names),
        types="!hal.buffer_view, " * inputs,
        results=f" -> ({', '.join(views)})",
        fenced=_FENCED,
        count=outputs,
        returned=", ".join(f"%1#{index}" for index in range(outputs)),
        views=", ".join(views),
    )


class _Joiner:
    """Moves the operations of parts into one function, which takes one step for each."""

    def __init__(self, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self.module = ir.Module.parse(_shell(len(inputs), len(outputs)))
        self._outputs = outputs
        self._block = body_of(entry_function(self.module))
        self._begin, self._end = (view.operation for view in self._block.operations)
        *views, self._wait, self._signal = self._block.arguments
        self._views: dict[str, ir.Value] = dict(zip(inputs, views, strict=True))
        self._imports: dict[str, ir.Operation] = {}
        self._tensors: dict[str, ir.Value] = {}
        self._exports: dict[str, ir.Operation] = {}
        self._globals: set[str] = set()

    def add(self, part: _Opened) -> None:
        """Append a part, of which nothing is left that uses what was moved."""
        for view in list(part.module.body.operations):
            op = view.operation
            if op.name == "util.global" and symbol(op) not in self._globals:
                self._globals.add(symbol(op))
                op.move_before(self.module.body.operations[0].operation)
        body = body_of(entry_function(part.module))
        for name, op in part.imports:
            self._take_import(name, op)
        # A part may return what it imported, which is another part's by now.
        tensors = {name: part.tensor(name) for name in part.exports}
        part.returned.erase()
        for name, export in part.exports.items():
            self._take_export(name, export, tensors[name])
        part.barrier.erase()
        for view in list(body.operations):
            view.operation.move_before(self._end)

    def _take_import(self, name: str, op: ir.Operation) -> None:
        """Let a part read a tensor where it imports it; the network's own inputs are imported once."""
        tensor = op.results[0]
        if name in self._tensors:
            tensor.replace_all_uses_with(self._tensors[name])
            op.erase()
            return
        op.operands[0] = self._views[name]
        op.operands[len(op.operands) - 1] = self._wait
        op.move_before(self._begin)
        self._tensors[name], self._imports[name] = tensor, op

    def _take_export(self, name: str, export: ir.Operation, tensor: ir.Value) -> None:
        self._tensors[name] = tensor
        if name in self._outputs:
            export.operands[0] = tensor
            export.move_before(self._end)
            self._exports[name] = export
        else:
            export.erase()

    def finish(self) -> None:
        """Put imports of inputs in their order, and export the outputs."""
        for name in self._views:
            if name in self._imports:
                self._imports[name].move_before(self._begin)
        self._begin.erase()
        tensors = [self._tensors[name] for name in self._outputs]
        types, point = [tensor.type for tensor in tensors], ir.InsertionPoint(self._end)
        barrier = ir.Operation.create(_BARRIER, results=types, operands=[*tensors, self._signal], ip=point)
        for name, result in zip(self._outputs, barrier.results, strict=True):
            self._exports[name].operands[0] = result
            self._exports[name].move_before(self._end)
        views = [self._exports[name].results[0] for name in self._outputs]
        ir.Operation.create(_RETURN, operands=views, ip=point)
        self._end.erase()
