"""``python -m benchmarks.conformance``: run ONNX's backend tests, and compare them with the list of failures.

The whole suite takes about an hour on two cores. Outcomes are stored, so an interrupted run continues; ``--again``
starts from the beginning. Run it in the repository's root.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.conformance import batches, expected, report, suite
from benchmarks.conformance.suite import Outcome, Status

RESULTS = Path("build/conformance/results.jsonl")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run tests and return the exit code: 0 if all outcomes agree with the list, 1 otherwise."""
    options = _options(arguments)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    if options.again:
        RESULTS.unlink(missing_ok=True)
    known = expected.load()
    tests = suite.collect()
    chosen = [name for name in tests if re.search(options.only, name)]
    done = stored(RESULTS)
    with RESULTS.open("a", encoding="utf-8") as file:
        wanted = [
            name for name in chosen if name not in done or (options.failed and done[name].status is not Status.PASSED)
        ]
        for number, outcome in enumerate(batches.run(tests[name] for name in wanted), 1):
            done[outcome.name] = outcome
            file.write(json.dumps(asdict(outcome)) + "\n")
            file.flush()
            if outcome.status is not Status.PASSED or number % 100 == 0:
                print(
                    f"{number}/{len(wanted)} {outcome.name}: {outcome.status.value} {outcome.message[:200]}", flush=True
                )
    outcomes = [done[name] for name in chosen]
    lines = [
        *expected.surprises(outcomes, known),
        *(f"{name}: no such test" for name in expected.unknown(tests, known)),
    ]
    print("\n".join([*lines, f"{len(chosen)} tests, {len(lines)} not as listed"]))
    if len(chosen) == len(tests) and not lines:
        report.write(outcomes, known)
    return 1 if lines else 0


def stored(path: Path) -> dict[str, Outcome]:
    """Return the last stored outcome of each test by name."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    return {row["name"]: Outcome(**{**row, "status": Status(row["status"])}) for row in rows}


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.conformance", description=__doc__)
    parser.add_argument(
        "--only", default="", metavar="PATTERN", help="run tests whose name has this regular expression"
    )
    parser.add_argument("--again", action="store_true", help="forget what was run before")
    parser.add_argument("--failed", action="store_true", help="run tests again that did not pass")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
