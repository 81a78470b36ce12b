"""A hash of the source that takes part in a step, found from its imports.

What a step stores is worth nothing after its code has changed. A list of the files that count, kept by hand, misses the
next one; imports do not.
"""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Callable, Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

_PACKAGE = "sartor"
_INIT = "__init__.py"

Locate = Callable[[str], Path | None]
"""From the full name of a module or of something in one to the module's file; None for what is no module."""


@functools.cache
def source_digest(*modules: str) -> str:
    """A hash of the package's version and of the source of modules with all that they import of it, directly or not.

    Args:
        modules: full names, as ``function.__module__`` gives them.
    """
    return digest_of_sources(modules, locate)


def digest_of_sources(modules: tuple[str, ...], locate: Locate) -> str:
    """As ``source_digest``, with the files that ``locate`` finds."""
    hashed = hashlib.sha256(version(_PACKAGE).encode())
    for name, path in sorted(import_closure(modules, locate).items()):
        source = path.read_bytes()
        hashed.update(f"\0{name} {len(source)}\0".encode() + source)
    return hashed.hexdigest()[:16]


def import_closure(modules: tuple[str, ...], locate: Locate) -> dict[str, Path]:
    """Files by module: ``modules`` and what they import of this package.

    A package counts where something is imported from itself, not where it only holds a module that is: a list of all
    routines says nothing about what one of them emits.

    Raises:
        ValueError: if one of ``modules`` is none of this package's.
    """
    found: dict[str, Path] = {}
    pending = list(modules)
    while pending:
        name = pending.pop()
        path = locate(name)
        if path is None:
            if name in modules:
                raise ValueError(f"there is no module '{name}'")
        elif name not in found:
            found[name] = path
            pending.extend(_imported(path, locate))
    return found


def _imported(path: Path, locate: Locate) -> list[str]:
    """Modules of this package that a file imports, or imports something from."""
    found: list[str] = []
    for node in _imports(path):
        if isinstance(node, ast.Import):
            found.extend(each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            inside = [f"{node.module}.{each.name}" for each in node.names]
            modules = [each for each in inside if _is_own(each) and locate(each) is not None]
            found.extend(modules if len(modules) == len(inside) else [node.module, *modules])
    return [each for each in found if _is_own(each)]


def _is_own(name: str) -> bool:
    return name.partition(".")[0] == _PACKAGE


@functools.cache
def _imports(path: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """Import statements, wherever in the file they are."""
    nodes = _executed(ast.parse(path.read_bytes()))
    return tuple(node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below, without those that only type checkers read."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING"):
            yield child
            yield from _executed(child)


@functools.cache
def locate(name: str) -> Path | None:
    """The file of a module of the installed package, found without importing it."""
    parent, _, last = name.rpartition(".")
    if not parent:
        return _origin(name)
    package = locate(parent)
    if package is None or package.name != _INIT:
        return None
    candidates = (package.parent / f"{last}.py", package.parent / last / _INIT)
    inside = next((path for path in candidates if path.is_file()), None)
    # The folders of the package lie side by side in a checkout, so that only the import system knows where.
    return inside or (_origin(name) if parent == _PACKAGE else None)


def _origin(name: str) -> Path | None:
    spec = find_spec(name)
    return None if spec is None or spec.origin is None else Path(spec.origin)
