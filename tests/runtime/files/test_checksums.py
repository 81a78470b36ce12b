"""Checksums of weight files."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from sartor.runtime.files.checksums import checksum, read_checksums, write_checksums


def test_checksums_come_back_by_scope(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(name.encode() * 3)
    files = {"one": tmp_path / "a", "two": tmp_path / "b"}
    write_checksums(tmp_path / "part", files)
    found = read_checksums(memoryview((tmp_path / "part").read_bytes()))
    assert found == {"one": hashlib.sha256(b"aaa").hexdigest(), "two": hashlib.sha256(b"bbb").hexdigest()}
    assert found == {scope: checksum(path) for scope, path in files.items()}


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000])
def test_what_is_no_part_of_ours_has_none(content: bytes | None) -> None:
    assert read_checksums(None if content is None else memoryview(content)) == {}


def test_values_of_any_kind_are_texts() -> None:
    assert read_checksums(memoryview(json.dumps({"a": 1}).encode())) == {"a": "1"}
