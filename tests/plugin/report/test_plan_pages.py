"""The pages of a file with several plans."""

from __future__ import annotations

from pathlib import Path

import pytest

from sartor.errors import UsageError
from sartor.report.plan_pages import page_paths, plan_pages
from tests.plugin.report.made import HOSTILE, SLOW, subject


def test_each_plan_has_a_page_and_the_last_leads_to_them(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    pages = dict(plan_pages(path, [subject(name="net, 1"), subject(variant=SLOW, name=HOSTILE)]))
    numbered = page_paths(path, 2)
    assert [*pages] == [*numbered, path]
    assert [each.name for each in numbered] == ["page-1.html", "page-2.html"]
    assert all(f'<a href="{each.name}">' in pages[path] for each in numbered)
    assert HOSTILE not in pages[path]
    assert "net, 1" in pages[numbered[0]]
    assert list(tmp_path.iterdir()) == [], "they are not written here"


@pytest.mark.parametrize("path", [".", "/"])
def test_a_folder_is_no_page(path: str) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        page_paths(Path(path), 2)
