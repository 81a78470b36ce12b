"""Reports on the plans of a file: a page for each, and one that leads to them."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from sartor.errors import UsageError
from sartor.report.page import report_page
from sartor.report.subject import Subject

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width">
<title>%%title%%</title>
<style>
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .4rem .8rem; border-bottom: 1px solid #8885; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
</style>
</head>
<body>
<h1>%%title%%</h1>
<table>
<tr><th>plan</th><th>layers</th><th>predicted ms</th><th>measured ms</th><th>stock IREE ms</th></tr>
%%rows%%
</table>
</body>
</html>
"""


def page_paths(path: Path, count: int) -> list[Path]:
    """The pages of so many plans, which have the name of the one that leads to them with a number.

    Raises:
        UsageError: if the path ends without a name.
    """
    if not path.name:
        raise UsageError(f"'{path}' is a folder; name the file of the report")
    return [path.with_stem(f"{path.stem}-{number}") for number in range(1, count + 1)]


def plan_pages(path: Path, subjects: Sequence[Subject]) -> Iterator[tuple[Path, str]]:
    """A page for each plan, and at last that which leads to them.

    Args:
        path: of the page that leads to the others.
        subjects: the plans, each with a name of its own.

    Yields:
        Where each page belongs, beside ``path`` or there, and its HTML.
    """
    paths = page_paths(path, len(subjects))
    for page, subject in zip(paths, subjects, strict=True):
        yield page, report_page([subject])
    rows = "\n".join(_row(page.name, subject) for page, subject in zip(paths, subjects, strict=True))
    title = html.escape(subjects[0].manifest.model)
    yield path, re.sub("%%(title|rows)%%", lambda match: title if match[1] == "title" else rows, _PAGE)


def _row(page: str, subject: Subject) -> str:
    plan = subject.plan
    numbers = [str(len(plan.layers)), *map(_milliseconds, (plan.predicted, plan.measured, plan.baseline))]
    cells = "".join(f'<td class="number">{number}</td>' for number in numbers)
    return f'<tr><td><a href="{html.escape(page)}">{html.escape(subject.name)}</a></td>{cells}</tr>'


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.3f}"
