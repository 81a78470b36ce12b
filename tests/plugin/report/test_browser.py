"""The page in a browser: it draws, answers to keys, and complains about nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sartor.report.page import report_page
from sartor.report.subject import Subject, TimesOfSize
from tests.plugin.report.made import FAST, HOSTILE, SLOW, subject

_CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_TABS = ["network", "layers", "time", "roofline", "memory", "error", "cold", "about"]
_LARGE = 1000
# Layout of the large network takes seconds, on a busy machine several times as many.
_PATIENCE = 90_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if _CHROMIUM is None:
        pytest.skip("needs chromium, which Debian has as a package")
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    with playwright.sync_playwright() as found:
        opened = found.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


class _Page:
    """A page that is drawn, with all that it wrote to the console, or tried to load."""

    def __init__(self, browser: Any, path: Path, scheme: str = "light") -> None:
        self.complaints: list[str] = []
        self.page = browser.new_page(color_scheme=scheme, viewport={"width": 1400, "height": 900})
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("dialog", self._note_dialog)
        self.page.on("request", self._note_request)
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-state=ready]", state="attached", timeout=_PATIENCE)

    def _note_dialog(self, dialog: Any) -> None:
        self.complaints.append("a dialog")
        dialog.dismiss()

    def _note_request(self, request: Any) -> None:
        if not request.url.startswith(("file:", "blob:", "data:")):
            self.complaints.append(f"it loads {request.url}")

    def text(self, selector: str) -> str:
        found: str = self.page.inner_text(selector)
        return found

    def value(self, selector: str, name: str) -> str | None:
        found: str | None = self.page.get_attribute(selector, name)
        return found


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    _write(path, subject(count=12))
    return path


def _write(path: Path, *subjects: Subject) -> None:
    path.write_text(report_page(subjects), encoding="utf-8")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_part_is_drawn_without_a_complaint(browser: Any, report: Path, scheme: str) -> None:
    shown = _Page(browser, report, scheme)
    assert shown.value("html", "data-theme") == scheme
    assert shown.page.locator("#graph canvas").count() > 0
    for number, tab in enumerate(_TABS, 1):
        shown.page.keyboard.press(str(number))
        assert shown.page.is_visible(f"#{tab}")
        assert sum(shown.page.is_visible(f"#{each}") for each in _TABS) == 1
        assert shown.text(f"#{tab}")
    assert [shown.page.locator(f"#{tab} canvas").count() for tab in _TABS[2:7]] == [5, 1, 1, 1, 1]
    shown.page.keyboard.press("t")
    assert shown.value("html", "data-theme") == ("dark" if scheme == "light" else "light")
    assert shown.complaints == []


@pytest.mark.parametrize("others", [{}, {"batch": 1}])
def test_times_over_sizes_are_drawn(browser: Any, others: dict[str, int], tmp_path: Path) -> None:
    taken = [TimesOfSize({**others, "sequence": size}, {"sartor": size * 1e-3, "onnxruntime": 1}) for size in (7, 31)]
    _write(tmp_path / "sizes.html", replace(subject(), by_size=taken))
    shown = _Page(browser, tmp_path / "sizes.html")
    shown.page.keyboard.press("3")
    assert shown.page.locator("#chart-sizes canvas").count() == 1
    assert shown.complaints == []


def test_search_finds_layers_and_shows_what_is_known_of_them(browser: Any, report: Path) -> None:
    shown = _Page(browser, report)
    shown.page.keyboard.press("/")
    shown.page.keyboard.type("NODE of layer 7")
    assert shown.text("#found") == "1 found"
    shown.page.keyboard.press("Enter")
    details = shown.text("#details")
    for expected in (
        "layer 7",
        FAST,
        "3.72 times as slow",
        "is wrong: off by 0.5",
        "1x16x8x8xf32",
        "layer 6",
        "layer 8",
    ):
        assert expected in details
    shown.page.click("#details button:has-text('routines with their reasons')")
    assert "not a pooling" in shown.text("#details")
    assert shown.complaints == []


def test_keys_go_from_layer_to_layer(browser: Any, report: Path) -> None:
    shown = _Page(browser, report)
    title = "#details h2"
    for key, expected in (("j", "layer 0"), ("ArrowDown", "layer 1"), ("ArrowRight", "layer 2"), ("k", "layer 1")):
        shown.page.keyboard.press(key)
        assert shown.text(title) == expected
    shown.page.keyboard.press("Escape")
    assert shown.text(title) == "model.vmfb"
    before = shown.page.input_value("#colour")
    shown.page.keyboard.press("c")
    assert shown.page.input_value("#colour") != before
    shown.page.keyboard.press("?")
    assert shown.page.is_visible("#keys")
    assert shown.complaints == []


def test_every_colouring_has_a_legend(browser: Any, report: Path) -> None:
    shown = _Page(browser, report)
    for value in ("routine", "kind", "dtype", "device", "time", "share", "live", "error"):
        shown.page.select_option("#colour", value)
        assert len(shown.text("#legend")) > len("conversion")
    assert shown.complaints == []


def test_names_of_a_hostile_model_are_texts(browser: Any, tmp_path: Path) -> None:
    _write(tmp_path / "report.html", subject(prefix=HOSTILE, name=HOSTILE))
    shown = _Page(browser, tmp_path / "report.html")
    for number in range(1, len(_TABS) + 1):
        shown.page.keyboard.press(str(number))
    shown.page.keyboard.press("1")
    shown.page.keyboard.press("j")
    assert "alert(1)" in shown.text("#details h2")
    assert shown.page.locator("body script:text-is('alert(1)')").count() == 0
    assert shown.complaints == []


def test_two_modules_are_shown_side_by_side(browser: Any, tmp_path: Path) -> None:
    _write(tmp_path / "report.html", subject(), subject(variant=SLOW, name="other.vmfb"))
    shown = _Page(browser, tmp_path / "report.html")
    shown.page.keyboard.press("2")
    assert "3 of 3 parts of the network differ" in shown.text("#changes")
    assert SLOW in shown.text("#changes")
    shown.page.keyboard.press("1")
    shown.page.keyboard.press("m")
    assert shown.text("#details h2") == "other.vmfb"
    shown.page.wait_for_selector("#busy", state="hidden", timeout=_PATIENCE)
    assert shown.complaints == []


def test_a_thousand_layers_are_drawn_and_searched(browser: Any, tmp_path: Path) -> None:
    _write(tmp_path / "report.html", subject(count=_LARGE))
    shown = _Page(browser, tmp_path / "report.html")
    shown.page.keyboard.press("/")
    shown.page.keyboard.type("layer 987")
    shown.page.keyboard.press("Enter")
    assert shown.text("#details h2") == "layer 987"
    assert shown.complaints == []
