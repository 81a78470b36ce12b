"""Sessions whose files are read, and moved, beside their runs."""

from __future__ import annotations

import _thread
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sartor.errors import UsageError
from sartor.runtime import module as module_file
from sartor.runtime.driver.iree_runtime import write_parameters
from sartor.runtime.driver.signature import Array
from sartor.runtime.mapping import huge_pages, leases, overlap
from sartor.runtime.mapping.leases import Lease
from sartor.runtime.module import has_huge_pages
from sartor.runtime.session import Session
from tests.runtime.mapping.test_huge_pages import refused
from tests.runtime.mapping.test_mapped_file import child_succeeds

pytestmark = pytest.mark.skipif(not has_huge_pages(), reason="this system has no huge pages")


@pytest.fixture
def large(model: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model of its own, whose file counts as large."""
    monkeypatch.setattr(module_file, "_SMALL_BYTES", 0)
    return Path(shutil.copy(model, tempfile.mkdtemp(dir=model.parent)))


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is moved before a run, however long it takes to come."""
    monkeypatch.setattr(overlap, "_IDLE_SECONDS", 100.0)


@pytest.mark.usefixtures("unhurried")
def test_runs_begin_before_files_are_moved(large: Path, feeds: dict[str, Array]) -> None:
    with Session(large) as session:
        (mapped,) = session._execution.overlap._files
        assert not mapped.own_bytes
        first = session.run(None, feeds)
        assert session.settle()
        np.testing.assert_array_equal(session.run(None, feeds), first)


def test_files_are_moved_if_nothing_runs(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap, "_IDLE_SECONDS", 0.01)
    with Session(large) as session:
        (mapped,) = session._execution.overlap._files
        for _ in range(1000):
            if mapped.is_own:
                break
            time.sleep(0.01)
        assert mapped.is_own


def test_a_session_loads_and_runs_where_no_thread_can_be_started(
    large: Path, feeds: dict[str, Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the limit of threads the load ended with a RuntimeError."""
    expected = Session(large, huge_pages=False).run(None, feeds)
    other = Path(shutil.copy(large, large.with_name("other.vmfb")))
    monkeypatch.setattr(_thread, "start_new_thread", refused)
    with Session(other) as session:
        np.testing.assert_array_equal(session.run(None, feeds), expected)
        assert not session.settle()
        assert not session.steps
        with other.open("ab") as writer:
            writer.write(b"more")
        with pytest.raises(UsageError, match="was changed while it was open"):
            session.run(None, feeds)


@pytest.mark.usefixtures("unhurried")
def test_a_session_says_what_was_read_and_moved(large: Path, feeds: dict[str, Array]) -> None:
    with Session(large) as session:
        session.run(None, feeds)
        session.settle()
        size = large.stat().st_size
        for kind in ("read", "move"):
            assert sum(step.size for step in session.steps if step.kind == kind) == size
        assert all(step.begin <= step.end for step in session.steps)


@pytest.mark.usefixtures("unhurried")
def test_sessions_share_one_copy(large: Path, feeds: dict[str, Array]) -> None:
    one, other = Session(large), Session(large)
    assert one._execution.overlap._files == other._execution.overlap._files
    assert one.settle()
    assert other.settle(0)
    one.close()
    expected = Session(large, huge_pages=False).run(None, feeds)
    np.testing.assert_array_equal(other.run(None, feeds), expected)


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("huge", [True, False])
def test_a_writer_waits_until_the_file_is_moved(large: Path, feeds: dict[str, Array], huge: bool) -> None:
    """Also where others have opened and closed the file before and after."""
    before = Session(large, huge_pages=huge)
    session = Session(large)
    Session(large, huge_pages=huge).close()
    before.close()
    cutter = subprocess.Popen([sys.executable, "-c", "import os, sys; os.truncate(sys.argv[1], 9)", large])
    with pytest.raises(subprocess.TimeoutExpired):
        cutter.wait(0.5)
    first = session.run(None, feeds)
    assert cutter.wait(20) == 0
    assert session.settle()
    np.testing.assert_array_equal(session.run(None, feeds), first)
    with pytest.raises(UsageError, match="is damaged"):
        Session(large)


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("huge", [True, False])
def test_a_file_that_changes_where_nobody_waits_is_reported(
    large: Path, feeds: dict[str, Array], monkeypatch: pytest.MonkeyPatch, huge: bool
) -> None:
    monkeypatch.setattr(leases, "take", lambda handle: Lease.REFUSED)
    session = Session(large, huge_pages=huge)
    os.truncate(large, 10)
    for run in (session.run, session.run_device, lambda *args: session.run_async(*args).result()):
        with pytest.raises(UsageError, match="was changed while it was open"):
            run(None, feeds)
    assert not session.settle()


@pytest.mark.usefixtures("unhurried")
def test_what_changed_during_a_run_is_reported(
    large: Path, feeds: dict[str, Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "take", lambda handle: Lease.REFUSED)
    session = Session(large)
    program = session._execution.open_program()
    invoke = program.invoke

    def change(*args: object) -> list[object]:
        outputs = invoke(*args)  # type: ignore[arg-type]
        os.utime(large, (1, 1))
        return outputs

    monkeypatch.setattr(program, "invoke", change)
    with pytest.raises(UsageError, match="was changed while it was open"):
        session.run(None, feeds)


def test_with_little_memory_it_runs_from_the_mapping(
    large: Path, feeds: dict[str, Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huge_pages, "free_bytes", lambda: 1 << 20)
    with Session(large) as session:
        first = session.run(None, feeds)
        assert not session.settle()
        np.testing.assert_array_equal(session.run(None, feeds), first)
        # Nobody waits for what will not come.
        os.utime(large)


@pytest.mark.usefixtures("unhurried")
def test_weights_beside_the_module_are_moved_too(
    compile_mlir: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module_file, "_SMALL_BYTES", 0)
    weights = tmp_path / "w.irpa"
    write_parameters(weights, {"w": np.arange(4, dtype=np.float32)})
    with Session(compile_mlir("parameters"), parameters={"model": weights}) as session:
        (name,) = (each.name for each in session.get_inputs())
        feeds = {name: np.ones(4, np.float32)}
        first = session.run(None, feeds)
        assert [file.label for file in session._execution.overlap._files][1:] == [f"'{weights}'"]
        assert session.settle()
        weights.write_bytes(b"")
        np.testing.assert_array_equal(session.run(None, feeds), first)


_KILLED = """
import sys, time
from pathlib import Path
import numpy as np
from sartor.runtime import module
from sartor.runtime.mapping import huge_pages
from sartor.runtime.session import Session

module._SMALL_BYTES = 0
move = huge_pages.pages.move

def halt(*args):
    print("moving", flush=True)
    time.sleep(100)

huge_pages.pages.move = halt
session = Session(sys.argv[1])
session.run(None, {each.name: np.zeros(each.shape, np.float32) for each in session.get_inputs()})
time.sleep(100)
"""


def test_a_process_that_is_killed_while_it_moves_leaves_nothing(large: Path, feeds: dict[str, Array]) -> None:
    content, files = large.read_bytes(), set(large.parent.iterdir())
    process = subprocess.Popen([sys.executable, "-c", _KILLED, large], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "moving\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert large.read_bytes() == content
    assert set(large.parent.iterdir()) == files
    # What waited for the process may go on.
    os.truncate(large, len(content))
    with Session(large) as session:
        session.run(None, feeds)
        assert session.settle()


_ENDED = """
import sys
import numpy as np
from sartor.runtime import module
from sartor.runtime.session import Session

module._SMALL_BYTES = 0
session = Session(sys.argv[1])
session.run(None, {each.name: np.zeros(each.shape, np.float32) for each in session.get_inputs()})
"""


def test_a_process_may_end_at_once(large: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _ENDED, large], capture_output=True, text=True, check=True)
    assert done.stderr == ""


@pytest.mark.usefixtures("unhurried")
def test_a_forked_process_runs_what_its_parent_opened(large: Path, feeds: dict[str, Array]) -> None:
    session = Session(large, threads=1)
    expected = Session(large, huge_pages=False).run(None, feeds)
    # The thread that waits for the first run may hold it.
    with session._execution.overlap._ran._cond:  # type: ignore[attr-defined]
        assert child_succeeds(lambda: np.array_equal(session.run(None, feeds), expected))
    session.close()
