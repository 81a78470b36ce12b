"""Pages of reports: complete, harmless whatever names a model has, of several plans, and without a database."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from sartor.errors import UsageError
from sartor.report.contents import STOCK, contents_of
from sartor.report.page import embedded, page, report_page
from sartor.report.plan_pages import page_paths, plan_pages
from sartor.report.stored import with_readable, with_stored
from sartor.report.subject import LayerErrors, TimesOfSize, open_subject, with_dispatches
from sartor.runtime.dispatch_statistics import Dispatch
from tests.plugin.report.made import FAST, HOSTILE, SLOW, chain, subject


def test_the_data_has_what_is_known_of_every_layer() -> None:
    (model,) = contents_of([subject()])["models"]
    assert [each["name"] for each in model["layers"]] == ["layer 0", "layer 1", "layer 2"]
    first, second, _ = model["layers"]
    assert (first["inputs"], second["inputs"]) == ([[-1, 0]], [[0, 0]])
    assert second["variant"] == FAST
    assert second["routine"] == "f32/conv2d.direct"
    assert (second["seconds"], second["inPlace"]) == (1e-3, pytest.approx(1.21e-3))
    assert second["traffic"] == 3 * 4096
    assert second["live"] == 2 * 4096
    assert second["errors"] == {"error": 2e-6, "before": 1e-6, "alone": 1e-7}
    assert [each["producer"] for each in model["adapts"]] == ["input:x", "layer 2"]
    (case,) = model["cases"]
    assert {each["case"] for each in model["layers"]} == {0}
    assert [each["status"] for each in case["candidates"]] == ["ok", "ok", "wrong_result"]
    assert [(name, model["reasons"][reason]) for name, reason in case["rejected"]] == [("window", "not a pooling")]
    assert model["totals"]["bandwidth"] == 2e10
    assert [each["name"] for each in model["times"]] == ["sartor", "onnxruntime"]


def test_the_whole_model_by_stock_iree_still_has_its_layers_and_candidates() -> None:
    made = subject()
    whole = replace(made, plan=replace(made.plan, unsplit=True, layers=(), adapts=()))
    (model,) = contents_of([whole])["models"]
    assert {each["routine"] for each in model["layers"]} == {STOCK}
    assert model["cases"][0]["candidates"][0]["variant"] == FAST


def test_a_module_without_a_recorded_network_has_its_plan() -> None:
    (model,) = contents_of([replace(subject(), network=None)])["models"]
    assert [each["variant"] for each in model["layers"]] == [FAST] * 3
    assert model["layers"][1]["live"] is None


def test_two_modules_are_compared() -> None:
    data = contents_of([subject(), subject(variant=SLOW, name="other.vmfb")])
    assert [each["differs"] for each in data["changes"]] == [True] * 3
    assert data["changes"][0]["sides"][1]["variants"] == (SLOW,)


def test_times_over_sizes_are_data_of_the_page() -> None:
    taken = [TimesOfSize({"batch": 1, "sequence": size}, {"sartor": size * 1e-3}) for size in (7, 31)]
    (model,) = contents_of([replace(subject(), by_size=taken)])["models"]
    assert model["bySize"][1] == {"sizes": {"batch": 1, "sequence": 31}, "seconds": {"sartor": 0.031}}


def test_times_in_a_run_replace_those_of_the_plan() -> None:
    dispatches = [Dispatch("layer_layer 1_dispatch_0_matmul", 2, 4e-3)]
    run = with_dispatches(subject(), dispatches, 5e-3)
    assert run.plan.measured == 5e-3


def test_no_text_of_the_model_can_end_the_data() -> None:
    data = {HOSTILE: [HOSTILE, {"nested": HOSTILE}]}
    text = embedded(data)
    assert not re.search("[<>&\u2028]", text)
    assert json.loads(text) == data


def test_a_hostile_model_adds_no_element_to_the_page() -> None:
    plain = page("plain", contents_of([subject()]))
    hostile = page(HOSTILE, contents_of([subject(prefix=HOSTILE, name=HOSTILE)]))
    assert hostile.count("<script") == plain.count("<script")
    assert hostile.count("</script") == plain.count("</script")
    assert "alert(1)</title>" not in hostile


def test_the_page_loads_nothing() -> None:
    text = page("x", contents_of([subject()]))
    own = text[: text.index('id="layout-worker"')]
    assert "default-src 'none'" in own
    assert not re.search(r'(src|href)\s*=\s*["\']', own)
    assert "@import" not in own


def test_numbers_that_json_lacks_are_refused() -> None:
    with pytest.raises(ValueError, match="Out of range"):
        embedded({"error": float("inf")})


def test_an_infinite_error_is_not_known() -> None:
    made = replace(subject(), errors={"layer 1": LayerErrors(float("inf"), 1e-6, None)})
    (model,) = json.loads(embedded(contents_of([made])))["models"]
    assert model["layers"][1]["errors"] == {"error": None, "before": 1e-6, "alone": None}


def test_a_large_report_stays_small() -> None:
    assert len(report_page([subject(count=1000)]).encode()) < 5_000_000


def test_a_plan_of_another_module_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made = subject()
    manifest = replace(made.manifest, network=chain(["layer 0", "layer 1", "layer 2"]).to_json())
    monkeypatch.setattr("sartor.report.subject.read_manifest", lambda _: manifest)
    opened = open_subject(Path("model.vmfb"))
    assert opened.network == made.network
    assert opened.tasks == {"task"}
    other = subject(variant=SLOW).plan
    with pytest.raises(UsageError, match="it chooses other variants"):
        open_subject(Path("model.vmfb"), other)


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


def test_a_database_that_is_none_is_told_and_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    database = tmp_path / "tuning.db"
    database.write_bytes(b"SQLite format 3\0" + bytes(200))
    plain = subject()
    with pytest.raises(UsageError):
        with_stored(plain, database)
    assert with_readable(plain, database) is plain
    assert "the report lacks what was measured: " in caplog.text
