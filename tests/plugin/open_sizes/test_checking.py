"""Of a module for any size the layers of the rewritten model tell what rounding hides, at a size that has values."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from sartor.errors import RewriteError
from sartor.open_sizes.checking import SizedRunner
from sartor.profiling.layerwise.verdict import LayerVerdict
from sartor.tuning.errors.error_budget import ErrorBudget
from sartor.tuning.errors.error_measures import RELATIVE
from sartor.tuning.networks.profile_job import NetRun
from sartor.tuning.records.measurement import Status


def _runner(**budget: Any) -> Mock:
    runner = Mock(budget=ErrorBudget(RELATIVE, 1e-3, **budget))
    runner.verify.return_value = NetRun(Status.OK, (1.0,), 0.0)
    runner.rewritten_verdict = lambda instead: LayerVerdict(4, instead=instead)
    return runner


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        (
            {"amplifies": True, "rounds": True},
            "those of a module for any size are not compared, but with n=7; in the rewritten model each of 4 layers is "
            "exact; ties that differ: 0",
        ),
        ({"amplifies": True, "rounds": True, "given": 1e-2}, ""),
        ({"amplifies": True}, ""),
    ],
)
def test_layers_are_compared_at_a_size(budget: dict[str, Any], said: str) -> None:
    run = SizedRunner(_runner(**budget), (("n=1", _runner(**budget)), ("n=7", _runner(**budget)))).judged(Mock())
    assert (run.status, run.layers) == (Status.OK, said)


def test_a_wrong_rewrite_is_refused() -> None:
    runner = _runner(amplifies=True, rounds=True)
    runner.rewritten_verdict = Mock(side_effect=RewriteError("internal: it differs"))
    with pytest.raises(RewriteError):
        SizedRunner(runner, (("n=1", runner),)).judged(Mock())
