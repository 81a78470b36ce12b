"""Networks of speech and of any size in the zoo: valid graphs, sane values, and the table of sizes."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto
from onnxruntime import InferenceSession

from benchmarks import zoo
from benchmarks.first_calls import ordered
from benchmarks.open_sizes import combinations, is_near, mean
from sartor.errors import UsageError
from sartor.onnx_model.states.state_names import is_state_pair

Arrays = dict[str, NDArray[Any]]
# Sizes that callers choose.
_SIZES = {"batch_size": 1, "decoder_sequence_length": 1, "phonemes": 20, "frames": 12, "most_frames": 200}
_LENGTH = 5
# Parameters of Silero's at 16 kHz, with the filters of its spectrum.
_DETECTOR = 309_633


def feeds(model: onnx.ModelProto, seed: int = 0) -> Arrays:
    random, found = np.random.default_rng(seed), Arrays()
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        shape = [dim.dim_value or _SIZES.get(dim.dim_param, _LENGTH) for dim in dims]
        is_whole = value.type.tensor_type.elem_type == TensorProto.INT64
        drawn = random.integers(0, 256, shape) if is_whole else random.standard_normal(shape).astype(np.float32)
        found[value.name] = drawn
    return found


@cache
def built(name: str) -> onnx.ModelProto:
    return zoo.build(name)


@cache
def session_of(name: str) -> InferenceSession:
    return InferenceSession(built(name).SerializeToString())


def ran(name: str, given: Arrays) -> Arrays:
    session = session_of(name)
    return dict(zip([value.name for value in session.get_outputs()], session.run(None, given), strict=True))


@pytest.mark.parametrize("name", zoo.SPEECH)
def test_networks_are_valid_and_seeded_and_of_a_sane_scale(name: str) -> None:
    model = built(name)
    onnx.checker.check_model(model, full_check=True)
    found, again = (ran(name, feeds(model, seed)) for seed in (0, 1))
    for key, array in found.items():
        assert np.isfinite(array).all()
        assert array.size == 1 or 0.1 < array.std() < 10
        assert not np.array_equal(array, again[key])


@pytest.mark.parametrize("name", ["enhancer_stream", "vad_stream"])
def test_states_of_streams_fit_their_inputs(name: str) -> None:
    model = built(name)
    given, found = feeds(model), ran(name, feeds(model))
    states = {one: other for one in given for other in found if is_state_pair(one, other)}
    assert len(states) == len(found) - 1
    for one, other in states.items():
        assert given[one].shape == found[other].shape
        moved = ran(name, {**given, one: given[one] + np.float32(0.5)})
        assert all(not np.array_equal(moved[key], found[key]) for key in found if key not in states.values())


def test_the_detector_has_as_many_parameters_as_silero_s() -> None:
    model = built("vad_stream")
    sizes = [int(np.prod(each.dims)) for each in model.graph.initializer if each.data_type == TensorProto.FLOAT]
    assert sum(sizes) == _DETECTOR


def test_the_decoder_takes_what_the_encoder_gives() -> None:
    decoder = built("whisper_decoder")
    given = ran("whisper_encoder", feeds(built("whisper_encoder")))
    taken = {name.replace("present", "past_key_values"): array for name, array in given.items()}
    inputs = {value.name for value in decoder.graph.input}
    assert taken.keys() == {name for name in inputs if ".encoder." in name}
    found = ran("whisper_decoder", {**feeds(decoder), **taken})
    own = {name.replace("present", "past_key_values"): name for name in found if name.startswith("present")}
    assert taken.keys() | own.keys() | {"input_ids"} == inputs
    assert found["present.3.decoder.value"].shape == (1, 6, _LENGTH + 1, 64)
    assert found["logits"].shape == (1, 1, 51_865)


def test_both_parts_of_the_voice_give_what_the_whole_gives() -> None:
    given = feeds(built("vits"))
    text = ran("vits_text", {"input": given["input"]})
    counts = text["durations"][0].astype(int)
    assert 20 < counts.sum() < 200
    frames = {name: np.repeat(text[name], counts, axis=2) for name in ("m_p", "logs_p")}
    samples = ran("vits_voice", {**frames, "noise": given["noise"][..., : counts.sum()]})["output"]
    np.testing.assert_allclose(samples, ran("vits", given)["output"], atol=1e-3)
    assert samples.shape == (1, 1, 256 * counts.sum())


@pytest.mark.parametrize("name", ["vad_stream", "vits_text"])
def test_equal_seeds_give_equal_bytes(name: str) -> None:
    content = built(name).SerializeToString(deterministic=True)
    assert zoo.build(name).SerializeToString(deterministic=True) == content
    assert zoo.build(name, seed=1).SerializeToString(deterministic=True) != content


def test_speech_is_of_one_sequence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no batch of 2"):
        zoo.build("vad_stream", batch=2)
    path = zoo.write("vad_stream", tmp_path)
    written = path.stat().st_mtime_ns
    assert zoo.write("vad_stream", tmp_path).stat().st_mtime_ns == written


_ANY_SIZE_SIZES = [
    {"batch": 1, "sequence": 1, "height": 32, "width": 32, "length": 100},
    {"batch": 2, "sequence": 7, "height": 96, "width": 64, "length": 163},
]
_OUTPUTS: dict[str, list[tuple[int, ...]]] = {
    "frame_encoder": [(1, 25, 144), (2, 41, 144)],
    "grid_detector": [(1, 21, 5), (2, 126, 5)],
    "line_recogniser": [(8, 1, 97), (16, 1, 97)],
    "masked_encoder": [(1, 384), (2, 384)],
}


@pytest.mark.parametrize("name", zoo.ANY_SIZE)
def test_networks_run_with_sizes_that_callers_choose(name: str) -> None:
    model = zoo.build(name)
    onnx.checker.check_model(model, full_check=True)
    session = InferenceSession(model.SerializeToString())
    for sizes, shape in zip(_ANY_SIZE_SIZES, _OUTPUTS[name], strict=True):
        feeds = {}
        for value in model.graph.input:
            dims = [dim.dim_value or sizes[dim.dim_param] for dim in value.type.tensor_type.shape.dim]
            is_whole = value.type.tensor_type.elem_type == TensorProto.INT64
            feeds[value.name] = np.ones(dims, np.int64) if is_whole else np.ones(dims, np.float32)
        (found,) = session.run(None, feeds)
        assert found.shape == shape
        assert np.isfinite(found).all()
        assert 1e-3 < found.std() < 10


def test_callers_choose_the_batch() -> None:
    name = "grid_detector"
    with pytest.raises(UsageError, match="no batch of 2"):
        zoo.build(name, batch=2)
    assert zoo.build(name, seed=1).SerializeToString() != zoo.build(name).SerializeToString()


def test_each_size_is_timed_with_each_of_the_others() -> None:
    expected = [("batch=1", "sequence=7"), ("batch=1", "sequence=64"), ("batch=8", "sequence=7")]
    found = combinations(["batch=1,8", "sequence=7,64"])
    assert found[:3] == expected
    assert found[3:] == [("batch=8", "sequence=64")]


def test_each_size_is_called_before_others_in_one_round_and_timed_in_all_others() -> None:
    listed = combinations(["batch=1,8", "sequence=7,64"])
    rounds = [ordered(listed, number) for number in range(len(listed))]
    assert [first for first, *_ in rounds] == listed
    assert all(sorted(order) == sorted(listed) for order in rounds)
    assert ordered(listed, 5)[0] == listed[1]


def test_halves_and_doubles_cancel_in_the_mean() -> None:
    assert mean([0.5, 2.0, 1.0]) == pytest.approx(1.0)


def test_outputs_are_near_to_a_part_of_the_largest_number_and_not_if_they_are_nan() -> None:
    expected = np.array([1e-20, 0.5], np.float32)
    assert is_near(np.array([3e-20, 0.5], np.float32), expected)
    assert not is_near(np.array([1e-3, 0.5], np.float32), expected)
    assert not is_near(np.array([np.nan, 0.5], np.float32), expected)
    assert is_near(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32))
