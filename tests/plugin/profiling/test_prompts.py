"""A module with a second function for parts of prompts: calls of both, what is generated, faults that are seen."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from sartor.codegen.ir.layer import ENTRY
from sartor.codegen.linking.several import last_tokens
from sartor.codegen.linking.several.prompts import join_prompts
from sartor.errors import DeviceError, UsageError
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.states import cache_pairs
from sartor.open_sizes.prompts import sees_no_later_tokens
from sartor.runtime.driver.cache import PROMPT_SUFFIX, Prompt
from sartor.runtime.driver.state import STATEFUL_SUFFIX
from sartor.runtime.generation.generate import generate
from sartor.runtime.manifest import CACHES_FORMAT, PARTS_FORMAT, Manifest
from sartor.runtime.session import Session
from sartor.tuning.networks import prompts_job
from sartor.tuning.networks.build_job import NetFiles, SplitNetwork
from sartor.tuning.networks.prompts_job import WeightedNetwork, build_prompts, calls_of
from sartor.tuning.records.signature import open_sizes
from tests.cache_models import POSITIONS, Decoder
from tests.codegen.linking.test_stitching import TARGET, manifest_of, split
from tests.plugin.profiling.test_cache_check import WRONG, checked, cut, imported, with_kernels

FUSED = Decoder(layers=1, width=16, has_mask=True, is_fused=True)
PLAIN = Decoder(layers=1, is_causal=True)
SHORT, PART = 3, POSITIONS // 4
Models = tuple[ImportedModel, ...]


def models(decoder: Decoder, folder: Path) -> Models:
    """For one token, and for parts of more and more."""
    found = []
    for tokens in (0, SHORT, PART):
        (folder / f"{tokens}").mkdir()
        found.append(imported(decoder, folder / f"{tokens}", tokens=tokens))
    return tuple(found)


def joined(pair: Models, folder: Path, *, by_kernels: bool = False) -> Path:
    made, said = list[WeightedNetwork](), list[Any]()
    for model in pair:
        net: SplitNetwork = with_kernels(model) if by_kernels else split(model)
        made.append(WeightedNetwork(replace(net, caches=cache_pairs(model)), model.weights))
        sizes = open_sizes(model.graph.inputs)
        said.append(manifest_of(model, caches=model.caches, sizes=sizes, format=CACHES_FORMAT))
    prompts = [
        Prompt(tokens, own.inputs, own.outputs, manifest.plan, calls, suffix=suffix)
        for tokens, calls, suffix, manifest in zip(
            (SHORT, PART), (1.5, 2.0), (f"{PROMPT_SUFFIX}{SHORT}", PROMPT_SUFFIX), said[1:], strict=True
        )
        for own in (manifest.stateful_signature,)
    ]
    manifest, path = replace(said[0], prompts=tuple(prompts), format=PARTS_FORMAT), folder / "joined.vmfb"
    build_prompts(made[0], made[1:], TARGET, manifest, NetFiles(path, None))
    return path


@pytest.fixture(scope="module")
def fused(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return models(FUSED, tmp_path_factory.mktemp("fused"))


@pytest.fixture(scope="module")
def module(fused: Models, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return joined(fused, tmp_path_factory.mktemp("net"), by_kernels=True)


def test_calls_of_prompts_and_tokens_append_to_the_same_caches(fused: Models, module: Path) -> None:
    assert max(checked(fused[0], module).errors) < 1e-5


def by_tokens(session: Session, prompt: Sequence[int], count: int) -> list[int]:
    """The likeliest tokens, by calls of one."""
    tokens = [*prompt]
    for before in range(len(prompt) + count - 1):
        ids, places = (np.array([[each]], np.int64) for each in (tokens[before], before))
        feeds: Mapping[str, np.ndarray] = {"input_ids": ids, "position_ids": places}
        (found,) = session.run(None, {**feeds, "attention_mask": np.ones((1, before + 1), np.int64)})
        if before >= len(prompt) - 1:
            tokens.append(int(found[0, -1].argmax()))
    return tokens[len(prompt) :]


@pytest.mark.parametrize("length", [1, 2, SHORT, SHORT + 1, PART - 1, PART, PART + 1, PART + 3, 3 * PART + 4])
def test_tokens_behind_a_prompt_are_those_of_calls_of_one_token(module: Path, length: int) -> None:
    prompt = [(5 * place + 3) % FUSED.words for place in range(length)]
    count = min(4, POSITIONS - length + 1)
    with Session(module, threads=1) as session:
        found = list(generate(session, prompt, count))
        assert session.cached_positions == length + count - 1
        session.reset()
        assert found == by_tokens(session, prompt, count)


def test_guessed_tokens_are_those_of_calls_of_one_token(module: Path) -> None:
    prompt, count = [3, 1, 4, 3, 1], POSITIONS - 6
    with Session(module, threads=1) as session:
        right = by_tokens(session, prompt, count)
        session.reset()
        assert list(generate(session, prompt, count, look_up=PART)) == right
        assert session.cached_positions == len(prompt) + count - 1


def test_positions_are_forgotten(module: Path) -> None:
    with Session(module, threads=1) as session:
        assert session.prompt_tokens == PART
        assert session.prompt_parts.sizes == (SHORT, PART)
        assert session.least_prompt_tokens == 2
        right = list(generate(session, [3, 1], 5))
        session.truncate(2)
        assert session.cached_positions == 2
        assert list(generate(session, right[:1], 4)) == right[1:]
        with pytest.raises(UsageError, match="have 6 positions, fewer than 7"):
            session.truncate(7)
        with pytest.raises(UsageError, match="expected 0 or more"):
            session.truncate(-1)
        with pytest.raises(UsageError, match="size 2 in dimension 1, and the caches have 8 positions"):
            session.run(
                None, {name: np.zeros((1, 2), np.int64) for name in ("input_ids", "position_ids", "attention_mask")}
            )


def test_what_a_call_is_filled_up_with_and_not_forgotten_is_seen(
    fused: Models, module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Session, "truncate", lambda *_: None)
    with pytest.raises(DeviceError, match="is not the number of positions"):
        checked(fused[0], module)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """What hides later positions is a table of which the end is read."""
    return models(PLAIN, tmp_path_factory.mktemp("plain"))


def test_a_table_of_later_positions_is_read_from_its_end(plain: Models, tmp_path: Path) -> None:
    ends = [layer.task.opened.ends for layer in plain[1].graph.layers if layer.task.opened is not None]
    assert (0,) in ends
    assert max(checked(plain[0], joined(plain, tmp_path)).errors) < 1e-5


def sees_one_more(pair: Models) -> Models:
    """Positions of a prompt see the one behind them."""
    one, *shorter, several = pair
    name = next(name for name, array in several.weights.items() if array.shape[-1] == POSITIONS and array.ndim == 2)
    array = several.weights[name]
    moved = np.concatenate([array[:, 1:], array[:, -1:]], axis=1)
    return one, *shorter, replace(several, weights={**several.weights, name: moved})


def off_by_one(text: str, suffix: str) -> str:
    """Rows of the last cache of parts of one kind lie one place too far."""
    before, name, own = text.partition(f"@{ENTRY}{suffix}{STATEFUL_SUFFIX}")
    own, count = re.subn(
        r"(?m)^(.* = flow\.tensor\.update .*, %held1\[)%before",
        r"%unit = arith.constant 1 : index\n%more = arith.addi %before, %unit : index\n\1%more",
        own,
        count=1,
    )
    assert count == 1
    return before + name + own


@pytest.mark.parametrize(
    ("suffix", "call"), [("", 1), (PROMPT_SUFFIX, 1), (f"{PROMPT_SUFFIX}{SHORT}", 0)], ids=["sees", "long", "short"]
)
def test_a_fault_is_seen_in_the_first_call_of_a_part(
    suffix: str, call: int, plain: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Positions that see one more, and rows that are off by one; the first call is of a short part."""
    right, pair = join_prompts, plain
    if suffix:
        monkeypatch.setattr(
            prompts_job,
            "join_prompts",
            lambda *given: replace(found := right(*given), text=off_by_one(found.text, suffix)),
        )
    else:
        pair = sees_one_more(plain)
    found = checked(plain[0], joined(pair, tmp_path))
    assert found.errors[call] > WRONG
    assert max(found.errors[:call], default=0.0) < 1e-5


@pytest.mark.parametrize(("decoder", "is_causal"), [(FUSED, True), (PLAIN, True), (Decoder(layers=1), False)])
def test_a_model_in_which_tokens_see_later_ones_takes_no_prompts(
    decoder: Decoder, is_causal: bool, tmp_path: Path
) -> None:
    path = tmp_path / "decoder.onnx"
    onnx.save(decoder.model(), path)
    assert sees_no_later_tokens(path, cut(path, {}, tmp_path / "cut").cut) is is_causal


@pytest.mark.parametrize("operator", ["CumSum", "Softmax", "LpNormalization", "Conv"])
def test_a_model_that_mixes_tokens_behind_its_last_attention_takes_no_prompts(operator: str, tmp_path: Path) -> None:
    """Layers behind the last attention run for a token alone, which needs that they compute each by itself."""
    model, path = PLAIN.model(), tmp_path / "decoder.onnx"
    width, nodes = PLAIN.heads * PLAIN.width, list(model.graph.node)
    product = next(node for node in nodes if node.output[0] == "logits")
    held = {"CumSum": np.array(1), "Conv": np.full((width, 1, 3), 0.3, np.float32)}.get(operator)
    known: dict[str, dict[str, Any]] = {"CumSum": {}, "Conv": {"group": width, "pads": [2, 0]}}
    taken, given = ("turned", "mixed_turned") if operator == "Conv" else (product.input[0], "mixed")
    mixing = [
        onnx.helper.make_node(
            operator, [taken, *(["held"] if held is not None else [])], [given], **known.get(operator, {"axis": 1})
        )
    ]
    if operator == "Conv":
        turns = [(product.input[0], taken), (given, "mixed")]
        before, behind = (onnx.helper.make_node("Transpose", [one], [to], perm=[0, 2, 1]) for one, to in turns)
        mixing = [before, *mixing, behind]
    if held is not None:
        model.graph.initializer.append(onnx.numpy_helper.from_array(held, "held"))
    product.input[0] = "mixed"
    place = nodes.index(product)
    del model.graph.node[:]
    model.graph.node.extend([*nodes[:place], *mixing, *nodes[place:]])
    onnx.save(model, path)
    assert not sees_no_later_tokens(path, cut(path, {}, tmp_path / "cut").cut)


def part_of(session: Session, tokens: Sequence[int]) -> dict[str, np.ndarray]:
    """The inputs of a part of a prompt behind what the session holds."""
    before = session.cached_positions
    return {
        "input_ids": np.array([tokens], np.int64),
        "position_ids": np.arange(before, before + len(tokens))[None],
        "attention_mask": np.ones((1, before + len(tokens)), np.int64),
    }


@pytest.mark.parametrize(("part", "count"), [(PART, 1), (PART, 2), (PART, PART - 1), (PART, PART), (SHORT, 2)])
def test_what_is_behind_one_token_of_a_part_is_what_a_run_of_the_part_gives_for_it(
    module: Path, part: int, count: int
) -> None:
    tokens = [(5 * place + 3) % FUSED.words for place in range(part)]
    with Session(module, threads=1) as session:
        assert session.manifest is not None
        assert session.manifest.last_signatures.keys() == {SHORT, PART}
        session.run(None, part_of(session, [4]))
        (whole,) = session.run(["logits"], part_of(session, tokens))
        session.truncate(1)
        (last,) = session.run_last(["logits"], part_of(session, tokens), count)
        assert session.cached_positions == 1 + count
        assert last.shape == (1, 1, whole.shape[-1])
        np.testing.assert_allclose(last[0, 0], whole[0, count - 1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("count", [1, PART - 1, PART])
def test_an_older_file_computes_a_part_whole_for_one_token(
    module: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens, found = [(5 * place + 3) % FUSED.words for place in range(PART)], []
    for _ in range(2):
        with Session(module, threads=1) as session:
            found += session.run_last(None, part_of(session, tokens), count)
            assert session.cached_positions == count
        monkeypatch.setattr(Manifest, "last_signatures", {})
    assert found[0].shape == found[1].shape
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("one", "many", "last", "calls"),
    [
        (2.0, 9.0, (), 4.5),
        (1.0, 4.5, ("b",), 1.125),
        (1.0, 4.5, ("a", "b"), 1.0),
        (None, 4.5, (), 3.0),
        (1.0, None, ("b",), 3.0),
    ],
)
def test_a_part_takes_as_long_as_so_many_calls_of_one_token(
    one: float | None, many: float | None, last: Sequence[str], calls: float
) -> None:
    plan = {"layers": [{"layer": "a", "seconds": 1.0}, {"layer": "b", "seconds": 3.0}, {"layer": "c", "seconds": None}]}
    assert calls_of(Prompt(12, (), (), plan), (one, many), last) == calls


@pytest.mark.parametrize("count", [0, PART + 1])
def test_a_token_that_is_none_of_a_part_is_refused(module: Path, count: int) -> None:
    with Session(module, threads=1) as session:
        with pytest.raises(UsageError, match=f"count is {count}, expected one of the part's {PART} tokens"):
            session.run_last(None, part_of(session, [1] * PART), count)
        with pytest.raises(UsageError, match=f"no part of a prompt, which has {SHORT} or {PART} tokens"):
            session.run_last(None, part_of(session, [1, 2]), 1)
        assert session.manifest is not None
        with pytest.raises(DeviceError, match="the last token is none of the call's"):
            session._run(part_of(session, [1] * PART), session.manifest.last_signatures[PART], [PART])
        assert session.cached_positions == 0


def test_lists_are_a_part_of_a_prompt_as_they_are_a_run(module: Path) -> None:
    with Session(module, threads=1) as session:
        given = part_of(session, [3] * PART)
        listed: Any = {name: array.tolist() for name, array in given.items()}
        (found,) = session.run_last(["logits"], listed, 2)
        session.reset()
        np.testing.assert_array_equal(found, session.run_last(["logits"], given, 2)[0])


@pytest.mark.parametrize("count", [2.0, "2", None])
def test_a_part_of_another_rank_or_no_number_of_tokens_is_refused(module: Path, count: Any) -> None:
    with Session(module, threads=1) as session:
        given = part_of(session, [3] * PART)
        with pytest.raises(UsageError, match=f"count is {count!r}, expected a number of tokens"):
            session.run_last(None, given, count)
        with pytest.raises(UsageError, match="no part of a prompt"):
            session.run_last(None, {**given, "input_ids": given["input_ids"][0]}, 2)


def test_a_row_of_another_token_is_seen(fused: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = last_tokens._rows

    def before(cuts: Any, values: Any) -> Iterator[str]:
        for line in right(cuts, values):
            yield line.replace("[%last_none, %last_index", "[%last_none, %last_none")

    monkeypatch.setattr(last_tokens, "_rows", before)
    assert max(checked(fused[0], joined(fused, tmp_path)).errors) > WRONG
