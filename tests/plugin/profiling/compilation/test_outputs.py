"""No output of a compilation coincides with another, or with a file of the model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx
import pytest

from sartor.config import CompileConfig
from sartor.errors import UsageError
from sartor.policies import Precision
from sartor.profiling.compilation.outputs import check_files
from tests.plugin.external_model import write_convolution


@pytest.mark.parametrize(
    ("output", "external", "others", "said"),
    [
        ("w.irpa", "o.irpa", {}, "the output '.*' would overwrite weights of the model"),
        ("o.vmfb", "w.irpa", {}, "the external weights '.*' would overwrite weights of the model"),
        ("o.vmfb", "o.irpa", {"--save-plan": "w.irpa"}, "--save-plan '.*' would overwrite weights of the model"),
        ("o.vmfb", "o.irpa", {"--report": "model.onnx"}, "--report '.*' would overwrite the model"),
        ("o.vmfb", "o.irpa", {"--report": "o.irpa"}, "--report '.*' would overwrite what the external weights writes"),
    ],
)
def test_outputs_that_coincide_with_what_is_used(
    output: str, external: str, others: Mapping[str, str], said: str, tmp_path: Path
) -> None:
    model, weights = tmp_path / "model.onnx", tmp_path / "w.irpa"
    config = CompileConfig(threads=1, database=tmp_path / "t.db", external_weights=tmp_path / external)
    with pytest.raises(UsageError, match=said):
        check_files(
            model, tmp_path / output, config, {option: tmp_path / name for option, name in others.items()}, [weights]
        )
    assert list(tmp_path.iterdir()) == []


def test_stages_overwrite_nothing_for_programs_either(tmp_path: Path) -> None:
    write_convolution(tmp_path / "model.onnx")
    (tmp_path / "d").mkdir()
    config = CompileConfig(threads=1, database=tmp_path / "t.db", dump_directory=tmp_path / "d")
    with pytest.raises(UsageError, match=r"--dump-dir '.*' would write over --report"):
        check_files(
            tmp_path / "model.onnx", tmp_path / "o.vmfb", config, {"--report": tmp_path / "d" / "01-fold-weights.mlir"}
        )


def test_stages_do_not_overwrite_weights_that_nothing_has_read_yet(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    write_convolution(tmp_path / "plain.onnx")
    model, weights = tmp_path / "d" / "model.onnx", "01-fold-weights.mlir"
    plain = onnx.load(tmp_path / "plain.onnx")
    onnx.save(plain, model, save_as_external_data=True, location=weights, size_threshold=0)
    config = CompileConfig(threads=1, database=tmp_path / "t.db", dump_directory=tmp_path / "d")
    with pytest.raises(UsageError, match="would write over weights of the model"):
        check_files(model, tmp_path / "o.vmfb", config, {})


def test_of_a_folder_of_samples_only_samples_are_kept(tmp_path: Path) -> None:
    """A module beside them is replaced as it is elsewhere."""
    config = CompileConfig(threads=1, database=tmp_path / "t.db", calibration=tmp_path, precision=Precision.INT8)
    (tmp_path / "model.vmfb").touch()
    check_files(tmp_path / "model.onnx", tmp_path / "model.vmfb", config, {})
    (tmp_path / "a.npz").touch()
    with pytest.raises(UsageError, match="would overwrite samples for calibration"):
        check_files(tmp_path / "model.onnx", tmp_path / "a.npz", config, {})
