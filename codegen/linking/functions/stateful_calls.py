"""Functions that keep the states of a network around an entry that takes and gives them, whatever computes it.

Code that is not stitched layer by layer is called as it is. Each call gives new memory for a state, which the module
keeps in place of the old: nothing is copied, and nothing that a caller holds is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sartor.codegen.ir.layer import ENTRY, TensorType
from sartor.codegen.ir.states import StatePair
from sartor.codegen.linking.functions.entry_functions import await_fence, new_fence, typed_views, views
from sartor.codegen.linking.functions.quoted import quoted
from sartor.codegen.linking.functions.stateful import (
    APART,
    BEGUN,
    RESTORE_SUFFIX,
    START,
    STATEFUL_SUFFIX,
    STATES_SUFFIX,
    barrier,
    beginning,
    start_lines,
)
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import symbol

_ASYNC = f"{ENTRY}$async"
_VIEW = "!hal.buffer_view"


@dataclass(frozen=True)
class StatefulCalls:
    """The functions of a network's module, which has an entry with coarse fences.

    Attributes:
        inputs: types of the entry's inputs by name, in order.
        outputs: number of its outputs.
        states: its pairs of inputs and outputs.
    """

    inputs: Mapping[str, TensorType]
    outputs: int
    states: tuple[StatePair, ...]

    def add_to(self, module: ir.Module) -> None:
        """Add the functions, and the globals that hold the states, to a module."""
        types = ", ".join(self._operand_types)
        declared = f"util.func private @{_ASYNC}({types}) -> ({views(self.outputs)})"
        parsed = ir.Module.parse("\n".join(["module {", declared, *self.texts(), "}"]), module.context)
        end = ir.InsertionPoint(module.body)
        for view in parsed.body.operations:
            op = view.operation
            if "sym_name" not in op.attributes or symbol(op) != _ASYNC:
                op.clone(ip=end)

    def texts(self) -> list[str]:
        """The functions and globals in MLIR, for a module that has the entry."""
        return [
            *(f"util.global private mutable {_held(number)} : {_VIEW}" for number in range(len(self.states))),
            self._start(),
            *beginning(ENTRY, []),
            self._give(),
            self._replace(),
            self._step(),
        ]

    @property
    def _operand_types(self) -> list[str]:
        return [*([_VIEW] * len(self.inputs)), "!hal.fence", "!hal.fence"]

    def _start(self) -> str:
        ports = [list(self.inputs.items())[pair.input] for pair in self.states]
        types = [tensor for _, tensor in ports]
        starts = [f"%start{number}" for number in range(len(ports))]
        lines = [*new_fence("%signal")]
        for name, state, tensor in zip(starts, self.states, types, strict=True):
            lines += start_lines(name, state.start, tensor)
        lines.append(barrier("%b", starts, types))
        for number, (name, tensor) in enumerate(ports):
            begun = f"%b#{number}" if len(ports) > 1 else "%b"
            lines += [
                f"%view{number} = hal.tensor.export {begun} {quoted(name)} : {tensor} -> {_VIEW}",
                f"util.global.store %view{number}, {_held(number)} : {_VIEW}",
            ]
        heading = f"private @{START}() attributes {{{APART}}}"
        return "\n".join([f"util.func {heading} {{", *lines, *await_fence("%signal"), "util.return", "}"])

    def _give(self) -> str:
        count = len(self.states)
        loads = [f"%view{number} = util.global.load {_held(number)} : {_VIEW}" for number in range(count)]
        given = ", ".join(f"%view{number}" for number in range(count))
        heading = f"public @{ENTRY}{STATES_SUFFIX}() -> ({views(count)}) attributes {{iree.abi.stub}}"
        return "\n".join([f"util.func {heading} {{", *BEGUN, *loads, f"util.return {given} : {views(count)}", "}"])

    def _replace(self) -> str:
        taken = [f"%in{number}" for number in range(len(self.states))]
        stores = [f"util.global.store {view}, {_held(number)} : {_VIEW}" for number, view in enumerate(taken)]
        heading = f"public @{ENTRY}{RESTORE_SUFFIX}({typed_views(taken)}) attributes {{iree.abi.stub}}"
        return "\n".join([f"util.func {heading} {{", *BEGUN, *stores, "util.return", "}"])

    def _step(self) -> str:
        read = {state.input: number for number, state in enumerate(self.states)}
        written = {state.output: number for number, state in enumerate(self.states)}
        taken = [f"%in{index}" for index in range(len(self.inputs)) if index not in read]
        many = self.outputs > 1
        results = [f"%r#{index}" if many else "%r" for index in range(self.outputs)]
        given = [result for index, result in enumerate(results) if index not in written]
        operands = ", ".join([*(f"%in{index}" for index in range(len(self.inputs))), "%null", "%signal"])
        heading = f"public @{ENTRY}{STATEFUL_SUFFIX}({typed_views(taken)}) -> ({views(len(given))})"
        return "\n".join(
            [
                f"util.func {heading} attributes {{iree.abi.stub}} {{",
                *BEGUN,
                "%null = util.null : !hal.fence",
                *new_fence("%signal"),
                *(f"%in{index} = util.global.load {_held(number)} : {_VIEW}" for index, number in read.items()),
                f"%r{f':{self.outputs}' if many else ''} = util.call @{_ASYNC}({operands}) : "
                f"({', '.join(self._operand_types)}) -> ({views(self.outputs)})",
                *await_fence("%signal"),
                *(
                    f"util.global.store {results[index]}, {_held(number)} : {_VIEW}"
                    for index, number in written.items()
                ),
                f"util.return {', '.join(given)} : {views(len(given))}" if given else "util.return",
                "}",
            ]
        )


def _held(number: int) -> str:
    """The global with the view of a state that the next call reads."""
    return f"@state${number}"
