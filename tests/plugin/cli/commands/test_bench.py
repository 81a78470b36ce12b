"""``sartor bench --trace`` overwrites nothing that the command reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugin.calling import assert_refused, call
from tests.plugin.external_model import WEIGHTS, write_convolution


@pytest.mark.parametrize(
    ("trace", "said"),
    [
        ("model.vmfb", "the module"),
        ("model.onnx", "the model"),
        (WEIGHTS, "weights of the model"),
        ("x.npy", "the input 'x'"),
    ],
)
def test_a_trace_overwrites_nothing_that_is_read(trace: str, said: str, tmp_path: Path) -> None:
    write_convolution(tmp_path / "model.onnx")
    (tmp_path / "x.npy").write_bytes(b"an image")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    arguments = ["model.vmfb", "--vs", "model.onnx", "--input", "x=x.npy", "--trace", trace]
    result = call("sartor", "bench", *arguments, folder=tmp_path)
    assert_refused(result, 2, f"--trace '{trace}' would overwrite {said}; name another file")
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
