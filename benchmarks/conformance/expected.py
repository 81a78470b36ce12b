"""Tests that are known to fail, each with the reason; all other tests must pass."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.conformance.suite import CPU, Outcome, Status

_DIFFERENCE = re.compile(r"Max absolute difference among violations: ([\d.e+-]+)")
_FOLDER = Path(__file__).parent
FILES = {CPU: _FOLDER / "expected_failures.toml", "vulkan": _FOLDER / "expected_failures_vulkan.toml"}
"""The lists of each device. What fails on the CPU fails on other devices too, unless their list says otherwise."""


@dataclass(frozen=True)
class Failures:
    """Tests that fail for one reason.

    Attributes:
        reason: the reason as a sentence.
        error: regular expression that matches a part of each test's error.
        tests: names of the tests.
        rounding: largest absolute difference that rounding explains.
        wrong: whether results are wrong, which no list but those of GPUs may have.
    """

    reason: str
    error: str
    tests: tuple[str, ...]
    rounding: float = 0.0
    wrong: bool = False

    def covers(self, outcome: Outcome) -> bool:
        """Whether this reason explains a failed test's outcome."""
        if outcome.status is Status.WRONG and self.wrong:
            return re.search(self.error, outcome.message) is not None
        if outcome.status is Status.WRONG:
            found = _DIFFERENCE.search(outcome.message)
            return found is not None and float(found[1]) <= self.rounding
        return outcome.status is Status.REFUSED and re.search(self.error, outcome.message) is not None


def load(device: str = CPU) -> tuple[Failures, ...]:
    """Return the expected failures on a device: its own, and those of the CPU that its list does not name.

    Raises:
        ValueError: if a list has a test twice, or that of the CPU a wrong result.
    """
    own = read(FILES[device])
    if device == CPU:
        if any(each.wrong for each in own):
            raise ValueError("a wrong result on the CPU is not to be expected")
        return own
    named = {name for each in own for name in each.tests} | passing(FILES[device])
    common = [replace(each, tests=tuple(name for name in each.tests if name not in named)) for each in read(FILES[CPU])]
    return (*own, *(each for each in common if each.tests))


def passing(path: Path) -> frozenset[str]:
    """Return the tests of which a file says that they pass, though they fail on the CPU."""
    return frozenset(tomllib.loads(path.read_text(encoding="utf-8")).get("passes", ()))


def read(path: Path) -> tuple[Failures, ...]:
    """Return the expected failures of a file.

    Raises:
        ValueError: if a test is listed twice.
    """
    found = tuple(
        Failures(
            each["reason"], each["error"], tuple(each["tests"]), each.get("rounding", 0.0), each.get("wrong", False)
        )
        for each in tomllib.loads(path.read_text(encoding="utf-8"))["failures"]
    )
    names = [name for each in found for name in each.tests]
    if len(set(names)) != len(names):
        raise ValueError(f"listed twice: {sorted({name for name in names if names.count(name) > 1})}")
    return found


def surprises(outcomes: Iterable[Outcome], expected: Sequence[Failures]) -> list[str]:
    """Return one line for each outcome that differs from the list: a failure, another error or a pass."""
    listed = {name: each for each in expected for name in each.tests}
    lines = []
    for outcome in outcomes:
        known = listed.get(outcome.name)
        if outcome.status is Status.PASSED:
            if known is not None:
                lines.append(f"{outcome.name}: passes, but is listed as failing")
        elif known is None or not known.covers(outcome):
            lines.append(f"{outcome.name}: {outcome.status.value}: {outcome.message}")
    return lines


def unknown(names: Iterable[str], expected: Sequence[Failures]) -> list[str]:
    """Return the listed tests that the suite does not have."""
    present = set(names)
    return [name for each in expected for name in each.tests if name not in present]
