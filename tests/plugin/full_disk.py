"""Running commands where a disk is full or a folder cannot be written, on a file system of their own."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

# Lists what is on the disk at the end, when nobody else can see it any more.
_SCRIPT = """
mount -t tmpfs -o size="$1"k none "$2" || exit 77
disk=$2; shift 2
"$@"; code=$?
ls -A "$disk"
exit $code
"""
_READ_ONLY = """
mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" || exit 77
shift
exec "$@"
"""
_ALONE = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")


def run_on_small_disk(folder: Path, kibibytes: int, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a command while ``folder`` is a disk of this size; its output ends with the names of what it left there."""
    return _run_alone(_SCRIPT, str(kibibytes), str(folder), *command)


def run_read_only(folder: Path, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a command that may only read a folder, whoever it runs as."""
    return _run_alone(_READ_ONLY, str(folder), *command)


def _run_alone(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    result = subprocess.run([*_ALONE, script, "sh", *arguments], capture_output=True, text=True, timeout=300)
    if result.returncode == 77 or "unshare failed" in result.stderr:
        pytest.skip(f"file systems cannot be mounted here: {result.stderr.strip()}")
    return result
