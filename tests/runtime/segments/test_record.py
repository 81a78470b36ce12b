"""Segments in a manifest, and modules packed into one file."""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sartor.errors import UsageError
from sartor.runtime.driver.archive import damage, part_of
from sartor.runtime.driver.signature import TensorSpec
from sartor.runtime.manifest import SEGMENTS_FORMAT, Manifest
from sartor.runtime.segments.packing import pack
from sartor.runtime.segments.record import Segment

Make = Callable[..., Manifest]
_INNER, _SUM, _PRODUCT = (TensorSpec(name, "float32", (4, 6)) for name in ("inner", "sum", "product"))
_FIRST = Segment("first", "cpu", ("x", "größe"), (_INNER,))
_SECOND = Segment("second", "vulkan", ("inner", "x"), (_SUM, _PRODUCT), "vulkan.vmfb")


def test_segments_survive_in_a_format_that_older_versions_refuse(make_manifest: Make) -> None:
    manifest = make_manifest(devices=("cpu", "vulkan"), segments=(_FIRST, _SECOND), format=SEGMENTS_FORMAT)
    assert Manifest.from_json(manifest.to_json()) == manifest
    assert json.loads(manifest.to_json())["format"] == 2


def test_a_manifest_of_one_device_is_as_older_versions_wrote_it(make_manifest: Make) -> None:
    content = json.loads(make_manifest().to_json())
    assert "segments" not in content
    assert content["format"] == 1


@pytest.mark.parametrize(
    ("segments", "complaint"),
    [
        ((_SECOND, _FIRST), "segment 'second' reads 'inner', which no earlier segment computes"),
        ((_FIRST,), "no segment computes the output 'sum'"),
        ((_FIRST, _FIRST, _SECOND), "segment 'first' computes 'inner', which is there already"),
        ((_FIRST, replace(_SECOND, outputs=(_PRODUCT,))), "no segment computes the output 'sum'"),
    ],
)
def test_values_that_are_missing_or_doubled_are_refused(
    make_manifest: Make, segments: tuple[Segment, ...], complaint: str
) -> None:
    plain = json.loads(
        make_manifest(devices=("cpu", "vulkan"), segments=(_FIRST, _SECOND), format=SEGMENTS_FORMAT).to_json()
    )
    plain["segments"] = json.loads(_json(segments))
    with pytest.raises(UsageError, match=complaint):
        Manifest.from_json(json.dumps(plain))


def test_a_segment_for_another_device_is_refused(make_manifest: Make) -> None:
    manifest = make_manifest(devices=("cpu", "vulkan"), segments=(_FIRST, _SECOND), format=SEGMENTS_FORMAT)
    for devices in (["cpu"], ["vulkan"]):
        plain = json.loads(manifest.to_json()) | {"devices": devices}
        with pytest.raises(UsageError, match=r"a segment is for the device '\w+', which is not among the module's"):
            Manifest.from_json(json.dumps(plain))


def test_a_part_outside_the_file_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'\.\./other\.vmfb' is not the name of a part"):
        replace(_SECOND, part="../other.vmfb")


def _json(segments: tuple[Segment, ...]) -> str:
    return json.dumps(
        [
            {
                "entry": segment.entry,
                "device": segment.device,
                "inputs": segment.inputs,
                "outputs": [{"name": spec.name, "dtype": spec.dtype, "shape": spec.shape} for spec in segment.outputs],
                "part": segment.part,
            }
            for segment in segments
        ]
    )


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
