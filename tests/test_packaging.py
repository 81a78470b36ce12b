"""What an installed package holds."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# The folder ``plugin`` is the package itself; the others are its sub-packages.
TOP = {"plugin": "sartor"} | {name: f"sartor.{name}" for name in ("codegen", "dialect_passes", "runtime", "tuning")}


def test_every_folder_of_code_is_installed() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    listed = settings["tool"]["setuptools"]["packages"]
    found = {
        ".".join((package, *path.parent.relative_to(ROOT / folder).parts))
        for folder, package in TOP.items()
        for path in (ROOT / folder).rglob("__init__.py")
    }
    assert sorted(found) == sorted(listed)


def data_of(package: str, folder: Path) -> set[Path]:
    """The files beside code that are installed of a package."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    globs = settings["tool"]["setuptools"]["package-data"][package]
    return {path for glob in globs for path in folder.glob(glob)}


def test_what_reports_are_made_of_is_installed() -> None:
    folder = ROOT / "plugin" / "report"
    installed = data_of("sartor.report", folder)
    assert {path for path in (folder / "assets").rglob("*") if path.is_file()} <= installed


def test_measured_times_are_installed_and_small() -> None:
    folder = ROOT / "tuning" / "search" / "shipped"
    data = {path for path in folder.iterdir() if path.is_file() and path.suffix != ".py"}
    assert data
    assert data == data_of("sartor.tuning.search.shipped", folder)
    assert sum(path.stat().st_size for path in data) < 1 << 20
