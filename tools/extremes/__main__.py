"""``python -m tools.extremes [OPERATOR...]``: compute each operator in each type at the values where the type ends."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence

from tools.extremes.comparison import Outcome, outcome
from tools.extremes.deviations import DEVIATIONS
from tools.extremes.operators import OPERATORS, case
from tools.extremes.values import TYPES


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare the operators and return the exit code: 1 if a result is wrong that is not explained, 0 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m tools.extremes", description=__doc__)
    parser.add_argument("operators", nargs="*", metavar="OPERATOR", help="as the report names it (default: all)")
    parser.add_argument("--types", nargs="+", choices=TYPES, default=TYPES, metavar="TYPE", help="as NumPy names it")
    options = parser.parse_args(arguments)
    if unknown := {*options.operators} - {*OPERATORS}:
        parser.error(f"no such operator: {', '.join(sorted(unknown))}")
    tally: Counter[str] = Counter()
    for operator in options.operators or OPERATORS:
        for kind in options.types:
            built = case(operator, kind)
            if built is not None:
                tally[_told(operator, kind, outcome(built))] += 1
    print(", ".join(f"{count} {verdict}" for verdict, count in tally.most_common()))
    return 1 if tally["wrong"] else 0


def _told(operator: str, kind: str, found: Outcome) -> str:
    """Print how a case ended; returns its verdict."""
    reason = DEVIATIONS.get((operator, kind)) if found.verdict == "wrong" else None
    verdict = "explained" if reason else found.verdict
    print(f"{operator} of {kind}: {verdict}{f', as {reason}' if reason else ''}", flush=True)
    if verdict in ("wrong", "refused"):
        for line in found.details:
            print(f"    {line}", flush=True)
    return verdict


if __name__ == "__main__":
    sys.exit(main())
