"""Running commands where a disk is full, on a file system of their own."""

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
_ALONE = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", _SCRIPT, "sh")


def run_on_small_disk(folder: Path, kibibytes: int, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a command while ``folder`` is a disk of this size; its output ends with the names of what it left there."""
    result = subprocess.run(
        [*_ALONE, str(kibibytes), str(folder), *command], capture_output=True, text=True, timeout=300
    )
    if result.returncode == 77 or "unshare failed" in result.stderr:
        pytest.skip(f"file systems cannot be mounted here: {result.stderr.strip()}")
    return result
