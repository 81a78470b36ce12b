"""Inputs of a module that keeps caches, where callers pass them: sizes that belong together, masks and positions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sartor.errors import UsageError
from sartor.runtime.driver.cache import BEFORE, Cache
from sartor.runtime.driver.signature import TensorSpec
from sartor.runtime.files.open_sizes import OpenSize, Place
from sartor.runtime.manifest import COUNTED_FORMAT, Manifest
from sartor.samples.passed_caches import passed_feeds, passed_inputs

KEY = "past_key_values.0.key"


def keeping() -> Manifest:
    """The manifest of a decoder, whose cache callers have along the third axis, beside what an encoder gave."""
    inputs = (
        TensorSpec("input_ids", "int64", (1, 1)),
        TensorSpec(KEY, "float32", (None, 1, 2, 8)),
        TensorSpec("position_ids", "int64", (1, 1)),
        TensorSpec("attention_mask", "int64", (1, None)),
        TensorSpec("encoded", "float32", (1, None, 16)),
        TensorSpec(BEFORE, "int64", (1,)),
    )
    outputs = (TensorSpec("logits", "float32", (1, 1, 11)), TensorSpec("present.0.key", "float32", (1, 1, 2, 8)))
    sizes = (
        OpenSize("length", 1, 9, 1, (Place("encoded", 1),)),
        OpenSize("positions", 1, 24, 1, (Place(KEY, 0), Place("attention_mask", 1))),
    )
    caches = (Cache(KEY, "present.0.key", 2),)
    return Manifest(
        model="decoder.onnx",
        model_sha256="0" * 64,
        entry="main_graph",
        inputs=inputs,
        outputs=outputs,
        devices=("cpu",),
        levels=("x86-64-v3",),
        sartor_version="0",
        iree_version="0",
        plan={},
        sizes=sizes,
        caches=caches,
        format=COUNTED_FORMAT,
    )


@pytest.mark.parametrize(("given", "before", "length"), [({}, 16, 9), ({"positions": 1, "length": 4}, 0, 4)])
def test_a_token_is_behind_the_caches(given: dict[str, int], before: int, length: int) -> None:
    specs = passed_inputs(keeping(), given)
    feeds = passed_feeds(keeping(), specs)
    assert list(feeds) == ["input_ids", KEY, "position_ids", "attention_mask", "encoded"]
    assert feeds[KEY].shape == (1, 2, before, 8)
    assert feeds["encoded"].shape == (1, length, 16)
    np.testing.assert_array_equal(feeds["attention_mask"], np.ones((1, before + 1)))
    np.testing.assert_array_equal(feeds["position_ids"], [[before]])


@pytest.mark.parametrize(("least", "most", "length"), [(8, 2048, 16), (24, 2048, 24), (8, 16, 16)])
def test_usual_sizes_are_multiples(least: int, most: int, length: int) -> None:
    found = keeping()
    stepped = replace(found, sizes=(OpenSize("length", least, most, 8, (Place("encoded", 1),)), *found.sizes[1:]))
    assert {spec.name: spec.shape for spec in passed_inputs(stepped, {})}["encoded"] == (1, length, 16)


@pytest.mark.parametrize(
    ("given", "said"), [({"rows": 1}, "names 'rows'; .* length, positions"), ({"positions": 25}, "24")]
)
def test_other_sizes_are_refused(given: dict[str, int], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        passed_inputs(keeping(), given)


def test_the_length_of_caches_is_a_size_of_theirs() -> None:
    found = keeping()
    assert found.most_positions == 24
    assert [size.name for size in found.stateful_sizes] == ["length"]
    assert [spec.name for spec in found.stateful_signature.inputs] == [
        "input_ids",
        "position_ids",
        "attention_mask",
        "encoded",
    ]
    with pytest.raises(ValueError, match="and a size that is their length"):
        replace(found, sizes=found.sizes[:1])
