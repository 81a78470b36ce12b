"""What run, worker, report and bench leave or overwrite, and what they say of it."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from sartor.cli.commands import run as command
from sartor.errors import UsageError
from tests.plugin.calling import assert_refused, call, program
from tests.plugin.external_model import WEIGHTS, write_convolution


def _fail_in(folder: Path, written: str = "") -> None:
    with command._folder(folder):
        assert folder.is_dir()
        if written:
            (folder / written).touch()
        raise UsageError("no room")


def test_what_is_saved_is_the_array(tmp_path: Path) -> None:
    command._save(tmp_path / "y.npy", np.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), np.arange(6.0).reshape(2, 3))


def test_a_folder_that_stays_empty_is_removed_with_those_made_for_it(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    for folder in (old / "new" / "newer", old):
        with pytest.raises(UsageError, match="no room"):
            _fail_in(folder)
        assert [*tmp_path.rglob("*")] == [old]
    with pytest.raises(UsageError, match="no room"):
        _fail_in(old / "new", "y.npy")
    assert (old / "new" / "y.npy").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_disk_that_is_full_is_called_so() -> None:
    with pytest.raises(OSError, match="No space left") as refused:
        command._save(Path("/dev/full"), np.zeros(2048))
    assert refused.value.errno == errno.ENOSPC


def test_each_output_has_a_file_of_its_own(tmp_path: Path) -> None:
    names = ["x__2", "x.", "x:", "x;"]
    assert len({*command._named_files(names, tmp_path).values()}) == len(names)
    long = [f"{'y' * 5000}{end}" for end in ("a", "b")]
    found = command._named_files(long, tmp_path)
    for path in found.values():
        path.write_bytes(b"")
    assert len(set(found.values())) == 2


def test_a_mean_is_finite_where_a_sum_is_not() -> None:
    assert command._statistics(np.full(4, 1.5e308)) == {"min": 1.5e308, "mean": 1.5e308, "max": 1.5e308}


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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["."], "'.' cannot be read"),
        (["model.vmfb", "--model-explorer", "."], "'.' is a directory and was left as it is"),
    ],
)
def test_folders_in_place_of_files_are_refused(arguments: list[str], said: str, tmp_path: Path) -> None:
    result = call("sartor", "report", *arguments, folder=tmp_path)
    assert_refused(result, 2, said)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["-o", "--model-explorer"])
@pytest.mark.parametrize(
    ("name", "said"), [(WEIGHTS, "weights of the model"), ("model.onnx", "the model"), ("model.vmfb", "the module")]
)
def test_nothing_that_is_read_is_overwritten(option: str, name: str, said: str, tmp_path: Path) -> None:
    write_convolution(tmp_path / "model.onnx")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    result = call("sartor", "report", "model.vmfb", "--vs", "model.onnx", option, name, folder=tmp_path)
    assert_refused(result, 2, f"{option} '{name}' would overwrite {said}; name another file")
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


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
