"""CPU levels: what their code needs of a CPU, and how a module asks for it when it is loaded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sartor.codegen.ir.machines.cpu_queries import queried, unknowable
from sartor.codegen.ir.target import Target, cpu_features
from sartor.codegen.mlir.dispatches import executable_target

_FORMAT = re.compile(r'#hal\.executable\.target<"[^"]*", "([^"]*)"')


@dataclass(frozen=True)
class Level:
    """A CPU level of a module that has several.

    Attributes:
        target: what its code is compiled for.
        needs: CPU features, by LLVM's names, that its code uses.
        format: IREE's name of the executables' format, which names the instruction set.
    """

    target: Target
    needs: tuple[str, ...]
    format: str

    @property
    def name(self) -> str:
        """The level as users name it."""
        return self.target.architecture

    @property
    def symbol(self) -> str:
        """A plain identifier, unique among the levels of a module."""
        return re.sub(r"[^A-Za-z0-9]", "_", self.name)

    def query(self, device: str, result: str) -> list[str]:
        """Lines that ask a device whether it runs the level's code.

        Args:
            device: the value of the device.
            result: the value of the answer, an i1.
        """
        lines = [f"{result}_0, {result}_v0 = {_query(device, 'hal.executable.format', self.format)} : i1, i1 = false"]
        asked = [f"{result}_v0"]
        for index, feature in enumerate(self.needs, 1):
            lines.append(f"{result}_{index}, {result}_v{index} = {_query(device, 'hal.cpu', feature)} : i1, i1 = false")
            asked.append(f"{result}_v{index}")
        lines += _all_of(asked, result)
        return lines


def portable(target: Target) -> Target:
    """A CPU target without the features that a module cannot ask for when it is loaded."""
    return replace(target, without=unknowable(cpu_features(executable_target(target))))


def level_of(target: Target) -> Level:
    """The level of a CPU target, which is ``portable``."""
    attribute = executable_target(target)
    match = _FORMAT.match(attribute)
    if match is None:
        raise ValueError(f"{target} has no format of executables")
    return Level(target, queried(cpu_features(attribute)), match[1])


def best_first(levels: Sequence[Level]) -> list[Level]:
    """Levels in the order in which a module tries them: one that needs more than another comes first."""
    return sorted(levels, key=lambda level: -len(level.needs))


def _query(device: str, category: str, key: str) -> str:
    return f'hal.device.query<{device} : !hal.device> key("{category}" :: "{key}")'


def _all_of(values: Sequence[str], result: str) -> list[str]:
    lines, known = [], values[0]
    for index, value in enumerate(values[1:]):
        name = result if index == len(values) - 2 else f"{result}_and{index}"
        lines.append(f"{name} = arith.andi {known}, {value} : i1")
        known = name
    if len(values) == 1:
        lines.append(f"%true_{result[1:]} = arith.constant true")
        lines.append(f"{result} = arith.andi {known}, %true_{result[1:]} : i1")
    return lines
