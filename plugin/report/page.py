"""The page: data, scripts and style in one HTML file that needs nothing else.

Names in a report come from a model, which is untrusted. They are data: JSON in an element that is not executed, in
which ``<`` is escaped so that no name can end it, and scripts insert texts as texts. The page's policy lets nothing be
loaded.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from sartor.publishing import written
from sartor.report.contents import contents_of
from sartor.report.subject import Subject

_ASSETS = files(__package__) / "assets"
_SCRIPTS = ("values.js", "colours.js", "network.js", "details.js", "charts.js", "tables.js", "app.js")
# In this order: what a text of JSON may contain that HTML, or a script, would interpret.
_ESCAPED = {"&": "\\u0026", "<": "\\u003c", ">": "\\u003e", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def page(title: str, contents: Mapping[str, Any]) -> str:
    """The HTML of a report.

    Args:
        title: shown by browsers, any text.
        contents: as ``contents_of`` gives them.

    Raises:
        ValueError: if ``contents`` has a number that JSON cannot represent.
    """
    parts = {
        "title": html.escape(title),
        "style": _asset("style.css"),
        "data": embedded(contents),
        "worker": _asset("vendor/elk-worker.min.js"),
        "vendor": _asset("vendor/vendor.min.js"),
        "scripts": "\n".join(f"<script>\n{_asset(name)}</script>" for name in _SCRIPTS),
        "licences": html.escape(_asset("vendor/LICENCES.txt")),
    }
    pieces = _asset("page.html").split("%%")
    # Every other piece names a part; what is inserted is not looked through again.
    return "".join(parts[piece] if index % 2 else piece for index, piece in enumerate(pieces))


def report_page(subjects: Sequence[Subject]) -> str:
    """The HTML of a report on one module, or on two that are compared."""
    return page(" and ".join(subject.name for subject in subjects), contents_of(subjects))


def write_json(path: Path, data: object) -> None:
    """Write data for another tool.

    Raises:
        UsageError: if the file cannot be written; what was there before is still there.
    """
    with written(path) as new:
        new.write_text(json_text(data), encoding="utf-8")


def json_text(data: object) -> str:
    """Data for another tool.

    Raises:
        ValueError: if it has a number that JSON cannot represent.
    """
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def embedded(data: object) -> str:
    """JSON that may stand in a script element of HTML, whatever texts it contains."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for letter, escape in _ESCAPED.items():
        text = text.replace(letter, escape)
    return text


def _asset(name: str) -> str:
    return _ASSETS.joinpath(*name.split("/")).read_text(encoding="utf-8")
