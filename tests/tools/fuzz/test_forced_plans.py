"""Random plans contain any eligible variant of a layer, and the same seed gives the same plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from sartor.policies import Precision
from tests.tiny_models import residual
from tools.fuzz.forced_plans import forced_by
from tools.fuzz.trial import Setting, Subject

SETTING = Setting(architecture="x86-64-v3")


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    directory: Path = tmp_path_factory.mktemp("fuzz")
    return Subject(residual(), SETTING.architecture, directory)


def test_a_seed_names_the_plan(subject: Subject) -> None:
    forcer = subject.forcer(SETTING)
    plans = [forced_by(forcer.random(seed)) for seed in range(12)]
    assert plans == [forced_by(forcer.random(seed)) for seed in range(12)]
    assert len({str(plan) for plan in plans}) > 6


def test_a_plan_forced_by_names_is_the_same(subject: Subject) -> None:
    forcer = subject.forcer(SETTING)
    drawn = forcer.random(5)
    assert forcer.given(forced_by(drawn)).digest == drawn.digest


def test_what_a_plan_does_not_name_is_candidate_0(subject: Subject) -> None:
    recipe = subject.forcer(SETTING).given({"no such layer": "cpu:f32/conv2d.direct"})
    assert {variant.routine for variant in recipe.variants.values()} == {"stock"}


def test_narrower_types_are_drawn_where_they_are_allowed(subject: Subject) -> None:
    forcer = subject.forcer(Setting("x86-64-v3", precision=Precision.MIXED))
    types = {variant.dtype for seed in range(40) for variant in forcer.random(seed).variants.values()}
    assert types == {"f32", "bf16", "f16", "i8"}
