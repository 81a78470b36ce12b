"""What a long campaign covers."""

from __future__ import annotations

from sartor.policies import Precision
from tools.fuzz.schedule import batch


def test_every_precision_of_cpus_has_its_batches() -> None:
    drawn = {plan.setting.precision for number in range(100) for plan in batch(number).plans}
    # Of CPUs none multiplies TF32, what a model permits is not asked for, and weights of both widths are drawn apart.
    assert drawn == {each for each in Precision if not each.is_permitted} - {Precision.TF32, Precision.MIXED_WEIGHTS}
