"""Every figure of a document is in a result, or in a list that says where it is from."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.record.documents import documents, with_results
from benchmarks.record.observations import draft, figures_of, observations, observed, untraceable
from benchmarks.record.results import RESULTS
from sartor.errors import UsageError

_TEXT = """# Title

It took 12 ms, 1.5 and 2.0 ms, or 1.2 times as long, by `sleep 9 s`; 3 layers, IREE 3.13, 8x8 pixels.

## Later

| network | ms |
|---|---|
| a, 2 threads | 4.75 |

<!-- table: tuning -->
| b | 9.25 |
<!-- end of table -->

```
100 ms
```
"""


def test_figures_are_found_by_section() -> None:
    assert figures_of(_TEXT) == {"Title": ["12 ms", "1.5 and 2.0 ms", "1.2 times as"], "Later": ["4.75"]}


@pytest.mark.parametrize(
    ("text", "figures"),
    [
        ("takes 2.5 instead of 2.1 ms, before 3.7", ["2.5 instead of 2.1 ms", "3.7"]),
        ("8.78, 8.69 and 8.68 ms, for an LSTM of 128, 160 GB/s", ["8.78, 8.69 and 8.68 ms", "160 GB/s"]),
        ("8 times less, within 4 times of it, 245 seconds", ["8 times less", "4 times", "245 seconds"]),
        (
            "at 1.5 TFLOP/s, 205 MB at 8.9 GB/s, 80 cycles, 1.5-fold",
            ["1.5 TFLOP/s", "205 MB", "8.9 GB/s", "80 cycles", "1.5-fold"],
        ),
        ("errors of 2e-7 to 1.4e-2 within 1e-3", ["1.4e-2", "2e-7"]),
        ("| -13.1 | 1.77 ± 0.19 | 3.5e-5 |", ["-13.1", "1.77", "0.19", "3.5e-5"]),
        ("Python 3.11, IREE 3.13's, ONNX Runtime 1.31 (Apache 2.0, section 3.1), 1.23.2, Linux 6.16, 3x3", []),
        ("ONNX Runtime 1.8 and OpenVINO 2.9", ["1.8", "2.9"]),
    ],
)
def test_figures_have_a_unit_or_a_fraction(text: str, figures: list[str]) -> None:
    found = figures_of(text).get("beginning", [])
    assert sorted(found) == sorted(figures)


def test_a_figure_must_be_listed_and_a_listed_one_must_be_there(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(_TEXT)
    listed = tmp_path / "observations" / "page.toml"
    listed.parent.mkdir()
    assert len(list(untraceable(page, tmp_path))) == 4
    text = draft("Title", ["12 ms", "1.5 and 2.0 ms", "1.2 times as"]) + draft("Later", ["4.75", "5.75"])
    listed.write_text(text.replace('""', '"by hand"'))
    assert list(untraceable(page, tmp_path)) == [
        f"{page}, section 'Later': 5.75 is observed, but the document does not have it"
    ]


def test_a_list_that_is_not_completed_is_refused(tmp_path: Path) -> None:
    listed = tmp_path / "observations" / "page.toml"
    listed.parent.mkdir()
    listed.write_text(draft("Title", ["12 ms"]))
    with pytest.raises(UsageError, match="no list of observations"):
        observations(Path("page.md"), tmp_path)


@pytest.mark.parametrize("page", documents(Path.cwd()), ids=lambda page: observed(page).as_posix())
def test_documents_are_as_the_results_say(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert with_results(text, RESULTS) == text


@pytest.mark.parametrize("page", documents(Path.cwd()), ids=lambda page: observed(page).as_posix())
def test_documents_have_only_figures_with_a_source(page: Path) -> None:
    assert list(untraceable(page, RESULTS)) == []


def test_lists_are_of_documents() -> None:
    lists = RESULTS / "observations"
    assert {path.relative_to(lists) for path in lists.rglob("*.toml")} <= {*map(observed, documents(Path.cwd()))}


def test_a_list_is_found_by_the_place_of_its_page() -> None:
    pages = ("README.md", "docs/index.md", "/docs/home/docs/records/tuning.md")
    assert [observed(Path(page)).as_posix() for page in pages] == ["README.toml", "index.toml", "records/tuning.toml"]


def test_whole_numbers_of_a_column_with_a_unit_are_figures() -> None:
    text = (
        "## Times\n\n| network | layers | stock, ms | a pass, s | share |\n|---|---|---|---|---|\n"
        "| a | 17 | 1,234 | 5 to 7 (2.5) | 33 |\n\n| of a step |\n|---|\n| 44 |\n"
    )
    assert figures_of(text) == {"Times": ["1,234", "5", "7", "2.5"]}
