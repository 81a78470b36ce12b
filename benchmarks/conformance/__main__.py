"""``python -m benchmarks.conformance``: run ONNX's backend tests, and compare them with the list of failures.

Outcomes are stored, so an interrupted run continues; ``--again``
starts from the beginning. Run it in the repository's root.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.conformance import batches, expected, opened, report, suite
from benchmarks.conformance.suite import OnnxTest, Outcome, Status
from sartor.backend import SartorBackend

FOLDER = Path("build/conformance")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run tests and return the exit code: 0 if all outcomes agree with the list, 1 otherwise."""
    options = _options(arguments)
    if not SartorBackend.supports_device(options.device.upper()):
        print(f"nothing is run, because this machine has no {options.device} device")
        return 0
    results = FOLDER / f"results-{'open' if options.open else options.device}.jsonl"
    results.parent.mkdir(parents=True, exist_ok=True)
    if options.again:
        results.unlink(missing_ok=True)
    known = expected.load(options.device)
    every = suite.collect()
    tests = suite.chosen(every, options.device)
    wanted = {name: test for name, test in tests.items() if re.search(options.only, name)}
    if options.open:
        return _run_open(wanted, results, options)
    done = _finished(wanted, results, options)
    lines = [
        *expected.surprises([done[name] for name in wanted], known),
        *(f"{name}: no such test" for name in expected.unknown(every, known)),
    ]
    print("\n".join([*lines, f"{len(wanted)} tests, {len(lines)} not as listed"]))
    if len(wanted) == len(every) and not lines:
        report.write([done[name] for name in wanted], known)
    return 1 if lines else 0


def _run_open(tests: Mapping[str, OnnxTest], results: Path, options: argparse.Namespace) -> int:
    """Run operator tests at open sizes, and return 1 if one is wrong or ends with another error than a refusal."""
    sample = dict([*opened.chosen(tests).items()][:: options.every])
    done = [each for name, each in _finished(sample, results, options).items() if name in sample]
    print("\n".join(opened.summary(done)))
    return int(any(each.status in (Status.WRONG, Status.BROKEN) for each in done))


def _finished(tests: Mapping[str, OnnxTest], results: Path, options: argparse.Namespace) -> dict[str, Outcome]:
    """Run the tests that have no stored outcome, and store theirs; return all stored outcomes by name."""
    done = stored(results)
    missing = [
        test
        for name, test in tests.items()
        if name not in done or (options.failed and done[name].status is not Status.PASSED)
    ]
    with results.open("a", encoding="utf-8") as file:
        outcomes = opened.run(missing) if options.open else batches.run(missing, options.device)
        for number, outcome in enumerate(outcomes, 1):
            done[outcome.name] = outcome
            file.write(json.dumps(asdict(outcome)) + "\n")
            file.flush()
            if outcome.status is not Status.PASSED or number % 100 == 0:
                print(
                    f"{number}/{len(missing)} {outcome.name}: {outcome.status.value} {outcome.message[:200]}",
                    flush=True,
                )
    return done


def stored(path: Path) -> dict[str, Outcome]:
    """Return the last stored outcome of each test by name."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    return {row["name"]: Outcome(**{**row, "status": Status(row["status"])}) for row in rows}


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.conformance", description=__doc__)
    parser.add_argument(
        "--only", default="", metavar="PATTERN", help="run tests whose name has this regular expression"
    )
    parser.add_argument("--device", default=suite.CPU, choices=suite.DEVICES, help="run tests on this device")
    parser.add_argument("--open", action="store_true", help="with all dimensions of inputs open, and count what passes")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="with --open: one test in N")
    parser.add_argument("--again", action="store_true", help="forget what was run before")
    parser.add_argument("--failed", action="store_true", help="run tests again that did not pass")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
