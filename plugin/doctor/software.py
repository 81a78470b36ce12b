"""Installed packages, those that are optional included, and folders that Sartor writes to."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from platformdirs import user_cache_path

from sartor.doctor.finding import Finding, State
from sartor.workspace import TemporaryFolderError, check_temporary_name, temporary_folder

_TOPIC = "software"
_NEEDED = ("sartor", "iree-base-runtime", "numpy")
_COMPILE = "only compiling needs it: pip install 'sartor[compile]'"
_OPTIONAL = {
    **dict.fromkeys(("iree-base-compiler", "onnx", "onnxruntime", "onnxslim"), _COMPILE),
    "openvino": "only comparisons with OpenVINO need it: pip install 'sartor[peers]'",
    "nncf": "only comparisons with OpenVINO's int8 need it: pip install 'sartor[peers]'",
    "matplotlib": "only figures of benchmarks need it: pip install 'sartor[plots]'",
}
# A compilation of a large network writes this much to the temporary folder.
_ROOM = 4 << 30


def examine_software() -> Iterator[Finding]:
    """Versions of packages, and the folders that a compilation needs."""
    yield Finding(_TOPIC, "Python", platform.python_version())
    for name in _NEEDED:
        installed = _version(name)
        advice = "" if installed else f"pip install {name}"
        yield Finding(_TOPIC, name, installed, State.OK if installed else State.BROKEN, advice)
    yield _iree_versions()
    for name, advice in _OPTIONAL.items():
        installed = _version(name)
        yield Finding(_TOPIC, name, installed, State.OK if installed else State.MISSING, "" if installed else advice)
    yield _folder("temporary folder", _temporary_folder(), "set TMPDIR to a folder that has room and can be written")
    yield _folder("cache folder", user_cache_path("sartor"), "set XDG_CACHE_HOME or give each command --tuning-db")


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _iree_versions() -> Finding:
    """The compiler's and the runtime's versions must agree, or modules may not load."""
    compiler, runtime = _version("iree-base-compiler"), _version("iree-base-runtime")
    if not compiler:
        return Finding(_TOPIC, "IREE's two halves", "the runtime alone")
    if compiler == runtime:
        return Finding(_TOPIC, "IREE's two halves", "of one version")
    advice = f"pip install iree-base-runtime=={compiler}"
    return Finding(_TOPIC, "IREE's two halves", f"compiler {compiler}, runtime {runtime}", State.LIMITED, advice)


def _temporary_folder() -> Path | None:
    """Where commands write temporary files; None if they find no place that can be used."""
    try:
        check_temporary_name()
        folder = temporary_folder()
    except TemporaryFolderError:
        return None
    return folder if folder.is_dir() else None


def _folder(name: str, path: Path | None, advice: str) -> Finding:
    if path is None:
        return Finding(_TOPIC, name, "none can be used", State.BROKEN, advice)
    # Unlike Path.exists, this is False for what the user may not look at.
    there = next(parent for parent in (path, *path.parents) if os.path.exists(parent))
    if not os.access(there, os.W_OK) or not os.path.isdir(there):
        return Finding(_TOPIC, name, f"{path}, which cannot be written", State.BROKEN, advice)
    room = shutil.disk_usage(there).free
    room_of_folder = f"{path}, {room / (1 << 30):.1f} GiB free"
    return Finding(
        _TOPIC, name, room_of_folder, State.OK if room >= _ROOM else State.LIMITED, "" if room >= _ROOM else advice
    )
