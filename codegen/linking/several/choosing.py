"""The functions that choose a plan: by the CPU when the module is loaded, and by the inputs' shapes in each call."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sartor.codegen.ir.layer import ENTRY
from sartor.codegen.linking.functions.entries import Entry
from sartor.codegen.linking.functions.entry_functions import (
    BOUND_SUFFIX,
    stub_attributes,
    synchronous,
    typed_views,
    views,
    with_fences,
)
from sartor.codegen.linking.several.level import Level

LEVEL_FUNCTION = f"{ENTRY}$level"
"""The function that gives the number of the level that was chosen, the best being 0; without arguments."""

_LEVEL = "chosen_level"
_DEVICE = re.compile(r"@(\S+) = ")

Shapes = tuple[tuple[int, ...], ...]


def level_global(levels: Sequence[Level], devices: str) -> str:
    """The global with the number of the level that is chosen when the module is loaded, and a function that gives it.

    Args:
        levels: the best first.
        devices: the globals of the module's devices, of which there is one.
    """
    match = _DEVICE.search(devices)
    if match is None:
        raise ValueError("the module has no device")
    lines = [f"%device = util.global.load @{match[1]} : !hal.device", f"%chosen0 = arith.constant {len(levels)} : i32"]
    for index, (number, level) in enumerate(reversed([*enumerate(levels)])):
        lines += [
            *level.query("%device", f"%asked{index}"),
            f"%number{index} = arith.constant {number} : i32",
            f"%chosen{index + 1} = arith.select %asked{index}, %number{index}, %chosen{index} : i32",
        ]
    return "\n".join(
        [
            f"util.global private @{_LEVEL} : i32",
            "util.initializer {",
            *lines,
            f"util.global.store %chosen{len(levels)}, @{_LEVEL} : i32",
            "util.return",
            "}",
            f"util.func public @{LEVEL_FUNCTION}() -> i32 attributes {{iree.abi.stub}} {{",
            f"%level = util.global.load @{_LEVEL} : i32",
            "util.return %level : i32",
            "}",
        ]
    )


def choosing_functions(
    entry: Entry, levels: Sequence[str], choices: Mapping[tuple[str | None, Shapes], str], manifest: str
) -> list[str]:
    """The functions that callers call: with fences, and without.

    Args:
        entry: that of any plan.
        levels: names, the best first; none if there is nothing to choose.
        choices: the plans' functions with fences, by the level's name (or None) and the shapes of the inputs; of each
            level those of the same shapes. The first is called with inputs of a shape that no plan has, and reports
            that.
        manifest: JSON text that the functions carry; empty for none.
    """
    inputs, outputs = len(entry.inputs), len(entry.outputs)
    head = with_fences(f"public @{ENTRY}$async", inputs, outputs, stub_attributes(manifest))
    shapes = [*dict.fromkeys(shape for _, shape in choices)]
    lines, bodies = [f"{head} {{", *_sizes(shapes)], list[list[str]]()
    for number, level in enumerate(levels or [None]):
        body = list[str]()
        for index in [*range(1, len(shapes)), 0]:
            own = f"{number}_{index}"
            called = _call(choices[level, shapes[index]], f"%r{own}", inputs, outputs)
            branch = [f"cf.cond_br %is_shape{index}, ^call{own}, ^other{own}", f"^call{own}:"]
            body += [*branch, *called, f"^other{own}:"] if index else called
        bodies.append(body)
    return ["\n".join([*lines, *_by_level(bodies), "}"]), synchronous(ENTRY, inputs, outputs, manifest)]


def choosing_bound(entry: Entry, functions: Sequence[str]) -> str:
    """The function that writes into given buffers, and chooses by the CPU.

    Args:
        entry: that of any plan.
        functions: those of the plans that do so, that of the best level first.
    """
    names = [f"%in{index}" for index in range(len(entry.inputs) + len(entry.outputs))]
    types = ", ".join(["!hal.buffer_view"] * len(names))
    bodies = [[f"util.call @{function}({', '.join(names)}) : ({types}) -> ()", "util.return"] for function in functions]
    heading = f"util.func public @{ENTRY}{BOUND_SUFFIX}({typed_views(names)}) attributes {{iree.abi.stub}}"
    return "\n".join([f"{heading} {{", *_by_level(bodies), "}"])


def _by_level(bodies: Sequence[Sequence[str]]) -> list[str]:
    """Lines that go on with those of the level that was chosen, each of which return; the best level's come first."""
    if len(bodies) == 1:
        return [*bodies[0]]
    lines = [f"%level = util.global.load @{_LEVEL} : i32"]
    for number, body in enumerate(bodies[:-1]):
        lines += [
            f"%number{number} = arith.constant {number} : i32",
            f"%is_level{number} = arith.cmpi eq, %level, %number{number} : i32",
            f"cf.cond_br %is_level{number}, ^level{number}, ^worse{number}",
            f"^level{number}:",
            *body,
            f"^worse{number}:",
        ]
    return [*lines, *bodies[-1]]


def _call(function: str, result: str, inputs: int, outputs: int) -> list[str]:
    """Call a plan's function and return what it gives."""
    operands = ", ".join([*(f"%in{index}" for index in range(inputs)), "%wait", "%signal"])
    types = ", ".join([*(["!hal.buffer_view"] * inputs), "!hal.fence", "!hal.fence"])
    many = f":{outputs}" if outputs > 1 else ""
    returned = ", ".join(f"{result}#{index}" if many else result for index in range(outputs))
    return [
        f"{result}{many} = util.call @{function}({operands}) : ({types}) -> ({views(outputs)})",
        f"util.return {returned} : {views(outputs)}",
    ]


def _sizes(shapes: Sequence[Shapes]) -> list[str]:
    """Lines that find whether the inputs have each of the shapes but the first, by the sizes in which they differ."""
    differing = [
        (position, axis)
        for position, (first, *_) in enumerate(zip(*shapes, strict=True))
        for axis in range(len(first))
        if len({shape[position][axis] for shape in shapes}) > 1
    ]
    lines = ["%yes = arith.constant true"]
    for position, axis in differing:
        view = f"hal.buffer_view.dim<%in{position} : !hal.buffer_view>[{axis}] : index"
        lines.append(f"%size{position}_{axis} = {view}")
    for index, shape in enumerate(shapes[1:], 1):
        known = "%yes"
        for place, (position, axis) in enumerate(differing):
            name = f"%is_shape{index}" if place == len(differing) - 1 else f"%so_far{index}_{place}"
            own = f"{index}_{position}_{axis}"
            lines += [
                f"%wanted{own} = arith.constant {shape[position][axis]} : index",
                f"%same{own} = arith.cmpi eq, %size{position}_{axis}, %wanted{own} : index",
                f"{name} = arith.andi {known}, %same{own} : i1",
            ]
            known = name
    return lines
