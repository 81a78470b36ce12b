"""What is found out about samples before anything is tuned: what is odd, and caches that callers pass."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from sartor.errors import UsageError
from sartor.frontend.imported_model import ImportedModel
from sartor.reference.sample_styles import Doubts
from sartor.runtime.driver.cache import BEFORE, Cache
from sartor.runtime.driver.signature import Array, TensorSpec
from sartor.runtime.files.open_sizes import OpenSize, Place
from sartor.runtime.manifest import COUNTED_FORMAT, Manifest
from sartor.samples.checked_samples import _warn_of_oddities, check_measure
from sartor.samples.given_samples import HeldSamples
from sartor.samples.odd_samples import Extent, extents, united
from sartor.samples.passed_caches import passed_feeds, passed_inputs
from sartor.samples.sample_sets import sample_set, samples_of_calls
from sartor.samples.samples_job import Look, look_at
from sartor.tuning.errors.error_budget import ErrorBudget
from sartor.tuning.errors.error_measures import RELATIVE, ErrorMeasure
from sartor.tuning.workers.pool import WorkerPool


def _measure(folder: Path, returned: str) -> ErrorMeasure:
    path = folder / f"returns_{len(returned)}.py"
    path.write_text(f"def error(outputs, expected):\n    return {returned}\n", encoding="utf-8")
    return ErrorMeasure.parse(f"{path}:error")


def test_a_measure_that_no_module_could_meet_is_found_out_first(
    imported_of: Callable[[str], ImportedModel], tmp_path: Path
) -> None:
    imported = imported_of("softmax")
    samples = sample_set(imported, None, narrow=False)
    with WorkerPool(1) as pool:
        for returned, said in (
            ("-1", "returned -1, 0 or more was expected"),
            ("1 / 0", "ZeroDivisionError"),
            ("float('nan')", "not a number"),
            ("0.25", "returned 0.25 for outputs that are as expected, where 0.001 is allowed"),
        ):
            with pytest.raises(UsageError, match=said):
                check_measure(imported, samples, pool, ErrorBudget(_measure(tmp_path, returned), 1e-3))
        check_measure(
            imported, samples, pool, ErrorBudget(_measure(tmp_path, "abs(outputs[0] - expected[0]).max()"), 1e-3)
        )
        check_measure(imported, samples, pool, ErrorBudget(RELATIVE, 1e-3))


def test_calls_one_after_another_get_different_samples(imported_of: Callable[[str], ImportedModel]) -> None:
    imported = imported_of("softmax")
    samples = sample_set(imported, None, narrow=False)
    assert len(samples) == 1
    found = [*samples_of_calls(imported, samples, 4).since(0)]
    assert len({array.tobytes() for sample in found for array in sample.values()}) == 4
    for name, array in samples.first.items():
        np.testing.assert_array_equal(found[0][name], array)


_ORDINARY = np.random.default_rng(0).standard_normal((3, 2, 4), np.float32)


def _with_bias() -> bytes:
    """``y`` is ``x`` and a number for each of four channels."""
    bias = numpy_helper.from_array(np.array([1, 2, 3, 4], np.float32), "b")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "b"], ["y"])], "g", ends[:1], ends[1:], [bias])
    return onnx.helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


@pytest.mark.parametrize(
    ("samples", "odd"),
    [
        (_ORDINARY, ()),
        (_ORDINARY[:1], ()),
        (_ORDINARY * 0, ("input 'x' is 0 everywhere",)),
        (_ORDINARY[:1] * 0 + 2.5, ("input 'x' is 2.5 everywhere",)),
        (_ORDINARY.clip(-1, 1) * np.float32(1e30), ("input 'x' has numbers up to 1e+30",)),
        (_ORDINARY.clip(-1, 1) * np.float32(1e-30), ("input 'x' has numbers up to 1e-30",)),
        (_ORDINARY.clip(-1, 1) * np.float32(1e-10), ("output 'y' is always the same",)),
        (_ORDINARY[[0, 0]], ("output 'y' is always the same",)),
    ],
    ids=["ordinary", "one", "zeros", "one constant", "large", "tiny", "vanishing", "repeated"],
)
def test_samples_that_say_nothing_are_odd(samples: Array, odd: tuple[str, ...]) -> None:
    look = look_at(_with_bias(), HeldSamples(tuple({"x": sample} for sample in samples)))
    assert look == Look(Doubts(), len(samples), odd)


def test_integers_and_single_numbers_may_be_constant() -> None:
    feeds: dict[str, Array] = {
        "mask": np.ones(4, np.int64),
        "scale": np.ones((), np.float32),
        "x": np.array([1, 2], np.float16),
    }
    assert united([extents(feeds), extents({"x": np.array([-3, 1], np.float16)})]) == {"x": Extent(-3, 2)}


def test_the_warning_says_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        _warn_of_oddities(Look(count=8, oddities=("input 'x' is 0 everywhere",)), 100)
        _warn_of_oddities(Look(count=8, oddities=("output 'y' is always the same",)), 8)
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith("input 'x' is 0 everywhere in the first 8 samples: ranges for 8 bits")
    assert second.startswith("output 'y' is always the same in the samples")
    assert "with --calibration" in first


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
