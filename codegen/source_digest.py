"""A hash of the source code that a step runs, found by following imports.

Stored results are invalid once the code that produced them has changed. A list of files kept by hand would soon miss
one; imports do not.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

_PACKAGE = "sartor"
# The folders of the package that need not lie in one, in a checkout.
_FOLDERS = ("", ".codegen", ".dialect_passes", ".runtime", ".tuning")
_INIT = "__init__.py"
# The statements that decide about a closure, with their indentation. Parsing all files takes eight times as long, more
# than half a second of each compilation; a test compares both.
_STATEMENT = re.compile(
    rb"^([ \t]*)(?:if TYPE_CHECKING:|from[ \t]+(sartor(?:\.[\w.]+)?)[ \t]+import[ \t]+(?:\(((?:[^)#]|#.*)*)\)|([^\n]*))"
    rb"|import[ \t]+(sartor[^\n]*))",
    re.MULTILINE,
)
_COMMENT = re.compile(rb"#.*")

# Times of files may be so much older than the clock.
_CLOCK_STEP = 0.02
_BEGUN = time.time()

Locate = Callable[[str], Path | None]
"""Maps a dotted name to the file of the module of that name; None if there is no such module."""


@functools.cache
def source_digest(*modules: str) -> str:
    """Hash the package's version and the source of modules and of all that they import from the package, directly or
    not.

    Args:
        modules: full names, as ``function.__module__`` gives them.
    """
    return digest_of_sources(modules, locate, _read)


@functools.cache
def package_digest() -> str:
    """Hash the package's version and all of its source, whoever imports it, which takes some hundredths of a second.

    What runs may be older than source that was changed since this process began; then it is no other process's hash.
    """
    digest, changed = _digest_of_folders(_folders())
    return f"{digest} {os.urandom(16).hex()}" if changed > _BEGUN - _CLOCK_STEP else digest


def is_as_begun() -> bool:
    """Whether no source was written, moved or linked since this process began: processes that it started later have run
    what there was by then."""
    paths = (path for folder in _folders() for path in _python_files(str(folder)))
    return max((os.stat(path).st_ctime for path in paths), default=0.0) <= _BEGUN - _CLOCK_STEP


def _folders() -> list[Path]:
    return [path.parent for folder in _FOLDERS if (path := locate(f"{_PACKAGE}{folder}"))]


def digest_of_folders(folders: Sequence[Path]) -> str:
    """Hash the package's version and the Python files in folders, at any depth, by their names within these."""
    return _digest_of_folders(folders)[0]


def _digest_of_folders(folders: Sequence[Path]) -> tuple[str, float]:
    """As ``digest_of_folders``, and when a file was last written, moved or linked, by ``time.time()``."""
    hashed, changed = hashlib.sha256(version(_PACKAGE).encode()), 0.0
    for number, folder in enumerate(folders):
        for path in sorted(_python_files(str(folder))):
            with open(path, "rb", buffering=0) as file:
                changed = max(changed, os.fstat(file.fileno()).st_ctime)
                source = file.readall()
            hashed.update(f"\0{number} {path[len(str(folder)) :]} {len(source)}\0".encode() + source)
    return hashed.hexdigest(), changed


def _python_files(folder: str) -> Iterator[str]:
    """The Python files in a folder at any depth, found in a fifth of the time that ``Path.rglob`` takes."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _python_files(entry.path)
            elif entry.name.endswith(".py"):
                yield entry.path


def digest_of_sources(modules: tuple[str, ...], locate: Locate, read: Callable[[Path], bytes] = Path.read_bytes) -> str:
    """Like ``source_digest``, but ``locate`` finds the files and ``read`` reads them."""
    hashed = hashlib.sha256(version(_PACKAGE).encode())
    for name, path in sorted(import_closure(modules, locate).items()):
        source = read(path)
        hashed.update(f"\0{name} {len(source)}\0".encode() + source)
    return hashed.hexdigest()[:16]


def import_closure(modules: tuple[str, ...], locate: Locate) -> dict[str, Path]:
    """Files by module name: ``modules`` and all that they import from this package, directly or not.

    The ``__init__`` of a package counts only if a name that it defines is imported. Importing a module of the package
    is not enough: the list of all routines, for example, does not influence what one of them emits.

    Raises:
        ValueError: if this package has no such module.
    """
    paths: dict[str, Path] = {}
    pending = list(modules)
    while pending:
        name = pending.pop()
        path = locate(name)
        if path is None:
            if name in modules:
                raise ValueError(f"there is no module '{name}'")
        elif name not in paths:
            paths[name] = path
            pending.extend(_imported(path, locate))
    return paths


@functools.cache
def _read(path: Path) -> bytes:
    """A file's bytes, read once: the closures of routines have most of their files in common."""
    return path.read_bytes()


@functools.cache
def _imported(path: Path, locate: Locate) -> tuple[str, ...]:
    """Modules of this package that a file imports, or imports names from."""
    imported: list[str] = []
    for module, names in imports_of(path.read_bytes()):
        inside = [f"{module}.{name}" for name in names]
        modules = [name_of_module for name_of_module in inside if locate(name_of_module) is not None]
        imported.extend(modules if names and len(modules) == len(inside) else [module, *modules])
    return tuple(imported)


def imports_of(source: bytes) -> list[tuple[str, tuple[str, ...]]]:
    """Modules of this package with the names that source imports from them, none for the modules themselves.

    Statements count wherever they are, but for those that only type checkers read, in ``if TYPE_CHECKING:``. Text in a
    string that looks like a statement at the beginning of a line counts as well, which does no harm.
    """
    imports: list[tuple[str, tuple[str, ...]]] = []
    skipped = 0
    for match in _STATEMENT.finditer(source):
        if match.start() < skipped:
            continue
        indentation, module, listed, plain, modules = match.groups()
        if module is not None:
            imports.append((module.decode(), _names(plain if listed is None else listed)))
        elif modules is not None:
            imports.extend((name, ()) for name in _names(modules) if name.partition(".")[0] == _PACKAGE)
        else:
            skipped = _end_of_block(source, match.end(), len(indentation))
    return imports


def _names(listed: bytes) -> tuple[str, ...]:
    """The names in a list with commas, without those that they get and without comments."""
    parts = (part.split() for part in _COMMENT.sub(b"", listed).split(b","))
    return tuple(part[0].decode() for part in parts if part)


def _end_of_block(source: bytes, begin: int, indentation: int) -> int:
    """Where the first line after ``begin`` is that is not indented by more."""
    match = re.compile(rb"^[ \t]{0,%d}\S" % indentation, re.MULTILINE).search(source, begin)
    return match.start() if match else len(source)


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
