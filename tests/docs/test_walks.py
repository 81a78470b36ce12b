"""The walks through the code can be walked, and the pages stay short enough to be read."""

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


DOCS = Path(__file__).parents[2] / "docs"
MOST_GUIDES, MOST_EXPLANATIONS, MOST_WORDS = 10, 5, 2500
EXPLANATIONS = sorted((DOCS / "explanation").glob("*.md"))
# What commands write into pages.
_WRITTEN = re.compile(r"<!-- (?:rooms|table): .*?<!-- end of \w+ -->", re.DOTALL)
_WORD = re.compile(r"\S*\w\S*")


def words(text: str) -> int:
    """The number of words of a page that somebody wrote, code included."""
    return len(_WORD.findall(_WRITTEN.sub(" ", text).replace("|", " ")))


def test_the_guide_has_ten_pages_at_most() -> None:
    assert len(list((DOCS / "guide").rglob("*.md"))) <= MOST_GUIDES


def test_there_are_five_explanations_at_most() -> None:
    assert len(EXPLANATIONS) <= MOST_EXPLANATIONS


@pytest.mark.parametrize("page", EXPLANATIONS, ids=lambda page: page.stem)
def test_an_explanation_is_short(page: Path) -> None:
    assert words(page.read_text(encoding="utf-8")) <= MOST_WORDS


def test_no_page_lies_beside_the_folders() -> None:
    assert [page.name for page in DOCS.glob("*.md")] == ["index.md"]


def test_tables_that_are_written_are_no_words() -> None:
    assert words("| a | b |\n|---|---|\n<!-- table: x -->\n\nnot counted\n\n<!-- end of table -->\nc - `d e`") == 5
