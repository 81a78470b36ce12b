"""Modules packed into one file."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

import pytest

from sartor.runtime.driver.archive import damage, part_of
from sartor.runtime.segments.packing import pack

_CONTENTS = {"one.vmfb": b"1" * 1000, "größe.vmfb": b"2" * 77}


@pytest.fixture
def packed(tmp_path: Path) -> bytes:
    return _packed(tmp_path)


def _packed(folder: Path) -> bytes:
    file = folder / "file.vmfb"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(zipfile.ZipInfo("module.fb"), b"first")
    parts = {name: folder / name for name in _CONTENTS}
    for name, path in parts.items():
        path.write_bytes(_CONTENTS[name])
    pack(file, parts)
    return file.read_bytes()


def test_parts_are_found_whole_and_aligned(packed: bytes) -> None:
    assert damage(packed) is None
    for name, content in _CONTENTS.items():
        assert bytes(part_of(packed, name) or b"") == content
        assert packed.index(content) % 64 == 0
    assert part_of(packed, "absent") is None


def test_parts_that_are_large_for_zip_are_aligned_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 500)
    packed = _packed(tmp_path)
    assert [packed.index(content) % 64 for content in _CONTENTS.values()] == [0, 0]


def test_equal_modules_give_equal_files(packed: bytes, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    assert _packed(other) == packed


def test_a_changed_part_is_damage(packed: bytes) -> None:
    changed = packed.replace(_CONTENTS["one.vmfb"], b"1" * 999 + b"3")
    assert damage(changed) == "the checksum of its part 'one.vmfb' is wrong"


def test_the_directory_is_as_programs_in_c_read_it(packed: bytes) -> None:
    """``examples/segments.c`` reads the fields of 32 bits alone."""
    signature, count, start = struct.unpack("<4s6xH4xI2x", packed[-22:])
    assert (signature, count) == (b"PK\5\6", 3)
    entry = packed[start + 46 + len("module.fb") :]
    size, name = struct.unpack("<24xIH", entry[:30])
    assert (size, entry[46 : 46 + name]) == (1000, b"one.vmfb")
