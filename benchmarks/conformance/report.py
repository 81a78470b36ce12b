"""Documentation of the results: counts and reasons in ``docs/reference/conformance.md``, a sentence in the README."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from benchmarks.conformance.expected import Failures
from benchmarks.conformance.suite import CATEGORIES, Outcome, Status

DOCUMENT = Path("docs/reference/conformance.md")
README = Path("README.md")
BEGIN = "<!-- conformance: written by `make conformance` -->"
END = "<!-- end of conformance -->"


def write(outcomes: Sequence[Outcome], expected: Sequence[Failures]) -> None:
    """Write both from the outcomes of the whole suite."""
    replace_section(DOCUMENT, "\n".join([*counts(outcomes), "", *reasons(expected)]))
    replace_section(README, sentence(outcomes))


def sentence(outcomes: Sequence[Outcome]) -> str:
    """Return the README's sentence."""
    done = {category: _passed(outcomes, category) for category in CATEGORIES}
    (passed, total), (light, lights) = done["node"], done["light"]
    return (
        f"Of the {total} operator tests of ONNX {version('onnx')}, {passed} ({passed / total:.1%}) pass on a CPU, and "
        f"{light} of its {lights} networks; every other one is listed with its reason, and none gives a wrong result:\n"
        "[docs/reference/conformance.md](docs/reference/conformance.md)."
    )


def counts(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the lines of a table of passed tests, with a row for each part of the suite."""
    rows = ["| part of the suite | tests | passed | not passed |", "|---|---|---|---|"]
    for category in CATEGORIES:
        passed, total = _passed(outcomes, category)
        rows.append(f"| {category} | {total} | {passed} ({passed / total:.1%}) | {total - passed} |")
    return rows


def reasons(expected: Sequence[Failures]) -> list[str]:
    """Return the lines of a table of reasons for failures, the most frequent first."""
    rows = ["| tests | why they do not pass |", "|---|---|"]
    ordered = sorted(expected, key=lambda each: -len(each.tests))
    return rows + [f"| {len(each.tests)} | {each.reason} |" for each in ordered]


def replace_section(path: Path, text: str) -> None:
    """Replace the text between the marks in a file.

    Raises:
        ValueError: if the file does not have both marks.
    """
    before, begin, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"'{path}' has no section '{BEGIN}'")
    path.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", encoding="utf-8")


def _passed(outcomes: Sequence[Outcome], category: str) -> tuple[int, int]:
    found: Mapping[Status, int] = Counter(outcome.status for outcome in outcomes if outcome.category == category)
    return found.get(Status.PASSED, 0), sum(found.values())
