"""Options of ``sartor routines``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sartor.cli.commands.routines import routines
from sartor.errors import UsageError


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
