"""The whole way for a decoder whose caches grow: compiled without an option, checked, generated with, inspected."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import sartor
from sartor.artifact import Artifact
from sartor.config import CompileConfig
from sartor.errors import UsageError
from sartor.runtime.driver.signature import Array
from sartor.runtime.manifest import read_manifest
from sartor.runtime.output_error import relative_error
from sartor.runtime.reference import OnnxRuntimeReference
from sartor.runtime.session import Session
from tests.cache_models import POSITIONS, Decoder
from tests.plugin.calling import assert_refused, call, parsed

DECODER = Decoder(layers=1, has_mask=True)
PROMPT = (3, 7, 1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("decoder") / "decoder.onnx"
    onnx.save(DECODER.model(), path)
    return path


@pytest.fixture(scope="module")
def artifact(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return compiled(model, tmp_path_factory.mktemp("out"))


def compiled(model: Path, folder: Path) -> Artifact:
    config = CompileConfig(threads=1, jobs=1, database=folder / "tuning.db", time_budget=0)
    return sartor.compile(model, config, output=folder / "decoder.vmfb")


def continued(model: Path, count: int, prompt: Sequence[int] = PROMPT) -> list[int]:
    """The likeliest tokens by ONNX Runtime, which gets and gives caches in each call of a token."""
    reference, tokens = OnnxRuntimeReference(model, threads=1), [*prompt]
    names = [name for name in reference.input_names if name.startswith("past")]
    held: dict[str, Array] = {name: np.zeros((1, DECODER.groups, 0, DECODER.width), np.float32) for name in names}
    for before in range(len(prompt) + count - 1):
        ids, places = (np.array([[each]], np.int64) for each in (tokens[before], before))
        mask = np.ones((1, before + 1), np.int64)
        feeds: dict[str, Array] = {"input_ids": ids, "position_ids": places, "attention_mask": mask, **held}
        found = dict(zip(reference.output_names, reference(feeds), strict=True))
        held = {name: found[name.replace("past_key_values", "present")] for name in names}
        if before >= len(prompt) - 1:
            tokens.append(int(found["logits"][0, -1].argmax()))
    return tokens[len(prompt) :]


def test_tokens_are_those_of_the_model(artifact: Artifact, model: Path) -> None:
    assert artifact.sizes[0] == f"positions=1..{POSITIONS}, as long as the table 'c1'"
    assert [each.axis for each in read_manifest(artifact.path).caches] == [2, 2]
    with Session(artifact.path, threads=1) as session:
        assert list(sartor.generate(session, PROMPT, 16)) == continued(model, 16)


@pytest.mark.parametrize(("name", "number"), [("input_ids", DECODER.words), ("position_ids", -POSITIONS - 1)])
def test_a_call_with_a_number_that_is_no_row_is_refused_and_appends_nothing(
    artifact: Artifact, name: str, number: int
) -> None:
    mask, one = np.ones((1, 1), np.int64), np.zeros((1, 1), np.int64)
    feeds = {"input_ids": one, "position_ids": one, "attention_mask": mask, name: np.array([[number]], np.int64)}
    with Session(artifact.path, threads=1) as session:
        with pytest.raises(UsageError, match=f"input '{name}' has {number}, and the model's table has [0-9]+ rows"):
            session.run(None, feeds)
        assert session.cached_positions == 0


def test_prompts_are_taken_by_parts(tmp_path: Path) -> None:
    path, prompt, most = tmp_path / "decoder.onnx", [3, 7, 1, 1, 8, 2, 9, 4, 4], 128
    onnx.save(replace(DECODER, is_causal=True, positions=most).model(), path)
    made = compiled(path, tmp_path)
    # The shorter ones are in the file if they are measured to be worth it.
    assert re.fullmatch("prompts are taken by parts of (16 or )?32 tokens", made.sizes[-1])
    with Session(made.path, threads=1) as session:
        assert session.prompt_tokens == most // 4
        assert list(sartor.generate(session, prompt, 12)) == continued(path, 12, prompt)
        check_calls_of_any_length(session, path, most)


def check_calls_of_any_length(session: Session, path: Path, most: int) -> None:
    """Calls of some tokens give what the model gives at once; one without room leaves the caches as they are."""
    reference, tokens = OnnxRuntimeReference(path, threads=1), np.arange(most)[None] % DECODER.words
    empty = np.zeros((1, DECODER.groups, 0, DECODER.width), np.float32)
    caches = {name: empty for name in reference.input_names if name.startswith("past")}
    whole = {"input_ids": tokens, "position_ids": np.arange(most)[None], "attention_mask": np.ones_like(tokens)}
    (right, *_) = reference({**whole, **caches})

    def given(held: int, count: int) -> dict[str, Array]:
        end = held + count
        own = {name: whole[name][:, held:end] for name in ("input_ids", "position_ids")}
        return {**own, "attention_mask": whole["attention_mask"][:, :end]}

    session.reset()
    held = 0
    for count in (2, 15, 16, 17, 33, 1, 31, 10):
        (found,) = session.run(None, given(held, count))
        assert relative_error([found], [right[:, held : held + count]]) < 1e-4, count
        held += count
        assert session.cached_positions == held
    for count, said in (
        (4, "the run has 4 tokens, and the caches hold 125 positions of 128"),
        (2, "input 'input_ids'"),
    ):
        wrong: dict[str, Array] = {"input_ids": np.full((1, count), DECODER.words)}
        wrong |= {"position_ids": np.zeros((1, count), int), "attention_mask": np.ones((1, held + count), int)}
        with pytest.raises(UsageError, match=said):
            session.run(None, wrong)
        assert session.cached_positions == held
    with pytest.raises(UsageError, match="'attention_mask' has the size 3 in dimension 1, and the caches have 127"):
        session.run(None, {**given(held, 2), "attention_mask": np.ones((1, 3), np.int64)})


def test_a_plan_that_is_predicted_reads_keys_where_the_cache_has_them(artifact: Artifact) -> None:
    """The layer that turns the keys, which copies all that live, is part of the kernel."""
    (attention,) = [each for each in artifact.plan.layers if ".open_attention{" in each.variant]
    assert len(attention.layer.split("+")) == 4


def test_commands_generate_and_tell_of_caches(artifact: Artifact, model: Path) -> None:
    found = parsed(call("sartor", "generate", artifact.path, "3,7,1", "--max-new-tokens", 5, "--json"))
    assert found["tokens"] == continued(model, 5)
    assert found["tokens_per_second"] > 0
    plain = call("sartor", "generate", artifact.path, "3 7 1", "--max-new-tokens", 5)
    assert plain.stdout.strip() == ",".join(map(str, found["tokens"]))
    assert "5 tokens, the first after" in plain.stderr
    assert f"grows to {POSITIONS}" in call("sartor", "inspect", artifact.path).stdout
    ran = parsed(call("sartor", "run", artifact.path, "--size", "positions=1", "--json"))
    assert [each["name"] for each in ran["outputs"]] == ["logits"]
    for size in ((), ("--size", "positions=1"), ("--size", f"positions={POSITIONS}")):
        compared = parsed(call("sartor", "compare", artifact.path, "--vs", model, *size, "--json"))
        assert len(compared["outputs"]) == 3
    assert_refused(call("sartor", "bench", artifact.path), 2, "takes none here")
