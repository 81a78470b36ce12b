"""Runs are judged by the budget of the compilation that asks, and a refusal names what is nearest."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from sartor.codegen.ir.graph import LayerGraph
from sartor.errors import CompileError, WrongOutputsError
from sartor.planning.recipe import Recipe
from sartor.profiling.layerwise.verdict import LayerVerdict
from sartor.profiling.network_records import NetworkRecords
from sartor.profiling.verdicts import (
    compares_layers,
    is_open,
    is_rounded,
    judged,
    judged_again,
    judged_by_layers,
    provisional,
    refusal,
)
from sartor.reference.layerwise.layer_check import WrongTensor
from sartor.tuning.errors.error_budget import ErrorBudget
from sartor.tuning.errors.error_measures import RELATIVE
from sartor.tuning.networks.profile_job import NetRun
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status
from sartor.tuning.selection.problem.limits import Quantity
from sartor.tuning.selection.programming.infeasible import LimitError
from sartor.tuning.store.store import Store
from tests.plugin.planning.plans import PLAN

STRICT = ErrorBudget(RELATIVE, 1e-2, given=1e-4, narrow=True)
USUAL = ErrorBudget(RELATIVE, 1e-2, narrow=True)
AMPLIFYING = ErrorBudget(RELATIVE, 1e-3, inherent=1e-2, amplifies=True)


def recipe(*, unsplit: bool = False) -> Recipe:
    """A plan of no layers."""
    plan = replace(PLAN, unsplit=unsplit, solver="none", optimal=False, gap=None, predicted=None)
    return Recipe(plan, LayerGraph((), (), ()), {})


def run(error: float, status: Status = Status.OK) -> NetRun:
    return NetRun(status, (1e-3,), error)


def stored(error: float, status: Status) -> Measurement:
    key = MeasurementKey("net", "plan", "source", "hardware", 1, "runtime", "cpu")
    return Measurement(key, status, (1e-3,), error=error)


def test_the_same_run_is_right_by_one_budget_and_wrong_by_another() -> None:
    assert judged(run(1e-3), USUAL).status is Status.OK
    wrong = judged(run(1e-3), STRICT)
    assert wrong.status is Status.WRONG_RESULT
    assert "relative error 0.001 against the reference, allowed is 0.0001" in wrong.message


def test_a_wrong_result_is_told_with_the_bound_that_counts() -> None:
    """The worker that found it wrong knows a wider one, beyond which nothing is timed."""
    found = judged(
        NetRun(Status.WRONG_RESULT, (), 1.4, "relative error 1.4 against the reference, allowed is 0.5"), USUAL
    )
    assert found.status is Status.WRONG_RESULT
    assert found.message.endswith("allowed is 0.01")


def test_the_output_with_the_largest_error_is_named_by_every_judgement() -> None:
    named = NetRun(Status.OK, (1e-3,), 1e-3, " in output 'boxes'")
    wrong = judged(judged(named, STRICT), STRICT)
    assert wrong.message == "relative error 0.001 in output 'boxes' against the reference, allowed is 0.0001"
    assert judged(named, USUAL) == named


def test_what_only_the_users_bound_refuses_is_no_defect() -> None:
    assert is_rounded(judged(run(1e-3), STRICT), STRICT)
    assert not is_rounded(judged(run(2e-2), STRICT), STRICT)
    assert not is_rounded(judged(run(2e-2), USUAL), USUAL)
    assert not is_rounded(judged(run(1e-3), USUAL), USUAL)
    assert not is_rounded(run(1e-3, Status.CRASHED), STRICT)


def test_a_crash_stays_a_crash() -> None:
    assert judged(run(1.0, Status.CRASHED), STRICT).status is Status.CRASHED


def test_what_was_wrong_for_all_others_runs_again_for_who_allows_more() -> None:
    assert judged_again(stored(1e-3, Status.WRONG_RESULT), USUAL, recipe()) is None
    again = judged_again(stored(1e-3, Status.OK), STRICT, recipe())
    assert again is not None
    assert again.status is Status.WRONG_RESULT


def test_layers_decide_where_rounding_may_be_amplified_and_the_user_gave_no_bound() -> None:
    right = provisional(run(0.3), AMPLIFYING, recipe())
    assert (right.status, right.error) == (Status.OK, 0.3)
    assert is_open(right, AMPLIFYING, recipe())
    assert not is_open(run(5e-3), AMPLIFYING, recipe())
    for budget, other in (
        (USUAL, recipe()),
        (replace(AMPLIFYING, given=0.1), recipe()),
        (AMPLIFYING, recipe(unsplit=True)),
    ):
        assert provisional(run(0.3), budget, other).status is Status.WRONG_RESULT
    assert provisional(run(0.3), replace(AMPLIFYING, given=0.5), recipe()).status is Status.OK
    assert AMPLIFYING.timed == math.inf


def test_layers_of_what_rounds_are_compared_within_the_bound_too() -> None:
    rounding = replace(AMPLIFYING, rounds=True)
    assert compares_layers(run(0.0), rounding, recipe())
    # Of what IREE compiles whole those of the rewritten model, unless its error is too large anyway.
    assert compares_layers(run(0.0), rounding, recipe(unsplit=True))
    assert not compares_layers(run(0.3), rounding, recipe(unsplit=True))
    assert not compares_layers(run(0.0), AMPLIFYING, recipe())
    assert not compares_layers(run(0.0), replace(rounding, given=1e-3), recipe())
    assert not compares_layers(NetRun(Status.CRASHED), rounding, recipe())


def test_a_wrong_layer_is_no_matter_of_a_larger_bound() -> None:
    wrong = LayerVerdict(3, wrong=WrongTensor("conv[1]", "q", "node 'q' (QuantizeLinear)", 2, 9))
    judged_wrong = judged_by_layers(run(1e-4), wrong, AMPLIFYING)
    assert (judged_wrong.status, judged_wrong.error) == (Status.WRONG_RESULT, None)
    assert not is_rounded(judged_wrong, AMPLIFYING)
    refused = refusal([judged_wrong, judged(run(0.7), USUAL)], AMPLIFYING)
    assert isinstance(refused, WrongOutputsError)
    assert "layer 'conv[1]' (node 'q' (QuantizeLinear)) is wrong: 2 of 9 values" in str(refused)
    assert str(refused).endswith("--pin 'conv[[]1]=*.stock'")
    mislinked = judged_by_layers(run(1e-4), LayerVerdict(is_mislinked=True), AMPLIFYING)
    assert mislinked.status is Status.WRONG_RESULT


def test_layers_that_were_not_compared_leave_the_verdict_to_the_error() -> None:
    unknown = LayerVerdict(reason="they have no names")
    within = judged_by_layers(run(1e-4), unknown, AMPLIFYING)
    assert (within.status, within.layers) == (Status.OK, "its layers were not compared: they have no names")
    beyond = judged_by_layers(run(0.3), unknown, AMPLIFYING)
    assert beyond.status is Status.WRONG_RESULT
    assert beyond.message.endswith("its layers were not compared: they have no names")


def test_nothing_ships_uncompared_where_a_rewrite_is_suspect() -> None:
    suspect = WrongTensor("conv[1]", "q", "node 'q' (QuantizeLinear)", 2, 9)
    found = judged_by_layers(run(1e-4), LayerVerdict(reason="they have no names", suspect=suspect), AMPLIFYING)
    assert (found.status, found.error) == (Status.WRONG_RESULT, None)
    assert "of another plan layer 'conv[1]' (node 'q' (QuantizeLinear)) is wrong: 2 of 9 values" in found.message
    assert found.message.endswith("please report it; --max-error 0.01 compares the outputs of the network alone")


def test_a_stored_run_beyond_the_bound_is_not_judged_by_another_that_was_given() -> None:
    again = judged_again(stored(0.3, Status.OK), AMPLIFYING, recipe())
    assert again is not None
    assert again.status is Status.OK
    assert judged_again(stored(0.3, Status.WRONG_RESULT), AMPLIFYING, recipe()) is None
    whole = judged_again(stored(0.3, Status.OK), AMPLIFYING, recipe(unsplit=True))
    assert whole is not None
    assert whole.status is Status.WRONG_RESULT


def test_a_network_as_exact_as_its_types_is_no_defect() -> None:
    refused = refusal([judged(run(error), STRICT) for error in (2e-3, 1e-3)], STRICT)
    assert isinstance(refused, LimitError)
    assert refused.nearest == {Quantity.ERROR: 1e-3}


def test_a_larger_error_is_advised_where_the_error_is_too_large_only() -> None:
    failed = [NetRun(Status.COMPILE_FAILED, message="no plan compiles: the process was killed by SIGABRT")]
    assert str(refusal(failed, USUAL)) == "no plan compiles: the process was killed by SIGABRT"
    crashed = [NetRun(Status.CRASHED, message="the process was killed by SIGSEGV")]
    assert str(refusal(crashed, USUAL)) == "no plan is right: the process was killed by SIGSEGV"
    assert "--max-error allows more" in str(refusal([judged(run(0.7), USUAL)], USUAL))
    infinite = str(refusal([judged(run(math.inf), USUAL)], USUAL))
    assert "relative error inf against the reference, allowed is" in infinite
    assert infinite.endswith("or infinities or NaN at other places")


@pytest.mark.parametrize("budget", [USUAL, ErrorBudget(RELATIVE, 1e-3)])
def test_a_network_that_rounding_does_not_explain_is_one(budget: ErrorBudget) -> None:
    assert isinstance(refusal([judged(run(0.7), budget)], budget), CompileError)
    assert isinstance(refusal([], budget), CompileError)


def test_a_stored_network_that_is_wrong_by_its_layers_is_not_refused_by_its_error(tmp_path: Path) -> None:
    """A second compilation mends it or tells so, where its outputs are within the bound, and advises no wider one."""
    budget = replace(AMPLIFYING, rounds=True)
    runner = Mock(verifies=False, budget=budget, criterion="relative")
    with Store.open(tmp_path / "t.db") as store:
        parts = (store, Mock(sha256="m", unsplit=b""), Mock(threads=1, key="cpu"), runner, Mock())
        NetworkRecords(*parts).put(recipe(), NetRun(Status.OK, (1.0,), 5e-3), 0.0)
        wrong = LayerVerdict(1, wrong=WrongTensor("conv", "q", "node 'q' (QuantizeLinear)", 2, 9))
        NetworkRecords(*parts).contradict(recipe(), judged_by_layers(NetRun(Status.OK, (1.0,), 5e-3), wrong, budget))
        again = NetworkRecords(*parts).run_of(recipe())
    assert again is not None
    assert again.status is Status.WRONG_RESULT
    assert not is_rounded(again, budget)
    assert "--max-error" not in str(refusal([again], budget))
