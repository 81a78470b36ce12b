"""The guide and the explanations stay short enough to be read; what is measured goes to the records."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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
