"""Executables with a variant for each CPU level, of which IREE's runtime takes the first that the machine runs.

IREE links all executables to one per level, and calls their code by its position there. Command buffers are recorded
when a module is loaded, for the plans of all levels. So each executable has a variant for each level, at the same
position: the code of a level, and for the others a function that does nothing, which is never called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from sartor.codegen.linking.several.level import Level
from sartor.codegen.mlir.dispatches import executable_target
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import body_of, nested, symbol
from sartor.errors import CompileError

_EXECUTABLE, _VARIANT = "hal.executable", "hal.executable.variant"
_EXPORT, _CONDITION = "hal.executable.export", "hal.executable.condition"
_POINTS = "entry_points"


def with_variants(levels: Sequence[Level], prefixes: Mapping[str, Level]) -> Callable[[ir.Module], None]:
    """A function that gives each executable of a module at IREE's phase ``executable-sources`` its variants.

    Args:
        levels: the best first.
        prefixes: the level of the executables whose names begin with a text; others have code for each level.
    """

    def edit(module: ir.Module) -> None:
        with module.context, ir.Location.unknown(module.context):
            symbols: dict[str, list[str]] = {}
            for op in _named(module.operation, _EXECUTABLE):
                own = next((level for start, level in prefixes.items() if symbol(op).startswith(start)), None)
                symbols |= _complete(op, levels, own)
            _call_all(module, symbols)

    return edit


def _complete(executable: ir.Operation, levels: Sequence[Level], own: Level | None) -> dict[str, list[str]]:
    """Give an executable its variants; returns, by each reference to an export, those of all levels.

    Raises:
        CompileError: if there is no code for a level that should have it.
    """
    name, variants = symbol(executable), _named(executable, _VARIANT)
    written = {str(variant.attributes["target"]): variant for variant in variants}
    exports = [symbol(export) for export in _named(variants[0], _EXPORT)]
    variants_of_points = {
        f"@{name}::@{symbol(variant)}::@{export}": [f"@{name}::@{level.symbol}::@{export}" for level in levels]
        for variant in variants
        for export in exports
    }
    skeleton = _skeleton(variants[0], levels)
    kept: list[ir.Operation] = []
    for level, hollow in zip(levels, _named(skeleton.body.operations[0].operation, _VARIANT), strict=True):
        if own not in (None, level):
            kept.append(hollow)
            continue
        code = written.get(str(hollow.attributes["target"]))
        if code is None:
            raise CompileError(f"the executable '{name}' has no code for {level.name}")
        (condition,) = _named(hollow, _CONDITION)
        condition.move_before(body_of(code).operations[0].operation)
        code.attributes["sym_name"] = hollow.attributes["sym_name"]
        kept.append(code)
    end = list(body_of(executable).operations)[-1].operation
    for variant in kept:
        variant.move_before(end)
    for variant in _named(executable, _VARIANT)[: -len(kept)]:
        variant.erase()
    return variants_of_points


def _skeleton(like: ir.Operation, levels: Sequence[Level]) -> ir.Module:
    """An executable with a variant for each level, which have the exports of ``like`` and functions that do nothing."""
    variants = "\n".join(
        f"hal.executable.variant public @{level.symbol} target({executable_target(level.target)}) {{\n"
        f"{_condition(level)}\n{_hollow(like)}\n}}"
        for level in levels
    )
    return ir.Module.parse(f"hal.executable private @skeleton {{\n{variants}\n}}")


def _condition(level: Level) -> str:
    body = "\n".join(level.query("%device", "%asked"))
    return f"hal.executable.condition(%device: !hal.device) -> i1 {{\n{body}\nhal.return %asked : i1\n}}"


def _hollow(like: ir.Operation) -> str:
    lines, functions = [], []
    for ordinal, export in enumerate(_named(like, _EXPORT)):
        name, layout = symbol(export), export.attributes["layout"]
        sizes = "".join(f", %size{index}: index" for index in range(_workload(export)))
        lines += [
            f"hal.executable.export public @{name} ordinal({ordinal}) layout({layout}) "
            f"count(%device: !hal.device{sizes}) -> (index, index, index) {{",
            "%one = arith.constant 1 : index",
            "hal.return %one, %one, %one : index, index, index",
            "}",
        ]
        functions.append(f"func.func @{name}() {{ return }}")
    return "\n".join([*lines, f"builtin.module {{ {' '.join(functions)} }}"])


def _workload(export: ir.Operation) -> int:
    """Number of sizes from which an export's number of workgroups is computed."""
    counts = [region.blocks[0] for region in export.regions if len(region.blocks)]
    return len(counts[0].arguments) - 1 if counts else 0


def _named(op: ir.Operation, name: str) -> list[ir.Operation]:
    """The ops of a name directly inside another."""
    return [view.operation for view in body_of(op).operations if view.operation.name == name]


def _call_all(module: ir.Module, variants_of_points: Mapping[str, Sequence[str]]) -> None:
    """Let dispatches name the variants of all levels."""
    for op in _dispatches(module):
        points = [str(point) for point in ir.ArrayAttr(op.attributes[_POINTS])]
        named = dict.fromkeys(variant for point in points for variant in variants_of_points.get(point, [point]))
        op.attributes[_POINTS] = ir.Attribute.parse(f"[{', '.join(named)}]")


def _dispatches(module: ir.Module) -> Iterator[ir.Operation]:
    for view in module.body.operations:
        if view.operation.name != _EXECUTABLE:
            yield from (op for op in nested(view.operation) if _POINTS in op.attributes)
