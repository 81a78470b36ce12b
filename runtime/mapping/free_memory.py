"""How much memory is free: of the machine, and of the control group that limits this process."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

_MACHINE = Path("/proc/meminfo")
_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUP = Path("/proc/self/cgroup")
_AVAILABLE = r"(?m)^MemAvailable:\s+(\d+) kB"
_CACHED = r"(?m)^inactive_file (\d+)"


def free_bytes() -> int | None:
    """Bytes that the process may still take without others losing theirs; None if the system does not say."""
    known = [group for group in (_of_machine(), *_of_groups()) if group is not None]
    return min(known, default=None)


def _of_machine() -> int | None:
    match = re.search(_AVAILABLE, _text(_MACHINE))
    return int(match[1]) << 10 if match else None


def _of_groups() -> list[int | None]:
    """What the process's control group and those above it leave (version 2).

    In a container the group that limits it may be the root of what it sees.
    """
    own = next((line[3:] for line in _text(_OWN_GROUP).splitlines() if line.startswith("0::")), "")
    folder = _GROUPS / own.lstrip("/")
    inside = [folder, *folder.parents]
    return [_of_group(path) for path in inside[: len(inside) - len(_GROUPS.parts) + 1]]


def _of_group(folder: Path) -> int | None:
    limit, used = _text(folder / "memory.max").strip(), _text(folder / "memory.current").strip()
    if not limit.isdigit() or not used.isdigit():
        return None
    cached = re.search(_CACHED, _text(folder / "memory.stat"))
    return max(int(limit) - int(used) + (int(cached[1]) if cached else 0), 0)


def _text(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(encoding="ascii", errors="replace")
    return ""
