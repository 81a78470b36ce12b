"""What ``sartor inspect`` and ``sartor routines`` show, and their options."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sartor.cli.commands import inspect as command
from sartor.cli.commands.routines import routines
from sartor.errors import UsageError
from sartor.frontend.imported_model import ImportedModel
from sartor.runtime.manifest import Manifest
from tests.plugin.planning.two_devices import CONFIG, selected, transfers
from tests.plugin.report.made import SLOW, choice, plan_of


def test_segments_and_transfers_are_shown(
    imported_of: Callable[[str], ImportedModel], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    imported = imported_of("lenet")
    manifest = Manifest.from_json(selected(imported, transfers(2e-5, 3e-5)).manifest(imported, CONFIG.header))
    monkeypatch.setattr(command, "read_manifest", lambda _: manifest)
    command.inspect(Path("lenet.vmfb"))
    shown = capsys.readouterr().out
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines()]
    assert ["plan", "7 layers, 1 adapts, 4 transfers"] in lines
    assert ["main_graph$1", "cpu", "conv1:0", "pool1:0: float32[1, 4, 4, 16]"] in lines
    assert ["pool1", "conv2", "cpu:f32@nhwc -> vulkan:f32@nchw", "0.021"] in lines
    assert ["pool2", "dense1", "cpu:f32@nhwc -> cpu:f32@nchw", "0.001"] in lines


@pytest.fixture
def plans(tmp_path: Path) -> tuple[Path, Path]:
    """Two plans that differ in one layer, by 3 ms."""
    found = (tmp_path / "a.json", tmp_path / "b.json")
    plan_of(choice("first"), choice("second")).save(found[0])
    plan_of(choice("first"), choice("second", SLOW, 4e-3)).save(found[1])
    return found


def test_the_difference_of_two_plans_is_told_by_node(
    plans: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    command.inspect(*plans, diff=True)
    shown = capsys.readouterr().out
    assert "1 of 2" in shown
    assert "node of second" in shown
    assert "node of first" not in shown
    assert "+3.000" in shown


def test_the_difference_is_data_too(plans: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    command.inspect(*plans, diff=True, json=True)
    found = json.loads(capsys.readouterr().out)
    assert (found["same_model"], found["parts"], found["cost"]) == (True, 2, pytest.approx(3e-3))
    (only,) = found["differing"]
    assert (only["nodes"], only["second"]["variants"]) == (["node of second"], [SLOW])


@pytest.mark.parametrize(
    ("second", "options", "complaint"),
    [
        (False, {"diff": True}, "--diff compares two"),
        (True, {}, "is one file too many; compare the plans of two modules with --diff"),
        (True, {"diff": True, "verify": True}, "leave --diff out"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    plans: tuple[Path, Path], second: bool, options: dict[str, bool], complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        command.inspect(
            plans[0], plans[1] if second else None, diff=options.get("diff", False), verify="verify" in options
        )


def test_a_picture_of_names_that_are_no_text_is_drawn(tmp_path: Path) -> None:
    typical = {"start": 1, "imports": 0, "load": 0, "runs": [1]}
    content = {"cold": [{"runtime": "\ud800", "files": "dropped", "typical": typical}]}
    (tmp_path / "cold.json").write_text(json.dumps(content))
    command._draw_cold(tmp_path / "cold.json", tmp_path / "cold.svg")
    assert (tmp_path / "cold.svg").read_text(encoding="utf-8").startswith("<svg")


@pytest.mark.parametrize(
    ("option", "given"),
    [
        ("--cpu", {"cpu": "foo"}),
        ("--cpu", {"cpu": "x86-64-v3"}),
        ("--target", {"target": "vulkan"}),
        ("--shape", {"shape": ["x=1,3"]}),
        ("--bind", {"bind": ["x=1"]}),
        ("--layer", {"layer": "conv"}),
        ("--precision", {"precision": "bf16"}),
    ],
)
def test_options_about_layers_need_a_model(option: str, given: dict[str, object]) -> None:
    with pytest.raises(UsageError) as refused:
        routines(**given)  # type: ignore[arg-type]
    if given != {"cpu": "foo"}:
        assert str(refused.value) == f"{option} is for the layers of a model; name a model, or leave {option} out"


def test_a_precision_needs_a_layer() -> None:
    with pytest.raises(UsageError, match="name one with --layer"):
        routines(Path("model.onnx"), precision="bf16")


def test_formats_are_about_no_model() -> None:
    with pytest.raises(UsageError, match="leave the model out"):
        routines(Path("model.onnx"), formats=True)


def test_formats_are_listed_with_what_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    routines(formats=True, json=True)
    listed = json.loads(capsys.readouterr().out)
    assert {"algorithm": "direct", "format": "8 bits by dot products", "routine": "dots"} in listed["pairs"]
    reason = "it is for cuda, and the format for cpu"
    assert {"algorithm": "implicit", "format": "weights in 8 bits", "reason": reason} in listed["absent"]
    (by_i8,) = (form for form in listed["formats"] if form["format"] == "weights in 8 bits")
    assert (by_i8["storage"], by_i8["weights"], by_i8["layout"]) == (None, "i8", None)
    routines(formats=True)
    assert "what does not exist" in capsys.readouterr().out
