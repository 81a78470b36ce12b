"""Checksums of weight files."""

from __future__ import annotations

import hashlib
import json
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from sartor.errors import UsageError
from sartor.runtime.files.checksums import check_samples, check_whole, checksum, read_checksums, write_checksums


def test_checksums_come_back_by_scope(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(name.encode() * 3)
    files = {"one": tmp_path / "a", "two": tmp_path / "b"}
    write_checksums(tmp_path / "part", files)
    found = read_checksums(memoryview((tmp_path / "part").read_bytes()))
    whole = {scope: found[scope] for scope in files}
    assert whole == {"one": hashlib.sha256(b"aaa").hexdigest(), "two": hashlib.sha256(b"bbb").hexdigest()}
    assert whole == {scope: checksum(path) for scope, path in files.items()}


@pytest.mark.parametrize("size", [1, 1000, 1 << 20, (1 << 20) + 1, 5_000_001])
def test_another_file_is_noticed_by_samples_and_any_change_by_all_of_it(size: int, tmp_path: Path) -> None:
    content = np.random.default_rng(0).bytes(size)
    right, other, longer = (tmp_path / name for name in ("right", "other", "longer"))
    right.write_bytes(content)
    other.write_bytes(np.random.default_rng(1).bytes(size))
    longer.write_bytes(content + b"\0")
    write_checksums(tmp_path / "part", {"model": right})
    known = read_checksums(memoryview((tmp_path / "part").read_bytes()))
    for path, refused in ((right, False), (other, True), (longer, True)):
        with path.open("rb") as file, pytest.raises(UsageError, match=path.name) if refused else nullcontext():
            check_samples(path, file.fileno(), "model", known)
    check_whole(memoryview(content), "'right'", "model", known)
    changed = bytearray(content)
    changed[size // 2] ^= 1
    with pytest.raises(UsageError, match="the weights 'changed' are damaged, or those of another module"):
        check_whole(memoryview(changed), "'changed'", "model", known)


def test_a_module_that_knows_of_no_checksums_takes_any_weights(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"any")
    with (tmp_path / "weights").open("rb") as file:
        check_samples(tmp_path / "weights", file.fileno(), "model", {})
    check_whole(memoryview(b"any"), "'weights'", "model", {})


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000])
def test_what_is_no_part_of_ours_has_none(content: bytes | None) -> None:
    assert read_checksums(None if content is None else memoryview(content)) == {}


def test_values_of_any_kind_are_texts() -> None:
    assert read_checksums(memoryview(json.dumps({"a": 1}).encode())) == {"a": "1"}
