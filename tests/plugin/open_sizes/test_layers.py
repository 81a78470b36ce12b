"""Of a module for any size the layers of the rewritten model tell what rounding hides, at a size that has values."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from sartor.codegen.ir.sizes.calls import SizedCall
from sartor.errors import RewriteError
from sartor.open_sizes.sized_nets import SizedNets, SizedRuns
from sartor.profiling.layerwise.verdict import LayerVerdict
from sartor.profiling.network_runner import NetRunner
from sartor.tuning.errors.error_budget import ErrorBudget
from sartor.tuning.errors.error_measures import RELATIVE
from sartor.tuning.networks.profile_job import NetRun
from sartor.tuning.records.measurement import Status


def _nets(monkeypatch: pytest.MonkeyPatch, rewritten: Any, **settings: Any) -> SizedNets:
    budget, right = ErrorBudget(RELATIVE, 1e-3, **settings), NetRun(Status.OK, (1.0,), 0.0)
    monkeypatch.setattr(NetRunner, "verify", lambda *_: right)
    others = []
    for size in (1, 7):
        runner = Mock(budget=budget, rewritten_verdict=rewritten)
        runner.verify.return_value = right
        others.append(SizedRuns(SizedCall((("n", size),), 0.0), runner))
    return SizedNets(Mock(), Mock(), budget, 1.0, others)


@pytest.mark.parametrize(
    ("settings", "said"),
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
def test_layers_are_compared_at_a_size(settings: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nets = _nets(monkeypatch, lambda instead: LayerVerdict(4, instead=instead), **settings)
    run = nets.judged(Mock())
    assert (run.status, run.layers) == (Status.OK, said)


def test_a_wrong_rewrite_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Mock(side_effect=RewriteError("internal: it differs"))
    with pytest.raises(RewriteError):
        _nets(monkeypatch, wrong, amplifies=True, rounds=True).judged(Mock())
