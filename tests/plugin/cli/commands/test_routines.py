"""Options of ``sartor routines``."""

from __future__ import annotations

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
