"""Names of files that are kept between runs, such that another model or another version does not find them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_DIGITS = 10


def kept_name(model: Path, kind: str, packages: Iterable[str], machine: str = "") -> str:
    """The stem of a file made of a model: of its name and content, of the packages that make it, and for which machine.

    Args:
        model: the ONNX file.
        kind: what is made of it.
        packages: whose versions count; one that is not installed has none.
        machine: what it is made for, if others cannot use it.
    """
    digest = hashlib.sha256(model.read_bytes())
    digest.update(machine.encode())
    digest.update("".join(f"{package} {_version(package)}\n" for package in packages).encode())
    return f"{model.stem}.{kind}.{digest.hexdigest()[:_DIGITS]}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
