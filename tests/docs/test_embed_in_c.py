"""The example that runs a model with IREE's C runtime, where it was built."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from benchmarks import zoo
from sartor.runtime.session import Session
from tests.plugin.calling import call

FOLDER = "SARTOR_C_EXAMPLES"


@pytest.fixture
def embed() -> Path:
    """The program: no registry has IREE's C runtime, so that it is built where a checkout of IREE is at hand."""
    if FOLDER not in os.environ:
        pytest.skip(f"{FOLDER} does not name the folder in which examples/CMakeLists.txt was built")
    return Path(os.environ[FOLDER]) / "embed"


def test_it_writes_what_a_session_gives(embed: Path, tmp_path: Path) -> None:
    module, image = tmp_path / "net.vmfb", np.random.default_rng(0).random((1, 1, 32, 32), np.float32)
    database = ["--tuning-db", tmp_path / "t.db", "--threads", 1]
    assert call("compile-to-vmfb", zoo.write("lenet5", tmp_path), "-o", module, *database).returncode == 0
    image.tofile(tmp_path / "x.bin")
    arguments: list[str | Path] = [module, tmp_path / "x.bin", "1,1,32,32", tmp_path / "y.bin", "1,10"]
    subprocess.run([embed, *arguments], check=True, timeout=60)
    with Session(module, threads=1) as session:
        (name,) = (each.name for each in session.get_inputs())
        (expected,) = session.run(None, {name: image})
    np.testing.assert_array_equal(np.fromfile(tmp_path / "y.bin", np.float32), expected.ravel())
    arguments[2] = "1,1,32,31"
    refused = subprocess.run([embed, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 1
    assert "does not have 3968 bytes" in refused.stderr
