"""Options that name a policy take all of its values: typer reads them from a list of its own."""

from __future__ import annotations

from enum import StrEnum
from typing import get_args, get_type_hints

import pytest

from sartor.cli.options.compilation import CompileOptions
from sartor.policies import Double, Search
from sartor.tuning.calibration.methods import CalibrationMethod
from sartor.tuning.selection.problem.cost import Objective


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("objective", Objective),
        ("search", Search),
        ("double", Double),
        ("calibration_method", CalibrationMethod),
    ],
)
def test_an_option_takes_each_value_of_its_policy(name: str, policy: type[StrEnum]) -> None:
    (literal, _) = get_args(get_type_hints(CompileOptions)[name])
    assert {*get_args(literal)} == {value.value for value in policy}
