"""What can be had where a target is not measured."""

from __future__ import annotations

from typing import Any

import pytest

from sartor.config import CompileConfig
from sartor.errors import UsageError
from sartor.planning.guessed_recipe import check_predictable


@pytest.mark.parametrize(
    ("known", "wants_front", "option"),
    [
        ({}, True, "--pareto"),
        ({"target": "cuda:sm_75", "memory_limit": 1}, False, "--memory-limit"),
        ({"target": "cuda:sm_75", "objective": "memory"}, False, "--objective memory"),
    ],
)
def test_what_cannot_be_had_without_measuring_is_refused(known: dict[str, Any], wants_front: bool, option: str) -> None:
    config = CompileConfig(**{"target": "cpu:aarch64:neoverse-n1", **known})
    with pytest.raises(UsageError, match=f"does not run {config.target} code.* leave {option} out"):
        check_predictable(config.planning, wants_front=wants_front)


@pytest.mark.parametrize("known", [{"target": "cuda:sm_75"}, {"target": "cuda:sm_80", "memory_limit": 1}])
def test_models_predict_times_and_memory(known: dict[str, Any]) -> None:
    check_predictable(CompileConfig(**known).planning)
