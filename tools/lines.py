"""Counts the lines of the product and of the tests by what they are: ``python -m tools.lines [COMMIT]``.

With a commit it tells as well how many of today's lines were there then, by ``git blame``, which takes minutes.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTS = {"product": ("plugin", "codegen", "dialect_passes", "tuning", "runtime"), "tests": ("tests",)}


def kinds(source: str) -> Counter[str]:
    """How many lines of a source are statements, signatures, imports, docstrings, comments or blank."""
    lines = source.splitlines()
    told = ["blank" if not line.strip() else "comments" if line.strip()[0] == "#" else "statements" for line in lines]
    for node in ast.walk(ast.parse(source)):
        for kind, first, last in _spans(node):
            told[first - 1 : last] = [old if old == "comments" else kind for old in told[first - 1 : last]]
    return Counter(told)


def _spans(node: ast.AST) -> Iterator[tuple[str, int, int]]:
    """What lines of a node are other than statements, with the first and the last of them."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        yield "imports", node.lineno, node.end_lineno or node.lineno
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        yield "signatures", node.lineno, node.body[0].lineno - 1
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        yield "docstrings", node.lineno, node.end_lineno or node.lineno


def _sources(folders: Sequence[str]) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def _older(path: Path, commit: str) -> int:
    """How many lines of a file were there at a commit."""
    command = ["git", "blame", "-w", "-M", "-s", f"{commit}..HEAD", "--", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace", check=True)
    return sum(line.startswith("^") for line in done.stdout.splitlines())


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the counts; returns 0."""
    parser = argparse.ArgumentParser(prog="python -m tools.lines", description=__doc__)
    parser.add_argument("commit", nargs="?", help="count the lines that were there at this commit, too")
    options = parser.parse_args(arguments)
    for part, folders in PARTS.items():
        paths = _sources(folders)
        counted = sum((kinds(path.read_text(encoding="utf-8")) for path in paths), Counter[str]())
        told = ", ".join(f"{count:,} {kind}" for kind, count in counted.most_common())
        print(f"{part}: {counted.total():,} lines in {len(paths):,} files: {told}", flush=True)
        if options.commit is not None:
            print(f"  there at {options.commit}: {sum(_older(path, options.commit) for path in paths):,}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
