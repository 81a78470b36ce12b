"""What a compilation says of its module."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sartor.artifact import Artifact
from sartor.cli.tables import compile_summary
from sartor.frontend.imported_model import ImportedModel
from sartor.runtime.manifest import Manifest
from tests.plugin.planning.two_devices import CONFIG, selected, transfers


@pytest.mark.parametrize(
    ("seconds", "command"),
    [
        (1e-5, ["sartor", "run", "net.vmfb"]),
        (
            1e-2,
            ["iree-run-module", "--device=local-task", "--module=net.vmfb", "--function=main_graph", "--input=@x.npy"],
        ),
    ],
)
def test_stock_tools_do_not_run_several_segments(
    imported_of: Callable[[str], ImportedModel], monkeypatch: pytest.MonkeyPatch, seconds: float, command: list[str]
) -> None:
    imported = imported_of("lenet")
    recipe = selected(imported, transfers(seconds, seconds))
    manifest = Manifest.from_json(recipe.manifest(imported, CONFIG.header))
    monkeypatch.setattr(compile_summary, "read_manifest", lambda _: manifest)
    assert compile_summary.run_command(Artifact(Path("net.vmfb"), recipe.plan, None, 0)) == command
