"""Files: regular ones only, their checksums, and directories of archives."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import struct
import zipfile
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from sartor.errors import UsageError
from sartor.runtime.driver.signature import TensorSpec
from sartor.runtime.files import zip_directory
from sartor.runtime.files.checksums import check_samples, check_whole, checksum, read_checksums, write_checksums
from sartor.runtime.files.regular_files import check_regular, read_text
from sartor.runtime.files.zip_directory import Part, read_directory
from sartor.runtime.module import open_module
from sartor.samples.array_stream import stored_array
from sartor.samples.feeds import read_archive, read_array
from sartor.samples.given_samples import Samples
from sartor.tuning.records.plan import Plan
from sartor.tuning.store.store import Store


def _written(parts: dict[str, bytes], comment: bytes = b"", method: int = zipfile.ZIP_STORED) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as archive:
        archive.comment = comment
        for name, content in parts.items():
            archive.writestr(name, content)
    return target.getvalue()


def _read(content: bytes) -> list[Part]:
    return read_directory(lambda begin, size: content[begin : begin + size], len(content))


def _of_zipfile(content: bytes) -> list[Part]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return [
            Part(each.filename, each.CRC, each.file_size, each.header_offset, each.compress_type == zipfile.ZIP_STORED)
            for each in archive.infolist()
        ]


@pytest.mark.parametrize(
    "content",
    [
        _written({}),
        _written({"module.fb": b"program", "weights": b"\1" * 1000, "größe": b""}),
        _written({"one": b"x"}, comment=b"a remark"),
        _written({"one": b"x" * 999}, method=zipfile.ZIP_DEFLATED),
    ],
)
def test_it_reads_what_zipfile_reads(content: bytes) -> None:
    assert _read(content) == _of_zipfile(content)


def test_what_is_longer_than_32_bits_can_say(monkeypatch: pytest.MonkeyPatch) -> None:
    # zipfile then writes sizes and places in extra fields, and the end in its long form.
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 100)
    content = _written({"small": b"s", "large": b"l" * 300, "last": b"e" * 200})
    assert b"PK\x06\x06" in content
    assert _read(content) == _of_zipfile(content)
    assert [each.size for each in _read(content)] == [1, 300, 200]


def test_a_long_end_that_lies_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 100)
    content = bytearray(_written({"large": b"l" * 300}))
    at = content.rindex(b"PK\x06\x07")
    for place in (2**63, 2**64 - 1, len(content), 0):
        struct.pack_into("<Q", content, at + 8, place)
        with pytest.raises(ValueError, match=r"where it is said|there is no"):
            _read(bytes(content))


@pytest.mark.parametrize("length", [0, 3, 21, 22, 60, 200])
def test_what_is_cut_off_is_refused(length: int) -> None:
    content = _written({"one": b"x" * 100, "two": b"y"})
    with pytest.raises(ValueError, match="no end"):
        _read(content[:length])


def test_what_lies_before_it_is_refused() -> None:
    with pytest.raises(ValueError, match="does not end where"):
        _read(b"junk" + _written({"one": b"x"}))


def test_no_damage_gives_another_error_or_reads_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 100)
    draw = random.Random(0)
    for content in (_written({"one": b"x" * 30, "two": b"y"}), _written({"large": b"l" * 300, "small": b"s"})):
        begin = content.index(zip_directory._ENTRY_MARK)
        for _ in range(2000):
            damaged = bytearray(content)
            for _ in range(draw.randint(1, 4)):
                damaged[draw.randrange(begin, len(content))] = draw.randrange(256)
            with suppress(ValueError):
                read_directory(partial(_inside, bytes(damaged)), len(damaged))


def _inside(content: bytes, at: int, size: int) -> bytes:
    assert 0 <= at <= len(content)
    assert 0 <= size <= len(content)
    return content[at : at + size]


_SPEC = TensorSpec("x", "float32", (1, 3))
_READERS: dict[str, Callable[[Path], object]] = {
    "module": open_module,
    "database": Store.open,
    "database to read": Store.open_to_read,
    "array": stored_array,
    "input": lambda path: read_array(path, _SPEC),
    "inputs": lambda path: read_archive(path, [_SPEC]),
    "samples": lambda path: Samples.open(path, [_SPEC]),
}


@pytest.fixture(params=["pipe", "device"])
def special(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """What can be opened, but blocks or has no end."""
    if request.param == "device":
        return Path("/dev/zero")
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


@pytest.mark.parametrize("reader", _READERS)
def test_what_is_no_regular_file_is_refused_unread(special: Path, reader: str) -> None:
    with pytest.raises(UsageError, match=f"{special}'? cannot be read: it is no regular file, copy its content to one"):
        _READERS[reader](special)


def test_standard_input_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="'-' cannot be read: standard input is not read, write it to a file first"):
        open_module(Path("-"))
    Path("-").touch()
    check_regular(Path("-"))


def test_files_and_folders_and_nothing_are_left_to_the_reader(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for each in (tmp_path, tmp_path / "file", tmp_path / "file" / "below", tmp_path / "nothing"):
        check_regular(each)


def test_a_plan_without_end_is_refused() -> None:
    with pytest.raises(UsageError, match="longer than 64 MiB"):
        Plan.load(Path("/dev/zero"))


def test_a_text_may_come_through_a_pipe(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, "é".encode())
    os.close(writing)
    assert read_text(Path(f"/dev/fd/{reading}"), 2) == "é"
    os.close(reading)
    (tmp_path / "text").write_bytes(b"\xc3\xa9!")
    with pytest.raises(ValueError, match="longer than"):
        read_text(tmp_path / "text", 2)


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
