"""Reports on the plans of a file: a page for each, and one that leads to them."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from pathlib import Path

from sartor.publishing import written
from sartor.report.page import write_report
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


def write_reports(path: Path, subjects: Sequence[Subject]) -> None:
    """Write a page for each plan beside ``path``, and there one that leads to them.

    Args:
        path: of the page that leads to the others, which have its name with a number.
        subjects: the plans, each with a name of its own.

    Raises:
        UsageError: if a file cannot be written.
    """
    rows = []
    for number, subject in enumerate(subjects, 1):
        page = path.with_stem(f"{path.stem}-{number}")
        write_report(page, [subject])
        rows.append(_row(page.name, subject))
    title = html.escape(subjects[0].manifest.model)
    text = re.sub("%%(title|rows)%%", lambda found: title if found[1] == "title" else "\n".join(rows), _PAGE)
    with written(path) as new:
        new.write_text(text, encoding="utf-8")


def _row(page: str, subject: Subject) -> str:
    plan = subject.plan
    numbers = [str(len(plan.layers)), *map(_milliseconds, (plan.predicted, plan.measured, plan.baseline))]
    cells = "".join(f'<td class="number">{each}</td>' for each in numbers)
    return f'<tr><td><a href="{html.escape(page)}">{html.escape(subject.name)}</a></td>{cells}</tr>'


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.3f}"
