"""Networks of speech in the zoo: valid graphs with exporters' names, sane values, states that fit their inputs."""

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
