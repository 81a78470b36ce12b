"""``python -m tools.extremes [OPERATOR...]``: compute each operator in each type at the values where the type ends."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections import Counter
from collections.abc import Mapping, Sequence

from tools.extremes.comparison import Outcome, Verdict, outcome
from tools.extremes.deviations import DEVIATIONS, REFUSALS
from tools.extremes.operators import OPERATORS, case
from tools.extremes.values import TYPES

Key = tuple[str, str]


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare the operators; returns the exit code.

    Returns:
        1 if a result is wrong that no deviation covers, or a case is refused that is not listed; 0 otherwise.
    """
    parser = argparse.ArgumentParser(prog="python -m tools.extremes", description=__doc__)
    parser.add_argument("operators", nargs="*", metavar="OPERATOR", help="as the report names it (default: all)")
    parser.add_argument("--types", nargs="+", choices=TYPES, default=TYPES, metavar="TYPE", help="as NumPy names it")
    options = parser.parse_args(arguments)
    if unknown := {*options.operators} - {*OPERATORS}:
        parser.error(f"no such operator: {', '.join(sorted(unknown))}")
    found: dict[Key, Outcome] = {}
    for key in itertools.product(options.operators or OPERATORS, options.types):
        built = case(*key)
        if built is not None:
            found[key] = outcome(built, DEVIATIONS.get(key, ()))
            _tell(key, found[key])
    if not options.operators and {*options.types} == {*TYPES}:
        _tell_stale(found)
    tally = Counter(each.verdict for each in found.values())
    print(", ".join(f"{count} {verdict.value}" for verdict, count in tally.most_common()))
    return 1 if any(_is_fault(*each) for each in found.items()) else 0


def _is_fault(key: Key, found: Outcome) -> bool:
    return found.verdict is Verdict.WRONG or (found.verdict is Verdict.REFUSED and key not in REFUSALS)


def _tell(key: Key, found: Outcome) -> None:
    """Print how a case ended."""
    known = REFUSALS.get(key) if found.verdict is Verdict.REFUSED else None
    reasons = (known,) if known else found.details if found.verdict is Verdict.EXPLAINED else ()
    print(f"{_name(key)}: {found.verdict.value}{''.join(f', as {each}' for each in reasons)}", flush=True)
    if _is_fault(key, found):
        for line in found.details:
            print(f"    {line}", flush=True)


def _tell_stale(found: Mapping[Key, Outcome]) -> None:
    """Print what is listed and did not happen."""
    nothing = Outcome(Verdict.UNKNOWN)
    for key, reason in REFUSALS.items():
        if found.get(key, nothing).verdict is not Verdict.REFUSED:
            print(f"{_name(key)}: no longer refused, as {reason}")
    for key, deviations in DEVIATIONS.items():
        ended = found.get(key, nothing)
        for reason in (deviation.reason for deviation in deviations):
            if ended.verdict is not Verdict.WRONG and reason not in ended.details:
                print(f"{_name(key)}: nothing is explained, as {reason}")


def _name(key: Key) -> str:
    return " of ".join(key)


if __name__ == "__main__":
    sys.exit(main())
