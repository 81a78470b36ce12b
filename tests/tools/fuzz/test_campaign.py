"""A campaign compares random models under random plans with ONNX Runtime, keeps failures, and can be continued."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sartor.tuning.workers.calls import open_pool
from sartor.tuning.workers.pool import WorkerPool
from tools.fuzz import schedule
from tools.fuzz.campaign import Campaign, batch_key

# Batches that take about a minute on two processors.
BATCHES = 2


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    with open_pool(2) as (pool, _):
        yield pool


def test_random_models_by_random_plans_are_right(pool: WorkerPool) -> None:
    campaign = Campaign(pool)
    tally = campaign.run(map(schedule.batch, range(BATCHES)))
    assert not campaign.found, [
        f"{each.message}: {each.operators} by {each.forced}" for each in campaign.found.values()
    ]
    assert tally.models == BATCHES * schedule.MODELS
    assert tally.plans == 2 * tally.models


def test_a_campaign_goes_on_where_it_ended(pool: WorkerPool, tmp_path: Path) -> None:
    line = {"models": 8, "plans": 16, "failures": {"wrong": 1}, "known": {}}
    batches = [schedule.batch(0)]
    with (tmp_path / "progress.jsonl").open("w", encoding="utf-8") as file:
        file.write(json.dumps({"batch": batch_key(batches[0]), **line}) + "\n")
    tally = Campaign(pool, tmp_path).run(batches)
    assert (tally.models, tally.plans, tally.failures) == (8, 16, {"wrong": 1})
