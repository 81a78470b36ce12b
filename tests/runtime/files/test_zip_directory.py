"""Reading a zip archive's directory, compared with Python's ``zipfile``."""

from __future__ import annotations

import io
import random
import struct
import zipfile
from contextlib import suppress
from functools import partial

import pytest

from sartor.runtime.files import zip_directory
from sartor.runtime.files.zip_directory import Part, read_directory


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
