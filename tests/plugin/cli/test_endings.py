"""How commands end that are interrupted, or that cannot write what they have to say."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.plugin.calling import assert_refused, call, program
from tests.plugin.cli.compiled import Compiled


def test_ctrl_c_ends_a_compilation_with_one_line(lenet: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.vmfb"
    arguments = program("compile-to-vmfb", lenet, "-o", output, "--tuning-db", tmp_path / "t.db")
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "importing\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert process.returncode == 130
    assert rest.splitlines()[-1] == "interrupted; what was measured is kept"
    assert "Traceback" not in rest
    assert not output.exists()


def test_ctrl_c_while_modules_are_loaded_is_no_traceback() -> None:
    code = (
        "import os, signal, sys; from sartor.cli.main import main; "
        # The finder is asked for the first module that is not there yet: in the midst of loading.
        "find = lambda *_: os.kill(os.getpid(), signal.SIGINT); "
        "sys.meta_path.insert(0, type('Finder', (), {'find_spec': find})); main()"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (130, "error: interrupted\n")


def test_garbage_is_looked_for_while_a_command_runs_and_not_before() -> None:
    code = (
        "import atexit, gc, sys; from sartor.cli.main import main; sys.argv[1:] = ['--version']; "
        "atexit.register(lambda: print(gc.isenabled(), gc.get_freeze_count() > 10_000)); main()"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.returncode, result.stdout.splitlines()[1:]) == (0, ["True True"]), result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_while_the_interpreter_ends_changes_nothing(number: signal.Signals) -> None:
    """What was registered before is run after what the command line registers."""
    code = (
        f"import atexit, os, sys; from sartor.cli.main import main; atexit.register(os.kill, os.getpid(), {number}); "
        "sys.argv[1:] = ['--version']; main()"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("sartor")


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        result = subprocess.run(program("sartor", "routines", "--json"), stdout=closed, stderr=subprocess.PIPE)
    assert result.returncode == 141
    assert not result.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_output_for_which_there_is_no_room_is_said() -> None:
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(program("sartor", "routines", "--json"), stdout=full, stderr=subprocess.PIPE, text=True)
    assert (result.returncode, result.stderr) == (7, "error: No space left on device\n")


def test_an_interrupt_while_something_is_printed_ends_the_process() -> None:
    """Python's streams cannot be entered twice."""
    code = (
        "import io, os, signal, sys; from sartor.cli.output.signals import ending_at_once\n"
        "class Raw(io.RawIOBase):\n"
        " def writable(self): return True\n"
        " def write(self, data): os.kill(os.getpid(), signal.SIGTERM); return len(data)\n"
        "sys.stderr = io.TextIOWrapper(io.BufferedWriter(Raw()))\n"
        "with ending_at_once(): print('x', file=sys.stderr, flush=True)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (143, "error: interrupted\n")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_traceback(compiled: Compiled, tmp_path: Path, closed: str) -> None:
    """Nor does a file that is opened get what was meant for them."""
    command = program("sartor", "run", compiled.module, "--threads", "1", "--output-dir", tmp_path)
    result = subprocess.run(["sh", "-c", f'"$@" {closed}', "sh", *command], capture_output=True)
    assert (result.returncode, result.stderr) == (0, b"")
    assert (b"logits" in result.stdout) == (">&-" not in closed.replace("2>&-", ""))
    assert np.load(tmp_path / "logits.npy").shape == (1, 10)


def test_a_full_stdout_is_one_sentence() -> None:
    with open("/dev/full", "w") as full:
        result = subprocess.run(program("sartor", "--version"), stdout=full, stderr=subprocess.PIPE, text=True)
    assert (result.returncode, result.stderr) == (7, "error: No space left on device\n")


def test_who_does_not_listen_to_progress_gets_the_module(compiled: Compiled, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    output = tmp_path / "out.vmfb"
    command = program("compile-to-vmfb", compiled.model, "-o", output, "--plan", compiled.plan)
    with os.fdopen(writing, "w") as closed:
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=closed, text=True)
    assert result.returncode == 0
    assert output.read_bytes() == compiled.module.read_bytes()
    assert "out.vmfb" in "".join(result.stdout.split()), "a long path is broken at the end of a line"


@pytest.mark.parametrize(
    ("make", "said"), [(lambda path: None, "make it, or set TMPDIR"), (lambda path: path.touch(), "Not a directory")]
)
def test_a_temporary_folder_that_cannot_be_used_is_named(
    lenet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None], said: str
) -> None:
    folder, output = tmp_path / "absent", tmp_path / "out.vmfb"
    make(folder)
    monkeypatch.setenv("TMPDIR", str(folder))
    result = call("compile-to-vmfb", lenet, "-o", output, "--tuning-db", tmp_path / "t.db")
    assert_refused(result, 2, f"the folder for temporary files '{folder}' cannot be used", said)
    assert not output.exists()


def test_a_temporary_folder_of_another_encoding_is_named(
    lenet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / os.fsdecode(b"t\xffmp")
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    result = call("compile-to-vmfb", lenet, "-o", tmp_path / "out.vmfb", "--tuning-db", tmp_path / "t.db")
    assert_refused(result, 2, "has a name that is not UTF-8: set TMPDIR to another folder")


def test_a_current_folder_that_was_removed_is_named(lenet: Path, tmp_path: Path) -> None:
    gone, output = tmp_path / "gone", tmp_path / "out.vmfb"
    gone.mkdir()
    script = 'cd "$1" && rmdir "$1" && shift && exec "$@"'
    command = program("compile-to-vmfb", lenet, "-o", output, "--tuning-db", tmp_path / "t.db")
    result = subprocess.run(["sh", "-c", script, "sh", str(gone), *command], capture_output=True, text=True)
    assert result.returncode == 2
    assert result.stderr == (
        f"error: the current folder '{gone}' is no longer there (No such file or directory); change to one that is\n"
    )
    assert not output.exists()
