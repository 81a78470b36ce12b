"""What all tables have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.record.circumstances import Circumstances
from benchmarks.record.results import Result

DASH = "-"
"""Where there is nothing."""
NOTHING = "Nothing is recorded yet."
"""In place of a table."""


def failure_lines(results: Sequence[Result]) -> Iterable[str]:
    """A line for everyone who took no part."""
    lines = [failure_line(result.network, who, reason) for result in results for who, reason in result.failures.items()]
    if lines:
        yield "\n".join(lines)


def failure_line(network: str, who: str, reason: str) -> str:
    """Who took no part, and why."""
    return f"- {network}: {who} failed: {one_line(reason)}"


def circumstance_lines(made: Iterable[Circumstances]) -> Iterable[str]:
    """A line for each machine with its versions; the commits are in the rows."""
    seen = dict.fromkeys(
        (
            each.machine,
            ", ".join(each.features),
            ", ".join(f"{name} {version}" for name, version in each.versions.items()),
            each.date,
        )
        for each in made
    )
    for machine, features, versions, date in seen:
        yield f"{date}, {machine} ({features}); {versions}."


def one_line(text: str) -> str:
    """A text in one line of a list, the rest left out."""
    line = " ".join(text.split())
    return line if len(line) <= 120 else f"{line[:117]}..."


def in_ms(seconds: float) -> str:
    """Milliseconds with three digits."""
    return f"{seconds * 1e3:#.3g}".rstrip(".")


def thread_count(count: int) -> str:
    """A number of threads in words."""
    return f"{count} thread" if count == 1 else f"{count} threads"


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table without blank lines around it."""
    lines = [" | ".join(columns), " | ".join("---" for _ in columns), *map(" | ".join, rows)]
    return "\n".join(f"| {line} |" for line in lines)
