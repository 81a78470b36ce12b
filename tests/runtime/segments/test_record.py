"""Segments in a manifest."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from sartor.errors import UsageError
from sartor.runtime.driver.signature import TensorSpec
from sartor.runtime.manifest import SEGMENTS_FORMAT, Manifest
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
