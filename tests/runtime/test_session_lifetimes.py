"""Sessions that come and go, with more workers than processors, whose workers are late."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from sartor.config import CompileConfig
from sartor.pipeline import compile_model

_SCRIPT = """
import sys
import numpy as np
import sartor
for number in range(40):
    session = sartor.Session(sys.argv[1], threads=(2, 4, 8)[number % 3])
    feeds = {each.name: np.ones(each.shape, np.float32) for each in session.get_inputs()}
    for _ in range(4):
        session.run(None, feeds)
    session.close()
print("done")
"""


def test_processes_that_open_and_close_sessions_end(model_file: Callable[[str], Path], tmp_path: Path) -> None:
    output = tmp_path / "model.vmfb"
    compile_model(model_file("residual"), output, CompileConfig(threads=2, database=tmp_path / "t.db"))
    command = [sys.executable, "-c", _SCRIPT, str(output)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    try:
        for process in processes:
            told, _ = process.communicate(timeout=120.0)
            assert (process.returncode, told) == (0, "done\n")
    finally:
        for process in processes:
            process.kill()
