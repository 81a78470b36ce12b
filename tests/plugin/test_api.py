"""What ``sartor.compile`` is given in error is named before anything begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sartor
from sartor.errors import UsageError


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"model": 3}, "model is 3, expected the path"),
        ({"model": None}, "model is None, expected the path"),
        ({"model": b"m.onnx"}, "model is b'm.onnx', expected the path"),
        ({"model": "a\0b"}, "expected the path of a file, as text without NUL"),
        ({"model": ""}, r"'\.' is not a file; name an .onnx file"),
        ({"model": "/"}, "'/' is not a file; name an .onnx file"),
        ({"output": 3}, "output is 3, expected the path"),
        ({"output": "a\0b"}, "expected the path of a file, as text without NUL"),
        ({"config": "int8"}, "config is 'int8', expected a CompileConfig"),
        ({"progress": 3}, "progress is 3, expected a function"),
    ],
)
def test_an_argument_without_sense_is_named(tmp_path: Path, arguments: dict[str, Any], complaint: str) -> None:
    model = tmp_path / "m.onnx"
    model.touch()
    with pytest.raises(UsageError, match=complaint):
        sartor.compile(**{"model": model, **arguments})
