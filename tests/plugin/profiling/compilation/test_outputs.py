"""No output of a compilation coincides with another, or with a file of the model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from sartor.config import CompileConfig
from sartor.errors import UsageError
from sartor.profiling.compilation.outputs import check_files


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
