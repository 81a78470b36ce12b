"""The walks through the code that the design describes can be walked."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# The most files that may be needed for each question.
MOST = {"How does a convolution get": 10, "How does a plan become": 6, "The result of an operator": 5}
_STEP = re.compile(r"^\d+\. `(?P<path>[\w/]+\.py)`: `(?P<name>\w+)`", re.MULTILINE)


def _walk(question: str) -> list[tuple[str, str]]:
    """The files of a walk, each with the name that it is about."""
    text = (ROOT / "docs" / "explanation" / "design.md").read_text(encoding="utf-8")
    (section,) = (part for part in text.split("\n### ") if part.startswith(question))
    return [(step["path"], step["name"]) for step in _STEP.finditer(section.partition("\n## ")[0])]


def _defined(source: str) -> set[str]:
    body = ast.parse(source).body
    assigned = (target for node in body if isinstance(node, ast.Assign) for target in node.targets)
    return {
        *(node.name for node in body if isinstance(node, (ast.ClassDef, ast.FunctionDef))),
        *(target.id for target in assigned if isinstance(target, ast.Name)),
    }


@pytest.mark.parametrize("question", MOST)
def test_each_step_is_named_by_an_earlier_one(question: str) -> None:
    steps = _walk(question)
    assert 3 < len(steps) <= MOST[question]
    seen = ""
    for path, name in steps:
        source = (ROOT / path).read_text(encoding="utf-8")
        assert name in _defined(source), f"{path} does not define {name}"
        assert not seen or re.search(rf"\b{name}\b", seen), f"nothing before {path} names {name}"
        seen += source
