"""The cost model carries over from tasks that were measured to one that was not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sartor.codegen.analysis.task_bounds import ideal_seconds
from sartor.codegen.routine_registry import described
from sartor.tuning.records.measurement import Measurement, Status
from sartor.tuning.search import cost_model
from sartor.tuning.search.boosting import training
from sartor.tuning.search.boosting.trees import Trees
from sartor.tuning.search.cost_model import FEWEST_SAMPLES, CostModel, Sample, samples_of
from sartor.tuning.search.features import features
from tests.tuning.search.searched_tasks import KERNELS, STOCK, best, facts, listed, samples, seconds, task
from tests.tuning.store.store_samples import KEY, MEASUREMENT

TRAINED = [task(f"{channels}x{side}", channels, side) for channels in (64, 128, 512) for side in (14, 28, 56)]


def model() -> CostModel:
    found = CostModel.fit(samples(*TRAINED))
    assert found is not None
    return found


@pytest.mark.parametrize(("channels", "side"), [(64, 20), (512, 20), (128, 40)])
def test_the_best_variant_of_a_new_task_is_among_the_first(channels: int, side: int) -> None:
    new = task("new", channels, side)
    ranked = [each.descriptor for each in model().ranked(new.facts, listed(*KERNELS))]
    assert best(new) in ranked[:2]
    assert set(ranked) == set(KERNELS)


def test_predictions_are_seconds() -> None:
    new = task("new", 128, 20)
    predicted = dict(zip(KERNELS, model().seconds(new.facts, listed(*KERNELS)), strict=True))
    for name, found in predicted.items():
        assert found == pytest.approx(seconds(new.facts, name), rel=0.3)


def test_what_takes_no_time_is_no_sample() -> None:
    timed = replace(MEASUREMENT, facts=TRAINED[0].facts, key=replace(KEY, variant="cpu:f32/block.stock"))
    assert Sample.of(timed) is not None
    assert Sample.of(replace(timed, key=replace(KEY, variant="cpu:f32/block.view_from_last"))) is None


def test_trees_predict_the_bits_of_xgboost() -> None:
    xgboost = pytest.importorskip("xgboost")
    drawn = np.random.default_rng(0)
    rows = np.round(drawn.normal(size=(400, 5)), 1)
    data = xgboost.DMatrix(rows, np.sin(rows[:, 0]) + rows[:, 1] * rows[:, 2])
    booster = xgboost.train({"max_depth": 6, "seed": 0, "nthread": 1}, data, num_boost_round=20)
    assert np.array_equal(Trees.of(booster).predict(rows), booster.predict(data))
    assert len(Trees.of(booster).predict(rows[:0])) == 0


def test_a_few_samples_are_no_model() -> None:
    few = samples(*TRAINED)[: FEWEST_SAMPLES - 1]
    assert CostModel.fit(few) is None
    assert CostModel.fit([*few, *few]) is not None


def test_without_docstrings_there_is_no_model_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(training, "IS_LOADABLE", False)
    assert CostModel.fit(samples(*TRAINED)) is None
    cost_model.load_ahead()
    assert "no cost model is trained: its library needs docstrings" in caplog.text


def test_samples_that_do_not_read_are_left_out() -> None:
    nonsense = [Sample(text, described(STOCK), 1.0) for text in ("convolution", "convolution rows", "", "x y=z")]
    known, kernels = samples(*TRAINED), listed(*KERNELS)
    with_nonsense = CostModel.fit([*nonsense, *known])
    assert with_nonsense is not None
    assert with_nonsense.seconds(facts(64, 20), kernels) == model().seconds(facts(64, 20), kernels)
    assert CostModel.fit(nonsense * 20) is None


def test_only_what_worked_and_is_described_is_a_sample() -> None:
    text = facts(64, 14)
    with_facts = Measurement(KEY, Status.OK, (1.0,), facts=text, created=1.0)
    failed = Measurement(KEY, Status.CRASHED, facts=text)
    assert samples_of([MEASUREMENT, failed, with_facts]) == [Sample(text, described(KEY.variant), 1.0)]


def test_the_newest_samples_come_first() -> None:
    old = Measurement(KEY, Status.OK, (1.0,), facts=facts(64, 14), created=1.0)
    new = replace(old, samples=(2.0,), created=2.0)
    assert [sample.seconds for sample in samples_of([old, new])] == [2.0, 1.0]


def test_all_variants_have_as_many_features() -> None:
    text = facts(64, 14, kernel=3)
    winograd = "cpu:f32/conv2d.fused_winograd{block=8,columns=4,groups=2,height=4,panels=1,unroll=2,vectors=2,width=4}"
    odd = ("adapt", "cpu:f32/matmul.tiled{depth=8,register=1x64,workgroup=1x128}", winograd, STOCK, *KERNELS)
    assert len({len(features(text, each)) for each in listed(*odd)}) == 1
    assert len({tuple(features(text, each)) for each in listed(winograd, STOCK, *KERNELS)}) == 2 + len(KERNELS)


def test_a_task_cannot_take_less_than_its_bytes_or_operations() -> None:
    small, wide = facts(64, 14), facts(64, 28)
    assert ideal_seconds(wide) == pytest.approx(4 * ideal_seconds(small), rel=0.3)
    with pytest.raises(ValueError, match="lacks"):
        ideal_seconds("convolution rows=1")
