"""What fails of a decoder: a plan for prompts, which leaves it that for tokens, and lengths of what an encoder gave."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from sartor.config import CompileConfig
from sartor.costing.time_budget import TimeBudget
from sartor.errors import (
    CompileError,
    DeviceError,
    ReferenceFailedError,
    RewriteError,
    SartorError,
    UnsupportedModelError,
    UsageError,
    WrongOutputsError,
)
from sartor.frontend.imported_model import Origin
from sartor.onnx_model.states.cut_caches import CutModel
from sartor.open_sizes import compilation, plans
from sartor.open_sizes.caches import CutFile
from sartor.open_sizes.compilation import _imported, _Making, _part_plans, _prompts
from sartor.open_sizes.prompts import CheckedPlan
from sartor.policies import Precision
from sartor.profiling.compilation.bench import Bench
from sartor.profiling.compilation.tuned_network import Tuned
from sartor.progress import silent
from sartor.tuning.errors.error_measures import RELATIVE, ErrorMeasure, MeasureKind
from sartor.tuning.kept.values import KeptValues
from sartor.tuning.records.measurement import Status
from sartor.tuning.selection.problem.cost import Objective

TOKENS = ErrorMeasure(MeasureKind.TOKENS)


def fails(error: SartorError) -> Any:
    def failing(*_: object, **__: object) -> None:
        raise error

    return failing


@pytest.mark.parametrize("kind", [UsageError, ReferenceFailedError, CompileError])
def test_a_model_that_fails_with_several_tokens_takes_no_prompts(
    kind: type[SartorError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(compilation, "call", fails(kind("it cannot run")))
    assert not has_prompts(tmp_path, None)
    assert "it cannot run" in caplog.text


def has_prompts(folder: Path, memory_limit: int | None) -> bool:
    """Whether a decoder that may take four tokens has a plan for prompts."""
    config = SimpleNamespace(planning=SimpleNamespace(pins=()), memory_limit=memory_limit, objective=Objective.LATENCY)
    tokens = SimpleNamespace(config=config, bench=SimpleNamespace(directory=folder, pool=None))
    cut = SimpleNamespace(prompts=({"input_ids": (1, 4)},))
    return _prompts(folder / "decoder.onnx", cast(Any, cut), cast(Any, None), cast(Any, tokens)) != []


def test_within_a_limit_of_memory_there_is_no_second_plan_as_it_would_not_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert not has_prompts(tmp_path, 1 << 30)
    assert "is not counted yet" in caplog.text


def bounded(bound: float | None, measure: ErrorMeasure = RELATIVE) -> dict[str, Any]:
    """Settings with the user's bound on the error."""
    return {"error_measure": measure, "error_budget": SimpleNamespace(given=bound)}


def making(*imported: object) -> _Making:
    known = {"heeds_permissions": False, "precision": Precision.F32, **bounded(None)}
    nothing: Any = SimpleNamespace(model=None, external_weights=None, **known)
    nothing_else: Any = None
    bench = Bench(nothing_else, nothing_else, nothing_else, TimeBudget.of(90), silent, [*cast(Any, imported)])
    return _Making(nothing, nothing, bench, nothing, nothing, ())


@pytest.mark.parametrize("kind", [RewriteError, DeviceError, CompileError])
def test_a_plan_for_prompts_that_fails_is_left_out(
    kind: type[SartorError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was kept of its imports is forgotten if these may be what is wrong."""
    kept = KeptValues(tmp_path / "imports")
    kept.keep("a" * 80, b"", [], [])
    monkeypatch.setattr(KeptValues, "of_imports", lambda: kept)
    monkeypatch.setattr(_Making, "_plans", fails(kind("it fails")))
    assert making(SimpleNamespace(origin=Origin(b"", (), "a" * 80))).for_prompts() is None
    assert kept.may_have("a") == (kind is not RewriteError)


@pytest.mark.parametrize(
    "rounding", [[Precision.PERMITTED, Precision.PERMITTED_WORDS], [Precision.PERMITTED_WORDS]], ids=["8", "16"]
)
def test_prompts_are_tuned_again_with_less_rounding_if_no_plan_that_rounds_is_right(
    rounding: list[Precision], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """From 8 bits to 16 first, and without rounding last."""
    tried = list[Precision]()

    def plans(of: _Making) -> object:
        tried.append(of._config.precision)
        raise WrongOutputsError("no plan is right")

    monkeypatch.setattr(compilation, "heeding_permissions", lambda config, _, heeded: replace(config, precision=heeded))
    monkeypatch.setattr(_Making, "_plans", plans)
    own = replace(making(), config=CompileConfig(threads=1), heeded=rounding[0])
    assert own.for_prompts() is None
    assert tried == [*rounding, Precision.F32]
    assert "nothing is rounded: no plan is right" in caplog.text


def test_tokens_are_tuned_beside_prompts_and_published_alone_where_plans_cannot_be_joined(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    steps: list[str] = []
    own = making()

    def told(step: str, result: object) -> Any:
        def stepping(of: _Making) -> object:
            steps.append(step)
            # Tokens take the forms of weights that the plan for prompts has, and most of the time.
            assert of.beside is (checked if step == "tokens" else None)
            assert of.heeded is (Precision.F32 if step == "tokens" else Precision.PERMITTED_WORDS)
            assert (of.bench.time.end < own.bench.time.end) is (step == "prompts")
            return result

        return stepping

    tuned = Tuned(*cast(Any, ["plan", *[None] * 5]))
    checked: Any = SimpleNamespace(refined="checked plan", tokens=4, worthwhile=lambda parts, _: parts)
    monkeypatch.setattr(_Making, "_plans", told("tokens", (None, tuned, None)))
    monkeypatch.setattr(_Making, "for_prompts", told("prompts", checked))
    monkeypatch.setattr(_Making, "_checked", lambda *_: checked)
    monkeypatch.setattr(_Making, "_joined", fails(CompileError("two plans have different code")))
    monkeypatch.setattr(_Making, "_published", lambda _self, _found, best, _runner: best.refined)
    with caplog.at_level(logging.WARNING):
        published: Any = own.tuned_with([own])
    assert published == "checked plan"
    assert steps == ["prompts", "tokens"]
    assert "two plans have different code" in caplog.text


@pytest.mark.parametrize(
    ("bound", "measure", "tried"),
    [(0.01, RELATIVE, ["16"]), (0.1, RELATIVE, ["8", "16"]), (0.01, TOKENS, ["8", "16"]), (None, TOKENS, ["16"])],
)
def test_prompts_round_to_8_bits_where_the_users_bound_leaves_room_for_it(
    bound: float | None, measure: ErrorMeasure, tried: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the file is wrong then, to 16 bits alone."""
    bits, own, steps = {Precision.PERMITTED: "8", Precision.PERMITTED_WORDS: "16"}, making(), list[str]()
    own = replace(own, config=cast(Any, SimpleNamespace(**bounded(bound, measure))))
    checked: Any = SimpleNamespace(refined="checked plan", tokens=4, worthwhile=lambda parts, _: parts)

    def for_prompts(of: _Making) -> object:
        steps.append(bits[of.heeded])
        return checked

    tuned = Tuned(*cast(Any, ["plan", *[None] * 5]))
    monkeypatch.setattr(_Making, "_plans", lambda _: (None, tuned, None))
    monkeypatch.setattr(_Making, "for_prompts", for_prompts)
    monkeypatch.setattr(_Making, "_checked", lambda *_: checked)
    monkeypatch.setattr(_Making, "_joined", fails(CompileError("it is 3 off")))
    monkeypatch.setattr(_Making, "_published", lambda _self, _found, best, _runner: best.refined)
    published: Any = own.tuned_with([own])
    assert published == "checked plan"
    assert steps == tried


def test_weights_of_two_plans_are_the_same_by_what_they_hold() -> None:
    held = np.arange(6, dtype=np.float32)

    def model(**weights: np.ndarray) -> Any:
        layer = SimpleNamespace(name="product", weights=tuple(weights))
        return SimpleNamespace(graph=SimpleNamespace(layers=[layer]), weights=weights)

    prompts: Any = model(w=held)
    variants = {"product": SimpleNamespace(implementation=SimpleNamespace(packings=("panels",)))}
    recipe: Any = SimpleNamespace(recipe=SimpleNamespace(graph=prompts.graph, variants=variants))
    plan = CheckedPlan(prompts, recipe, cast(Any, None))
    others: dict[str, Any] = {"other": held + 1, "wide": held.astype(np.float64), "column": held[:, None]}
    found: Any = plan.forms(model(same=held.copy(), **others))
    assert found == {"same": "panels"}


def test_what_checks_a_plan_of_a_file_is_what_crosses_the_changes_of_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    refined: Any = SimpleNamespace(recipe=SimpleNamespace(digest="plan"))
    tuned: Any = SimpleNamespace(refined=[refined], refiner=None)
    monkeypatch.setattr(plans, "judge_of", lambda recipe, *_: f"judge of {recipe.digest}")
    monkeypatch.setattr(plans, "checked", lambda _, judge: judge)
    monkeypatch.setattr(plans, "publish_best", lambda best, _, publish: (best[0], publish(best[0].recipe)))
    opened: Any = SimpleNamespace(model="model")
    plan = CheckedPlan.of(tuned, cast(Any, "runner"), opened, cast(Any, None), cast(Any, None))
    assert plan == CheckedPlan(cast(Any, "model"), refined, cast(Any, "judge of plan"))


def test_a_joined_file_that_is_wrong_is_not_staged(monkeypatch: pytest.MonkeyPatch) -> None:
    dropped: list[Any] = []
    publication = SimpleNamespace(drop=lambda *targets: dropped.extend(targets))
    first: Any = SimpleNamespace(joined=lambda *_: "files")
    own = replace(
        making(), publication=cast(Any, publication), config=cast(Any, SimpleNamespace(external_weights=None))
    )
    monkeypatch.setattr(compilation, "stage_files", lambda *_: "staged")
    wrong: Any = SimpleNamespace(status=Status.WRONG_RESULT, message="it is 3 off")
    monkeypatch.setattr(compilation, "judged_file", lambda *_: wrong)
    with pytest.raises(CompileError, match="it is 3 off"):
        own._joined(first, [first])
    assert dropped == [own.output]
    wrong.status = Status.OK
    run: Any = own._joined(first, [first])
    assert run is wrong
    assert dropped == [own.output]


def test_a_file_that_is_wrong_with_plans_for_short_parts_has_that_for_the_longest(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried, own = list[list[str]](), making()

    def joined(_: _Making, __: str, parts: list[str]) -> str:
        tried.append(parts)
        if "short" in parts:
            raise CompileError("it is 3 off")
        return "run"

    monkeypatch.setattr(_Making, "_joined", joined)
    with caplog.at_level(logging.WARNING):
        found: Any = own._joined_with(cast(Any, "first"), cast(Any, ["short", "long"]))
    assert found == ("run", ["long"])
    assert tried == [["short", "long"], ["long"]]
    assert "short prompts take longer, as the file is wrong otherwise: it is 3 off" in caplog.text
    with pytest.raises(CompileError, match="it is 3 off"):
        own._joined_with(cast(Any, "first"), cast(Any, ["short"]))


def part_plan(tokens: int, seconds: float | None) -> CheckedPlan:
    """A plan for parts of so many tokens, which takes so long."""
    value = SimpleNamespace(name="rows", type=SimpleNamespace(shape=(tokens,)))
    imported: Any = SimpleNamespace(graph=SimpleNamespace(outputs=[value]), caches=[SimpleNamespace(output="rows")])
    refined: Any = SimpleNamespace(plan=SimpleNamespace(measured=seconds))
    return CheckedPlan(imported, refined, cast(Any, None))


@pytest.mark.parametrize(
    ("seconds", "kept"),
    [
        ({16: 4.0, 32: 6.5, 128: 20.0}, [16, 32, 128]),
        ({16: 4.0, 32: 7.8, 128: 20.0}, [16, 128]),
        ({16: 15.5, 32: 16.0, 128: 20.0}, [32, 128]),
        ({16: 19.5, 32: 19.5, 128: 20.0}, [128]),
    ],
)
def test_plans_for_short_parts_are_kept_where_they_save_time(seconds: dict[int, float], kept: list[int]) -> None:
    """Beside those for longer parts and single tokens, each of which takes 1."""
    parts = [part_plan(*each) for each in seconds.items()]
    assert [plan.tokens for plan in part_plan(1, 1.0).worthwhile(parts, 0.95)] == kept


def test_plans_for_short_parts_read_weights_as_the_longest_does(monkeypatch: pytest.MonkeyPatch) -> None:
    made, plans = list[tuple[Any, bool]](), iter(["long", None, "short"])

    def for_prompts(of: _Making) -> Any:
        made.append((of.beside, of.follows))
        return next(plans)

    monkeypatch.setattr(_Making, "for_prompts", for_prompts)
    found: Any = _part_plans([making()] * 3, Precision.F32)
    assert found == ["short", "long"]
    assert made == [(None, False), ("long", True), ("long", True)]
    plans = iter([None])
    assert _part_plans([making()] * 3, Precision.F32) == []


def test_an_import_that_fails_tells_of_lengths_that_an_encoder_gave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilation, "import_open", fails(UnsupportedModelError("node 'a' contradicts")))
    cut = CutModel((), {}, (), encoded=("encoder_mask",))
    for file, said in ((None, "'a' contradicts$"), (CutFile(tmp_path, cut, ()), "'encoder_mask': .* fixed sizes by")):
        with pytest.raises(UnsupportedModelError, match=said):
            _imported(tmp_path, {}, file, cast(Any, None), cast(Any, None), None)
