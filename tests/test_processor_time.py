"""The time of processors that tests are said to take."""

from __future__ import annotations

import subprocess
import sys
import time
from types import SimpleNamespace

from tests.processor_time import ProcessorTimes, used_seconds

_COMPUTE = "import time\nwhile time.process_time() < 0.3: pass\n"


def test_processes_that_run_and_that_ended_count() -> None:
    before = used_seconds()
    command = [sys.executable, "-c", f"{_COMPUTE}print(1, flush=True); input()"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    running = used_seconds() - before
    process.communicate(b"\n")
    ended = used_seconds() - before
    assert 0.29 < running <= ended + 0.05
    assert ended > 0.29


def test_waiting_takes_no_time() -> None:
    before = used_seconds()
    time.sleep(0.5)
    assert used_seconds() - before < 0.4


def test_what_several_processes_found_is_added_up() -> None:
    times = ProcessorTimes()
    for found in ({"a": 1.0, "b": 2.0}, {"a": 3.0}):
        times.pytest_testnodedown(SimpleNamespace(workeroutput={"processor_seconds": found}), None)
    times.pytest_testnodedown(SimpleNamespace(), "it was ended")
    assert times.seconds == {"a": 4.0, "b": 2.0}
