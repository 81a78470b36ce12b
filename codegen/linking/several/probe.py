"""Makes IREE's runtime read the CPU's features before a module asks for them.

The runtime reads them when a process creates its first executable; before that it answers that the CPU has none
(runtime/src/iree/hal/local/local_executable.c, IREE 3.13). So a module that asks creates an executable that every CPU
runs first.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from sartor.codegen.ir.target import Target
from sartor.codegen.mlir.iree_compiler import ir, translate
from sartor.codegen.mlir.operations import nested, symbol
from sartor.devices import CPU

_NAME = "cpu_probe"
_SOURCE = f"""
func.func @{_NAME}(%x: tensor<4xf32>) -> tensor<4xf32> {{
  %sum = arith.addf %x, %x : tensor<4xf32>
  return %sum : tensor<4xf32>
}}
"""
_UNAVAILABLE = 14


def probe_first(module: ir.Module, target: Target) -> None:
    """Let a module at IREE's phase ``hal`` create an executable before it asks for the CPU's features.

    Args:
        module: with one device.
        target: a level of the CPU.
    """
    with module.context, ir.Location.unknown(module.context):
        queries = _cpu_queries(module)
        first = next(queries, None)
        if first is None:
            return
        executable = ir.Module.parse(_executable(_any_cpu(target)))
        made = executable.body.operations[0].operation
        (binary,) = [view.operation for view in made.regions[0].blocks[0].operations if "data" in view.attributes]
        _create(f"@{symbol(made)}::@{symbol(binary)}", first)
        made.move_before(module.body.operations[0].operation)


def _cpu_queries(module: ir.Module) -> Iterator[ir.Operation]:
    for view in module.body.operations:
        if view.operation.name == "util.initializer":
            for op in nested(view.operation):
                if op.name == "hal.device.query" and "hal.cpu" in str(op.attributes["category"]):
                    yield op


def _create(reference: str, before: ir.Operation) -> None:
    """Create an executable before an op, on the device of that op, and fail if there is none, so that it is kept."""
    text = f"""util.initializer {{
      %first = arith.constant 0 : index
      %device = hal.devices.get %first : !hal.device
      %any = arith.constant -1 : i64
      %made = hal.executable.create device(%device : !hal.device) affinity(%any) target({reference}) : !hal.executable
      %null = util.null : !hal.executable
      %missing = util.cmp.eq %made, %null : !hal.executable
      %unavailable = arith.constant {_UNAVAILABLE} : i32
      %ok = arith.constant 0 : i32
      %status = arith.select %missing, %unavailable, %ok : i32
      util.status.check_ok %status, "no executable can be created"
      util.return
    }}"""
    module = ir.Module.parse(text)
    ops = [view.operation for view in module.body.operations[0].operation.regions[0].blocks[0].operations]
    for op in ops[:-1]:
        op.move_before(before)
    made = next(op for op in ops if op.name == "hal.executable.create")
    made.operands[0] = before.operands[0]


def _any_cpu(target: Target) -> Target:
    """The level of every CPU of a target's instruction set."""
    return Target.create(CPU, f"{target.isa}:generic" if target.isa else "generic")


@functools.cache
def _executable(target: Target) -> str:
    """Text of an executable with its machine code."""
    with ir.Context():
        module = ir.Module.parse(translate(_SOURCE, target.flags, to="hal"))
        ops = [view.operation for view in module.body.operations]
        executable = next(op for op in ops if op.name == "hal.executable")
        executable.attributes["sym_name"] = ir.StringAttr.get(_NAME)
        return str(executable.get_asm(use_local_scope=True))
