"""What is said of plans that a compilation cannot build."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sartor.codegen.ir.target import Target
from sartor.errors import UsageError
from sartor.planning.recorded_recipe import check_plan
from tests.plugin.planning.plans import PLAN


@pytest.mark.parametrize(
    ("planned", "advice"),
    [
        ("cuda:sm_80", "pass --target cuda --arch sm_80"),
        ("cpu:host,vulkan:llvmpipe", "pass --target cpu,vulkan --cpu host --arch llvmpipe"),
        ("toaster", "the targets are cpu, vulkan, cuda"),
        ("toaster:2", "the targets are cpu, vulkan, cuda"),
        ("cpu", "the targets are cpu, vulkan, cuda"),
        ("", "the targets are cpu, vulkan, cuda"),
    ],
)
def test_a_plan_for_another_target_says_which_to_pass(planned: str, advice: str) -> None:
    with pytest.raises(UsageError, match=f"another target: {planned}, not cpu:x86-64-v3; {advice}$"):
        check_plan(replace(PLAN, target=planned), Target("cpu", "x86-64-v3"), {})
