"""A hash of the source code that a step runs, found by following imports.

Stored results are invalid once the code that produced them has changed. A list of files kept by hand would soon miss
one; imports do not.
"""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from sartor.workspace import nothing_collected

_PACKAGE = "sartor"
# The folders of the package that need not lie in one, in a checkout.
_FOLDERS = ("", ".codegen", ".dialect_passes", ".runtime", ".tuning")
_INIT = "__init__.py"
# The fields of syntax nodes in which statements lie, or what contains statements.
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")

Locate = Callable[[str], Path | None]
"""Maps a dotted name to the file of the module of that name; None if there is no such module."""


@functools.cache
def source_digest(*modules: str) -> str:
    """Hash the package's version and the source of modules and of all that they import from the package, directly or
    not.

    Args:
        modules: full names, as ``function.__module__`` gives them.
    """
    return digest_of_sources(modules, locate)


@functools.cache
def package_digest() -> str:
    """Hash the package's version and all of its source, whoever imports it, which takes some hundredths of a second."""
    return digest_of_folders([path.parent for each in _FOLDERS if (path := locate(f"{_PACKAGE}{each}"))])


def digest_of_folders(folders: Sequence[Path]) -> str:
    """Hash the package's version and the Python files in folders, at any depth, by their names within these."""
    hashed = hashlib.sha256(version(_PACKAGE).encode())
    for number, folder in enumerate(folders):
        for path in sorted(folder.rglob("*.py")):
            source = path.read_bytes()
            hashed.update(f"\0{number} {path.relative_to(folder)} {len(source)}\0".encode() + source)
    return hashed.hexdigest()


def digest_of_sources(modules: tuple[str, ...], locate: Locate) -> str:
    """Like ``source_digest``, but ``locate`` finds the files."""
    hashed = hashlib.sha256(version(_PACKAGE).encode())
    for name, path in sorted(import_closure(modules, locate).items()):
        source = path.read_bytes()
        hashed.update(f"\0{name} {len(source)}\0".encode() + source)
    return hashed.hexdigest()[:16]


def import_closure(modules: tuple[str, ...], locate: Locate) -> dict[str, Path]:
    """Files by module name: ``modules`` and all that they import from this package, directly or not.

    The ``__init__`` of a package counts only if a name that it defines is imported. Importing a module of the package
    is not enough: the list of all routines, for example, does not influence what one of them emits.

    Raises:
        ValueError: if this package has no such module.
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
    """Modules of this package that a file imports, or imports names from."""
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
    # Up to Python 3.12 ``ast.parse`` counts its depth for all callers together. It raises SystemError if a finaliser,
    # or a thread that goes on while the finaliser runs, parses too, as each traceback does that is formatted.
    with nothing_collected():
        tree = ast.parse(path.read_bytes())
    nodes = _executed(tree)
    return tuple(node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """All statements below ``node``, except those that only type checkers read.

    Expressions are not visited: they contain no statements, but nine tenths of the nodes.
    """
    for name in _BLOCKS:
        for child in getattr(node, name, ()):
            if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
                continue
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
