"""Decoders as Optimum exports them, compiled without an option: tokens are those that ONNX Runtime gives by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto

import sartor
from sartor.config import CompileConfig
from sartor.runtime.driver.signature import Array
from sartor.runtime.reference import OnnxRuntimeReference
from sartor.runtime.session import Session
from tests.exported_decoders import HEADS, WIDTH, gpt2, merged_whisper, whisper

COUNT, ENCODED = 32, 6


def continued(path: Path, prompt: Sequence[int], further: Mapping[str, Array]) -> list[int]:
    """The likeliest tokens, by a model that gets a token and the caches that it gave with the one before."""
    reference, tokens = OnnxRuntimeReference(path, threads=1), [*prompt]
    names = [name for name in reference.input_names if name.startswith("past") and name not in further]
    held: dict[str, Array] = {name: np.zeros((1, HEADS, 0, WIDTH), np.float32) for name in names}
    for before in range(len(prompt) + COUNT - 1):
        feeds: dict[str, Array] = {"input_ids": np.array([[tokens[before]]]), **held, **further}
        feeds["attention_mask"] = np.ones((1, before + 1), np.int64)
        feeds["use_cache_branch"] = np.array([True])
        feeds["encoder_hidden_states"] = np.zeros((1, ENCODED, HEADS * WIDTH), np.float32)
        taken = {name: array for name, array in feeds.items() if name in reference.input_names}
        found = dict(zip(reference.output_names, reference(taken), strict=True))
        held = {name: found[name.replace("past_key_values", "present")] for name in names}
        if before >= len(prompt) - 1:
            tokens.append(int(found["logits"][0, -1].argmax()))
    return tokens[len(prompt) :]


@pytest.mark.parametrize("make", [gpt2, whisper, merged_whisper])
def test_tokens_are_those_of_the_model(make: Callable[[], ModelProto], tmp_path: Path) -> None:
    model, random, prompt = make(), np.random.default_rng(0), (3, 7, 1)
    path = tmp_path / "decoder.onnx"
    onnx.save(model, path)
    config = CompileConfig(threads=1, jobs=1, database=tmp_path / "tuning.db", time_budget=0)
    module = sartor.compile(path, config, output=tmp_path / "decoder.vmfb").path
    further = {
        value.name: random.standard_normal((1, HEADS, ENCODED, WIDTH)).astype(np.float32)
        for value in model.graph.input
        if value.name.startswith("past") and "encoder" in value.name
    }
    right = continued(path, prompt, further)
    assert len({*right}) > 1
    with Session(module, threads=1) as session:
        assert "use_cache_branch" not in [value.name for value in session.get_inputs()]
        for _ in range(2):
            assert [*sartor.generate(session, prompt, COUNT, inputs=further)] == right
            session.reset()
