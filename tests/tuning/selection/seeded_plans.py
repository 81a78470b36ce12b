"""Plans of random problems under different hash seeds."""

from __future__ import annotations

from pathlib import Path

from tests.hash_seeds import printed_under_hash_seeds

_SCRIPT = """
import runpy, sys
from random import Random
from sartor.tuning.selection import auto
from sartor.tuning.selection.elimination import dprs
from sartor.tuning.selection.heuristics import greedy
from sartor.tuning.selection.programming import ilp
from sartor.errors import InfeasibleError
build = runpy.run_path(sys.argv[1])['_random_problem']
for seed in range({count}):
    try:
        problem = build(Random(seed), 6, 2)
        plans = {plans}
    except InfeasibleError as error:
        print(error)
        continue
    print([(plan.cost, {{k: c.name for k, c in plan.choices.items()}}) for plan in plans])
"""


def printed_plans(plans: str, count: int) -> list[str]:
    """The plans that an expression over ``problem`` gives for ``count`` problems, a line each, for each hash seed."""
    builder = Path(__file__).with_name("conftest.py")
    return printed_under_hash_seeds(_SCRIPT.format(plans=plans, count=count), str(builder))
