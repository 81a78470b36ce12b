"""Checks rules of the house that neither a linter of style nor one of imports knows: ``python -m tools.house``.

What is read or listed in one place is in no other; a routine rejects by a value and not by an exception; words that are
gone do not come back; devices are written out in one file, and element types where formats are declared: all else asks
what a target or a tensor is.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("plugin", "codegen", "dialect_passes", "tuning", "runtime")

ONLY_READER: Mapping[str, str] = {"/proc/cpuinfo": "runtime/driver/cpuinfo.py"}
"""Texts that stand for something that one file reads."""

_ALIKE = "plugin/onnx_model/operator_types/alike.py"
LISTED_ONCE: Mapping[frozenset[str], str] = {
    frozenset({"Reshape", "Squeeze", "Unsqueeze"}): "plugin/onnx_model/operator_types/moving.py",
    frozenset({"Conv", "ConvTranspose", "Gemm"}): _ALIKE,
    frozenset({"If", "Loop", "Scan"}): _ALIKE,
    frozenset({"ReduceMax", "ReduceMin", "ReduceProd"}): _ALIKE,
}
"""Operators that are listed together in one file, from which others take the list."""

NOTES_FAULTS = "codegen/ir/variants/routine.py"
"""The file that takes a ValueError of any routine for a fault, tells the user, and leaves the routine out."""

REJECTING = ("codegen/analysis", "codegen/kernels", "codegen/lowerings", "codegen/mlir/rewriting", "codegen/routines")
"""Folders whose code rejects layers: by ``Rejected``, or from within by ``RejectionError``, never by ValueError."""

_NO_REJECTION = "codegen/kernels/cuda/costs.py"

_OWN = "tools/house.py"

GONE = frozenset({"each", "found"})
"""Names of variables that say nothing of the thing."""

DEVICES = frozenset({"cpu", "cuda", "vulkan"})
"""Kinds of devices, which one file writes out."""

KNOWS_DEVICES = "plugin/devices.py"

NOT_DEVICES = ("runtime/driver/cores.py", "runtime/driver/device.py", "tuning/workers/sharing.py")
"""Files that read what the system says of its processors, which it calls so too."""

ELEMENTS = frozenset({"bf16", "f16", "f32", "f64", "i32", "i64", "i8"})
"""Names of element types, which stand where formats, instructions and tables are declared, and in no function."""

KNOWS_ELEMENTS = ("codegen/ir/", "codegen/mlir/element_types.py", "runtime/driver/")
"""Rooms whose functions know element types by their names."""


def complaints_about(path: str, source: str) -> Iterator[str]:
    """Sentences about what breaks a rule.

    Args:
        path: of the file, from the root.
        source: its text.
    """
    tree = ast.parse(source)
    for text, reader in ONLY_READER.items():
        if path not in (reader, _OWN) and any(_is_text(node, text) for node in ast.walk(tree)):
            yield f"{path} names {text}, which {reader} alone reads"
    for operators, table in LISTED_ONCE.items():
        if path not in (table, _OWN) and any(operators <= _texts_of(node) for node in ast.walk(tree)):
            yield f"{path} lists {', '.join(sorted(operators))}: take the set from {table}"
    if path != NOTES_FAULTS and any(_takes_for_rejection(node) for node in ast.walk(tree)):
        yield f"{path} takes a ValueError for a rejection: a fault of our own would look like one"
    if path not in (KNOWS_DEVICES, *NOT_DEVICES, _OWN):
        for device in sorted(DEVICES & _texts_in([tree])):
            yield f"{path} writes '{device}' out: take it from {KNOWS_DEVICES}, or ask what a target is"
    if not path.startswith(KNOWS_ELEMENTS):
        for element in sorted(ELEMENTS & _texts_in(_functions(tree))):
            yield f"{path} writes '{element}' out in a function: ask a tensor's type what it is, or declare a format"
    rejects = path.startswith(REJECTING) and path != _NO_REJECTION
    if rejects and any(_raises_value_error(node) for node in ast.walk(tree)):
        yield f"{path} raises ValueError: raise RejectionError, or return Rejected(reason) where the reason is known"
    for name in sorted(GONE & {*_variables(tree)}):
        yield f"{path} has a variable '{name}': name the thing"


def _functions(tree: ast.AST) -> Iterator[ast.AST]:
    """What functions do, and no defaults of theirs."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from node.body
        elif isinstance(node, ast.Lambda):
            yield node.body


def _texts_in(trees: Iterable[ast.AST]) -> frozenset[object]:
    """The constants that are written out in parts of a source."""
    return frozenset(node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant))


def _is_text(node: ast.AST, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text


def _texts_of(node: ast.AST) -> frozenset[object]:
    """The constants of a set, tuple or list that is written out."""
    if not isinstance(node, (ast.Set, ast.Tuple, ast.List)):
        return frozenset()
    return frozenset(inner.value for inner in ast.walk(node) if isinstance(inner, ast.Constant))


def _takes_for_rejection(node: ast.AST) -> bool:
    """Whether a handler of ValueError makes a ``Rejected``."""
    if not isinstance(node, ast.ExceptHandler) or node.type is None:
        return False
    is_value_error = "ValueError" in {inner.id for inner in ast.walk(node.type) if isinstance(inner, ast.Name)}
    calls = (inner.func for inner in ast.walk(node) if isinstance(inner, ast.Call))
    return is_value_error and any(isinstance(called, ast.Name) and called.id == "Rejected" for called in calls)


def _raises_value_error(node: ast.AST) -> bool:
    raised = node.exc if isinstance(node, ast.Raise) else None
    return isinstance(raised, ast.Call) and isinstance(raised.func, ast.Name) and raised.func.id == "ValueError"


def _variables(tree: ast.AST) -> Iterator[str]:
    """Names that are assigned, loop variables and parameters among them, and no fields of classes."""
    bodies = (node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    assigned = (node for body in bodies for node in body if isinstance(node, (ast.AnnAssign, ast.Assign)))
    fields = {id(name) for node in assigned for name in getattr(node, "targets", [getattr(node, "target", None)])}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in fields:
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def main() -> int:
    """Print what breaks a rule; returns 0 if nothing does."""
    broken: list[str] = []
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    for path in (*files, Path(__file__)):
        broken += complaints_about(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    for sentence in broken:
        print(sentence, file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
