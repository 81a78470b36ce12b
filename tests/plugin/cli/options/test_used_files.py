"""What models and modules consist of."""

from __future__ import annotations

from pathlib import Path

import pytest

from sartor.cli.options import used_files
from sartor.cli.options.used_files import model_files, module_files
from sartor.errors import UsageError
from sartor.runtime.manifest import Manifest
from tests.plugin.external_model import WEIGHTS, write_convolution
from tests.runtime.conftest import MANIFEST


def test_a_model_has_weights_beside_it(tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    write_convolution(model)
    assert model_files(model) == [("the model", model), ("weights of the model", (tmp_path / WEIGHTS).resolve())]
    (tmp_path / WEIGHTS).unlink()
    with pytest.raises(UsageError, match="which is missing from"):
        model_files(model)


def test_a_module_has_weights_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "model.vmfb"
    assert module_files(module) == [("the module", module)]
    module.touch()
    monkeypatch.setattr(used_files, "open_module", lambda path: path)
    manifest = Manifest(**(MANIFEST | {"parameters": {"model": "model.irpa"}}))  # type: ignore[arg-type]
    monkeypatch.setattr(used_files, "find_manifest", lambda _: manifest)
    assert module_files(module) == [("the module", module), ("weights of the module", tmp_path / "model.irpa")]
