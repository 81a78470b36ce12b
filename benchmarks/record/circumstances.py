"""Where, when and with what something is measured."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from sartor.errors import UsageError
from sartor.runtime.driver.device import physical_cores
from sartor.tuning.records.hardware import host

# What decides the speed of modules and of their rivals.
_PACKAGES = ("sartor", "iree-base-compiler", "iree-base-runtime", "onnx", "onnxruntime", "openvino", "nncf", "numpy")
_WITHOUT_EFFECT = (":(exclude)benchmarks/results", ":(exclude)*.md", ":(exclude)docs")
_DECIDING = ("codegen", "dialect_passes", "plugin", "runtime", "tuning")
_NAMED_FEATURES = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_bf16", "amx_int8", "asimd", "sve")


@dataclass(frozen=True)
class Circumstances:
    """What a measurement depends on beside the network.

    Attributes:
        commit: of this repository, whose code has no change that is not committed.
        date: day, in UTC.
        command: the command line, without folders of the machine.
        machine: the processor in words.
        features: its extensions that decide which kernels exist.
        cores: physical cores that this process may use.
        system: the kernel.
        load: load average of the last minute before measuring.
        versions: of packages that are installed.
    """

    commit: str
    date: str
    command: str
    machine: str
    features: tuple[str, ...]
    cores: int
    system: str
    load: float
    versions: Mapping[str, str]


def circumstances(root: Path, program: str = "benchmarks.record") -> Circumstances:
    """Those of this moment.

    Args:
        root: of the repository.
        program: the module whose command line it is.

    Raises:
        UsageError: if code in the repository ``root`` differs from its last commit: nobody could repeat the
            measurement.
    """
    if changed := _git(root, "status", "--porcelain", "--untracked-files=no", "--", ".", *_WITHOUT_EFFECT):
        raise UsageError(f"commit the changes before measuring: {changed.splitlines()[0].strip()}")
    machine = host()
    return Circumstances(
        _git(root, "rev-parse", "--short=10", "HEAD"),
        datetime.now(UTC).date().isoformat(),
        shlex.join(["python", "-m", program, *(_without_folders(each, root) for each in sys.argv[1:])]),
        machine.description,
        tuple(feature for feature in _NAMED_FEATURES if feature in machine.features),
        physical_cores(),
        f"{platform.system()} {platform.release()}",
        round(os.getloadavg()[0], 2),
        {name: version for name in _PACKAGES if (version := _version(name))},
    )


def is_stale(root: Path, commit: str) -> bool:
    """Whether the package differs from that of a commit, or the commit is not known."""
    done = subprocess.run(["git", "-C", str(root), "diff", "--quiet", commit, "HEAD", "--", *_DECIDING], check=False)
    return done.returncode != 0


def _without_folders(argument: str, root: Path) -> str:
    """A command's argument without folders of this machine: relative to the repository, or the file's name alone."""
    option, equals, value = argument.partition("=") if argument.startswith("-") else ("", "", argument)
    path = Path(value)
    if not value or not path.is_absolute():
        return argument
    shown = path.relative_to(root) if path.is_relative_to(root) else path.name
    return f"{option}{equals}{shown}"


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise UsageError(
            f"'{root}' must be a clone of the repository, so that results name a commit: {error}"
        ) from None
    return done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
