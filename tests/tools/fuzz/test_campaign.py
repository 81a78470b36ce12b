"""A campaign compares random models under random plans; networks for images of any size are right at each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sartor.runtime.session import Session
from sartor.tuning.workers.calls import open_pool
from sartor.tuning.workers.pool import JobResult, JobStatus, WorkerPool
from tools.fuzz import open_sequences, schedule
from tools.fuzz.campaign import Campaign, batch_key
from tools.fuzz.jobs import Batch, BrokenPlan
from tools.fuzz.open_images import draw, sizes_of
from tools.fuzz.open_networks import check
from tools.fuzz.trial import PlanSeed, Setting


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    with open_pool(2) as (pool, _):
        yield pool


@pytest.mark.parametrize("number", range(2))
def test_random_models_by_random_plans_are_right(number: int, pool: WorkerPool) -> None:
    campaign = Campaign(pool)
    tally = campaign.run([schedule.batch(number)])
    assert not campaign.found, [
        f"{each.message}: {each.operators} by {each.forced}" for each in campaign.found.values()
    ]
    assert tally.models == schedule.MODELS
    assert tally.plans == tally.models


def test_models_with_an_open_dimension_are_right_or_refused(pool: WorkerPool) -> None:
    campaign = Campaign(pool)
    tally = campaign.run([schedule.open_batch(0)])
    assert not campaign.found, [f"{each.message}: {each.operators}" for each in campaign.found.values()]
    assert tally.models == schedule.OPEN_MODELS
    assert 0 < tally.refused < tally.models


def test_a_campaign_goes_on_where_it_ended(pool: WorkerPool, tmp_path: Path) -> None:
    line = {"models": 8, "plans": 16, "failures": {"wrong": 1}, "known": {}}
    batches = [schedule.batch(0)]
    with (tmp_path / "progress.jsonl").open("w", encoding="utf-8") as file:
        file.write(json.dumps({"batch": batch_key(batches[0]), **line}) + "\n")
    tally = Campaign(pool, tmp_path).run(batches)
    assert (tally.models, tally.plans, tally.failures) == (8, 16, {"wrong": 1})


def test_a_line_that_was_not_finished_is_dropped(tmp_path: Path) -> None:
    line = json.dumps({"batch": "b", "models": 8, "plans": 16, "failures": {}, "known": {}}) + "\n"
    path = tmp_path / "progress.jsonl"
    path.write_text(line + line[:20], encoding="utf-8")
    assert Campaign(WorkerPool(1), tmp_path).tally.models == 8
    assert path.read_text(encoding="utf-8") == line, "what is written next stands on its own"


class FakePool(WorkerPool):
    """Batches end as ``status`` says for them, failed ones by their first plan; nothing is computed."""

    def __init__(self, status: Callable[[Batch], JobStatus]) -> None:
        super().__init__(1)
        self._status = status
        self.run: list[Batch] = []

    def map_unordered(
        self, function: str, jobs: Iterable[tuple[str, Mapping[str, Any]]], timeout: float, **_: Any
    ) -> Iterator[JobResult]:
        for key, arguments in jobs:
            is_run = function.endswith("run_batch")
            status = self._status(arguments["batch"]) if is_run else JobStatus.OK
            value = _drawn(function, arguments)
            if is_run:
                self.run.append(arguments["batch"])
            if status is JobStatus.FAILED:
                status, value = JobStatus.OK, [BrokenPlan(arguments["batch"].plans[0], "it fails")]
            yield JobResult(key, status, value, f"{status} for no reason", 0.0)


def _drawn(function: str, arguments: Mapping[str, Any]) -> Any:
    if function.endswith("draw_model"):
        return repr(arguments["batch"].models).encode()
    return {"layer": str(arguments["plan"].seed)} if function.endswith("draw_plan") else []


@pytest.mark.parametrize(
    ("status", "found"),
    [(JobStatus.CRASHED, [{"layer": "0"}]), (JobStatus.FAILED, [{"layer": "0"}]), (JobStatus.STARVED, [])],
    ids=["a crash", "a failure", "a disturbance"],
)
def test_what_fails_only_as_a_whole_is_a_failure(
    status: JobStatus, found: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = schedule.batch(0, models=4)
    monkeypatch.setattr("tools.fuzz.campaign.known", lambda _: None)

    def ended(part: Batch) -> JobStatus:
        return status if part.models == batch.models and batch.plans[0] in part.plans else JobStatus.OK

    campaign = Campaign(FakePool(ended))
    tally = campaign.run([batch])
    assert [each.forced for each in campaign.found.values()] == found
    assert tally.failures.total() == len(found)
    assert {each.model for each in campaign.found.values()} <= {repr(batch.models).encode()}


def test_only_the_plan_that_fails_is_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = schedule.batch(0, models=4)
    monkeypatch.setattr("tools.fuzz.campaign.known", lambda _: None)
    batch = replace(batch, plans=(batch.plans[0], PlanSeed(Setting())))
    pool = FakePool(lambda part: JobStatus.FAILED if batch.models[1] in part.models else JobStatus.OK)
    campaign = Campaign(pool)
    assert campaign.run([batch]).failures.total() == 1
    assert {each.plans for each in pool.run[1:]} == {batch.plans[:1]}
    (found,) = campaign.found.values()
    assert (found.message, found.model) == ("it fails", repr(batch.models[1:2]).encode())


@pytest.mark.parametrize("seed", [0])
def test_a_drawn_network_is_right_at_many_sizes(seed: int) -> None:
    found = check(draw, sizes_of, seed, 30)
    assert not found.wrong
    assert found.right == 30


@pytest.mark.parametrize("seed", [0, 2])
def test_a_drawn_network_for_sequences_is_right_at_many_sizes(seed: int) -> None:
    """A token is joined to a sequence beside an open batch, and a recurrence has an open batch."""
    found = check(open_sequences.draw, open_sequences.sizes_of, seed, 30)
    assert not found.wrong
    assert found.right == 30


def test_drawn_sequences_have_what_changes_lengths_and_are_drawn_by_their_seeds() -> None:
    drawn = [open_sequences.draw(seed) for seed in range(60)]
    kinds = {node.op_type for each in drawn for node in each.model.graph.node}
    assert {
        "LSTM",
        "GRU",
        "RNN",
        "Softmax",
        "Concat",
        "Gather",
        "Slice",
        "Conv",
        "CumSum",
        "ReduceMax",
        "Tile",
    } <= kinds
    assert {len(each.symbols) for each in drawn} == {2, 3}
    assert drawn[7].model == open_sequences.draw(7).model


def test_sizes_of_sequences_have_one_and_eight_and_the_ends() -> None:
    symbols = open_sequences.BATCH, open_sequences.LENGTH, open_sequences.OTHER
    listed = open_sequences.sizes_of(symbols, np.random.default_rng(1), 60)
    assert {(1, 1, 2), (8, 67, 45)} <= set(listed)
    assert {1, 8} <= {sizes[0] for sizes in listed}
    assert {1, 8} <= {sizes[1] for sizes in listed}
    assert all(symbol.allows(size) for sizes in listed for symbol, size in zip(symbols, sizes, strict=True))


def test_a_wrong_row_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Session.run

    def off(self: Session, names: Any, feeds: Any) -> Any:
        (found,) = run(self, names, feeds)
        if feeds["x"].shape[2] % 2:
            found = found.copy()
            found[..., -1, :] += 0.01
        return [found]

    monkeypatch.setattr(Session, "run", off)
    found = check(draw, sizes_of, 0, 12)
    assert found.wrong
    # Sizes are batch, height and width, behind the network and its plan.
    assert all(int(each.split(": ")[1].split("x")[1]) % 2 for each in found.wrong)


def test_sizes_have_the_ends_and_are_drawn_by_their_seed() -> None:
    first, again = (sizes_of((), np.random.default_rng(3), 40) for _ in range(2))
    assert first == again
    assert {(1, 24, 24), (8, 67, 67)} <= set(first)
