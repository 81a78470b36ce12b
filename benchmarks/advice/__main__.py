"""Follows what refusals advise: ``python -m benchmarks.advice --refused 500``."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence

from benchmarks.advice.follow import End, refusals


def main(arguments: Sequence[str] | None = None) -> int:
    """Follow advice, print what misleads, and return the exit code: 1 if any does."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.advice", description=__doc__)
    parser.add_argument("--refused", type=int, default=500, help="how many refused models are tried (default: 500)")
    parser.add_argument("--first", type=int, default=0, help="the first seed; others find others")
    options = parser.parse_args(arguments)
    ends = Counter[End]()
    for result in refusals(options.refused, options.first):
        ends[result.end] += 1
        if result.end in (End.CRASHES, End.MISLEADS, End.SILENT):
            print(f"seed {result.seed}: {result.end}", *result.messages, sep="\n    ")
    print(*(f"{number:5} {end}" for end, number in ends.most_common()), sep="\n")
    return 1 if ends[End.MISLEADS] else 0


if __name__ == "__main__":
    sys.exit(main())
