"""Draws the package's rooms in ``docs/explanation/design.md``, and checks rules about rooms other than imports.

``python -m tools.rooms`` draws the diagram, ``--check`` checks that it is current and that the rules hold. ``sartor``
must be laid out as it is imported, which ``make rooms`` and ``make lint`` ensure.

A room is a folder directly inside ``plugin``, ``codegen`` or ``tuning``, with all its content. ``dialect_passes`` and
``runtime`` are one room each, and so is each file beside rooms. A room's floor is 1 if it imports no other room, and
otherwise one above the highest room that it imports.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterable
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).parents[1]
MOST_FLOORS = 12

_PACKAGE = "sartor"
_PUBLIC = "plugin"
_DIVIDED = ("codegen", "tuning")
_WHOLE = ("dialect_passes", "runtime")
_FOLDERS = (_PUBLIC, *_DIVIDED, *_WHOLE)
_NAMED = (*_FOLDERS, "benchmarks", "examples", "tests", "tools")
_PATH = re.compile(r"`([\w/]+\.py)`")
_DESIGN = ROOT / "docs" / "explanation" / "design.md"
_BEGIN = "<!-- rooms: drawn by `make rooms` -->"
_END = "<!-- end of rooms -->"


def room_of(module: str, packages: frozenset[str]) -> str:
    """The room of a module, as a path in the checkout.

    Args:
        module: full name.
        packages: full names of all packages.
    """
    _, folder, *inner = module.split(".")
    if folder in _WHOLE:
        return folder
    if folder in _DIVIDED:
        name = ".".join([_PACKAGE, folder, *inner[:1]])
        return "/".join([folder, *inner[:1]]) + ("" if name in packages else ".py")
    return f"{_PUBLIC}/{folder}" + ("" if f"{_PACKAGE}.{folder}" in packages else ".py")


def rooms(imports: Iterable[tuple[str, str]], packages: frozenset[str]) -> nx.DiGraph:
    """The graph of rooms and their imports, from the imports of modules. The package itself is not a room."""
    graph = nx.DiGraph()
    for importer, imported in imports:
        if _PACKAGE not in (importer, imported):
            ends = room_of(importer, packages), room_of(imported, packages)
            graph.add_nodes_from(ends)
            if ends[0] != ends[1]:
                graph.add_edge(*ends)
    return graph


def floors(graph: nx.DiGraph) -> dict[str, int]:
    """The floor of each room.

    Raises:
        ValueError: if rooms import each other in a cycle; the message names them.
    """
    if not nx.is_directed_acyclic_graph(graph):
        raise ValueError("a circle of rooms: " + " -> ".join(edge[0] for edge in nx.find_cycle(graph)))
    found: dict[str, int] = {}
    for room in reversed(list(nx.topological_sort(graph))):
        found[room] = 1 + max((found[successor] for successor in graph.successors(room)), default=0)
    return found


def stale_paths(root: Path) -> list[str]:
    """Sentences about Python files that the documentation names, by path or the end of it, but that do not exist."""
    files = {f"/{path.relative_to(root).as_posix()}" for name in _NAMED for path in (root / name).rglob("*.py")}
    documents = [*sorted((root / "docs").rglob("*.md")), *(root / name for name in ("CONTRIBUTING.md", "README.md"))]
    return [
        f"{document.relative_to(root)} names {path}, which does not exist"
        for document in documents
        for path in sorted(set(_PATH.findall(document.read_text(encoding="utf-8"))))
        if not any(file.endswith(f"/{path}") for file in files)
    ]


def purpose(room: Path) -> str:
    """The purpose of a room: the first sentence of its docstring.

    Raises:
        ValueError: if it has no docstring.
    """
    source = room / "__init__.py" if room.is_dir() else room
    text = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8")))
    if not text:
        raise ValueError(f"{source} does not say what it is for")
    return " ".join(text.partition("\n\n")[0].split())


def drawing(graph: nx.DiGraph, root: Path) -> str:
    """The diagram and the table. Imports that follow from others are not drawn."""
    level = floors(graph)
    arrows = sorted(nx.transitive_reduction(graph).edges)
    lines = ["```mermaid", "flowchart TD"]
    for top in (_PUBLIC, *_DIVIDED):
        inside = sorted((room for room in graph if room.startswith(f"{top}/")), key=lambda room: (-level[room], room))
        lines += [f"  subgraph {top}", *(f'    {_id(room)}["{_label(room)}"]' for room in inside), "  end"]
    lines += [f"  {room}" for room in _WHOLE if room in graph]
    lines += [f"  {_id(importer)} --> {_id(imported)}" for importer, imported in arrows]
    lines += ["```", "", "| floor | room | what for |", "|---|---|---|"]
    listed = sorted(graph, key=lambda room: (-level[room], room))
    lines += [f"| {level[room]} | `{room}` | {purpose(root / room)} |" for room in listed]
    return "\n".join([_BEGIN, "", *lines, "", _END])


def redrawn(text: str, picture: str) -> str:
    """Replace the picture in a text.

    Raises:
        ValueError: if the text has no place for it.
    """
    if text.count(_BEGIN) != 1 or text.count(_END) != 1:
        raise ValueError(f"one place between '{_BEGIN}' and '{_END}' is needed")
    before, rest = text.split(_BEGIN)
    return before + picture + rest.split(_END)[1]


def _id(room: str) -> str:
    return room.replace("/", "_").replace(".", "_")


def _label(room: str) -> str:
    return room.split("/")[-1]


def _package_rooms() -> nx.DiGraph:
    """The rooms of the package as it is imported."""
    # Imported here because only the commands need it, not the tests.
    import grimp

    found = grimp.build_graph(_PACKAGE, cache_dir=None)
    packages = frozenset(module for module in found.modules if found.find_children(module))
    pairs = (
        (module, each) for module in sorted(found.modules) for each in found.find_modules_directly_imported_by(module)
    )
    return rooms(pairs, packages)


def _complaints(graph: nx.DiGraph) -> list[str]:
    highest = max(floors(graph).values())
    tower = [f"rooms are stacked {highest} high, at most {MOST_FLOORS} is allowed"] if highest > MOST_FLOORS else []
    for top in _FOLDERS:
        for package in sorted((ROOT / top).rglob("__init__.py")):
            purpose(package.parent)
    return [*stale_paths(ROOT), *tower]


def main() -> int:
    """Draw or check; returns 0 if the diagram is current and all rules hold."""
    parser = argparse.ArgumentParser(description="Draw the rooms of the package into docs/explanation/design.md.")
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a rule is broken")
    is_check = parser.parse_args().check
    graph = _package_rooms()
    text = _DESIGN.read_text(encoding="utf-8")
    new = redrawn(text, drawing(graph, ROOT))
    found = _complaints(graph)
    if not is_check:
        _DESIGN.write_text(new, encoding="utf-8")
    elif new != text:
        found.append("the picture of the rooms in docs/explanation/design.md is not current: run 'make rooms'")
    for each in found:
        print(each, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
