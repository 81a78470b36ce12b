"""``sartor worker`` from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from tests.plugin.calling import program

_NO_SCHEDULER = "tcp://127.0.0.1:1"
_SECONDS = 60.0


def test_a_terminated_worker_says_no_more_than_that(tmp_path: Path) -> None:
    """Dask called it an error that its folder was gone."""
    command = program("sartor", "worker", _NO_SCHEDULER)
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        end = time.monotonic() + _SECONDS
        while not list(tmp_path.glob("*/dask-scratch-space/worker-*/")) and time.monotonic() < end:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        said = process.stderr.read().splitlines()
    assert (process.returncode, said) == (128 + signal.SIGTERM, ["error: interrupted"])
