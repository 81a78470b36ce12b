"""Options that ask for several plans in one file, and functions that parse their values."""

from __future__ import annotations

import itertools
import logging
import platform
from collections.abc import Sequence

from sartor.cli.options.common import SIZE, read_target
from sartor.codegen.ir.target import Target
from sartor.devices import CPU, is_cpu
from sartor.errors import UsageError
from sartor.settings.size_range import OpenShapes, SizeRange
from sartor.several.settings import MOST_PLANS, Shapes

_LOG = logging.getLogger(__name__)
ALL = "all"
_ALL_LEVELS = {
    "x86_64": ("x86-64-v3", "x86-64-v4", "sapphirerapids"),
    "aarch64": ("aarch64:cortex-a53", "aarch64:neoverse-n1", "aarch64:neoverse-v1"),
}
_ISAS = {"amd64": "x86_64", "arm64": "aarch64"}


def read_targets(devices: Sequence[str] | None, cpu: str | None, arch: str | None) -> tuple[Target, ...]:
    """The targets of ``--target``, ``--cpu`` and ``--arch``: one for each device, of the CPU one for each level.

    Raises:
        UsageError: if a device is unknown, a level is missing, or an option is that of another device.
    """
    named = list(devices or [CPU])
    levels = _levels(cpu)
    if len(named) == 1 and len(levels) == 1:
        return (read_target(named[0], levels[0], arch),)
    if cpu is not None and CPU not in named:
        raise UsageError(f"--cpu is for --target cpu, not for '{', '.join(named)}'")
    if arch is not None and all(map(is_cpu, named)):
        raise UsageError("--arch is for the targets vulkan and cuda; name the CPU's level with --cpu")
    targets: list[Target] = []
    for device in named:
        own = levels if is_cpu(device) else [None]
        targets += [read_target(device, level, None if is_cpu(device) else arch) for level in own]
    return tuple(targets)


def _levels(cpu: str | None) -> Sequence[str | None]:
    if cpu is None:
        return [None]
    if cpu == ALL:
        machine = platform.machine().lower()
        isa = _ISAS.get(machine, machine)
        if isa not in _ALL_LEVELS:
            raise UsageError(f"--cpu {ALL} is not defined for {isa}; name the levels")
        return _ALL_LEVELS[isa]
    levels = cpu.split(",")
    if not all(levels):
        raise UsageError(f"--cpu '{cpu}' lacks a level, expected for example x86-64-v3,x86-64-v4")
    if ALL in levels:
        raise UsageError(f"--cpu '{cpu}' names levels beside '{ALL}', which stands for all of them; give it alone")
    return levels


def read_shape_sets(texts: Sequence[str] | None) -> tuple[Shapes, ...] | OpenShapes:
    """The bindings of the inputs' shapes, one for each plan, or those of a single plan for any size in some ranges.

    An input with one shape has it in all; those with several must have as many, and the first of each belong together.

    Raises:
        UsageError: if a text has another form, a range is empty, inputs have different numbers of shapes, or there are
            several shapes beside a range.
    """
    named: dict[str, list[tuple[int | SizeRange, ...]]] = {}
    for text in texts or ():
        name, equals, value = text.rpartition("=")
        if not (name and equals and value):
            raise UsageError(f"--shape '{text}' cannot be read, expected NAME=1,3,224,224")
        for shape in _shapes(text, value):
            if shape in named.setdefault(name, []):
                raise UsageError(f"--shape is given twice for '{name}' with the same sizes; give each once")
            named[name].append(shape)
    for name, shapes in named.items():
        if len({len(shape) for shape in shapes}) > 1:
            raise UsageError(f"--shape gives '{name}' shapes with different numbers of dimensions")
    counts = {name: len(shapes) for name, shapes in named.items() if len(shapes) > 1}
    if len(set(counts.values())) > 1:
        (one, few), (other, many), *_ = sorted(counts.items(), key=lambda item: item[1])[:: len(counts) - 1]
        raise UsageError(
            f"--shape gives '{one}' {few} shapes and '{other}' {many}; give each input one shape or the same number"
        )
    count = max(counts.values(), default=1)
    sets = [{name: shapes[index % len(shapes)] for name, shapes in named.items()} for index in range(count)]
    closed = tuple({name: _sizes_only(shape) for name, shape in shapes.items()} for shapes in sets)
    if closed == tuple(sets):
        return closed
    if count > 1:
        raise UsageError(
            "--shape gives several shapes beside a range, which is for any size by one plan; give one or the other"
        )
    _tell_of_ranges(sets[0])
    return sets[0]


def _sizes_only(shape: Sequence[int | SizeRange]) -> tuple[int, ...]:
    return tuple(size for size in shape if isinstance(size, int))


def _tell_of_ranges(shapes: OpenShapes) -> None:
    """Tell those who mean a plan for each size, as a range did in earlier versions, how to ask for that."""
    for name, shape in shapes.items():
        for size in shape:
            if isinstance(size, SizeRange) and (size.most - size.least) // size.multiple < MOST_PLANS:
                _LOG.warning(
                    "--shape %s has the range %s: one plan for any size in it; for a plan for each of some sizes name "
                    "them, as %d|%d",
                    *(name, size, size.least, size.most),
                )
                return


def _shapes(text: str, value: str) -> list[tuple[int | SizeRange, ...]]:
    """The shapes of one option, in which a size may be one of several, or a range."""
    sizes = [_sizes(text, part.strip()) for part in value.split(",")]
    if sum(len(size) > 1 for size in sizes) > 1:
        raise UsageError(
            f"--shape '{text}' has several sizes of several dimensions; give each shape by an option of its own"
        )
    return list(itertools.product(*sizes))


def _sizes(text: str, size: str) -> Sequence[int | SizeRange]:
    sizes = [part.strip() for part in size.split("|")]
    if all(map(SIZE.fullmatch, sizes)):
        return [*map(int, sizes)]
    opened = SizeRange.parse(size)
    if opened is None:
        raise UsageError(
            f"--shape '{text}' is no shape, expected numbers such as 1,3,224,224, a range of any size such as 1..8, or "
            "sizes such as 1|2|4"
        )
    return [opened]
