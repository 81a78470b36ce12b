"""Products by weights in blocks beside ONNX Runtime: what is built is timed, and its results are compared."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import typer

from benchmarks.encoded.products import build, time


def test_products_are_built_timed_and_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build(shape=["64,40"], rows=[2], threads=1, cpu="host", directory=tmp_path)
    capsys.readouterr()
    time(threads=1, directory=tmp_path, seconds=0.01)
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("2 rows, level 0, 1 threads: geometric mean ") for line in lines)
    (path,) = tmp_path.iterdir()
    product = pickle.loads(path.read_bytes())
    # One wrong scale of one block is seen.
    wrong = {name: array.copy() for name, array in product.weights.items()}
    scales = next(array for array in wrong.values() if array.dtype == "float32")
    scales.reshape(-1)[1] *= 2
    path.write_bytes(pickle.dumps(replace(product, weights=wrong)))
    with pytest.raises(typer.BadParameter, match="is wrong"):
        time(threads=1, directory=tmp_path, seconds=0.01)
