"""A copy of the package whose files a test may change."""

from __future__ import annotations

import shutil
from pathlib import Path

from sartor.codegen.source_digest import locate

_FOLDERS = ("codegen", "dialect_passes", "runtime", "tuning")


def copied_package(folder: Path) -> Path:
    """The sources as in a checkout with their bytecode, beside a folder in which they can be imported."""
    root = locate("sartor")
    assert root is not None
    tree = folder / "tree"
    shutil.copytree(root.parent, tree / "plugin")
    package = tree / "package" / "sartor"
    package.mkdir(parents=True)
    for each in _FOLDERS:
        origin = locate(f"sartor.{each}")
        assert origin is not None
        shutil.rmtree(tree / "plugin" / each, ignore_errors=True)
        shutil.copytree(origin.parent, tree / each)
        (package / each).symlink_to(f"../../{each}")
    for path in sorted((tree / "plugin").iterdir()):
        (package / path.name).symlink_to(f"../../plugin/{path.name}")
    return tree
