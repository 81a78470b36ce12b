"""How much memory is free."""

from __future__ import annotations

from pathlib import Path

import pytest

from sartor.runtime.mapping import free_memory
from sartor.runtime.mapping.free_memory import free_bytes

_MIB = 1 << 20


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 100 MiB of free memory, and a process in the group a/b."""
    (tmp_path / "meminfo").write_text("MemTotal:  999999 kB\nMemAvailable:     102400 kB\n", encoding="ascii")
    (tmp_path / "cgroup").write_text("1:cpu:/x\n0::/a/b\n", encoding="ascii")
    (tmp_path / "groups/a/b").mkdir(parents=True)
    for name, file in {"_MACHINE": "meminfo", "_OWN_GROUP": "cgroup", "_GROUPS": "groups"}.items():
        monkeypatch.setattr(free_memory, name, tmp_path / file)
    return tmp_path


def _limit(group: Path, most: str, used: int, cached: int) -> None:
    (group / "memory.max").write_text(f"{most}\n", encoding="ascii")
    (group / "memory.current").write_text(f"{used}\n", encoding="ascii")
    (group / "memory.stat").write_text(f"anon 1\ninactive_file {cached}\nactive_file 5\n", encoding="ascii")


def test_it_is_what_the_machine_has(machine: Path) -> None:
    assert free_bytes() == 100 * _MIB


def test_groups_that_hold_the_process_limit_it(machine: Path) -> None:
    _limit(machine / "groups/a", str(70 * _MIB), 30 * _MIB, 10 * _MIB)
    assert free_bytes() == 50 * _MIB
    _limit(machine / "groups/a/b", str(20 * _MIB), 30 * _MIB, 0)
    assert free_bytes() == 0
    _limit(machine / "groups/a/b", "max", 30 * _MIB, 0)
    assert free_bytes() == 50 * _MIB


def test_in_a_container_the_root_of_what_it_sees_limits_it(machine: Path) -> None:
    (machine / "cgroup").write_text("0::/\n", encoding="ascii")
    _limit(machine / "groups", str(70 * _MIB), 30 * _MIB, 10 * _MIB)
    assert free_bytes() == 50 * _MIB


def test_it_may_be_unknown(machine: Path) -> None:
    for file in ("meminfo", "cgroup"):
        (machine / file).unlink()
    assert free_bytes() is None
