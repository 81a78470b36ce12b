"""Opening a model: where its weights are found, what is refused, and what is undone if it does not load."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sartor.errors import DeviceError, UsageError
from sartor.runtime import opening
from sartor.runtime.driver.cores import Cores
from sartor.runtime.driver.device import open_device
from sartor.runtime.driver.signature import TensorSpec
from sartor.runtime.manifest import Manifest
from sartor.runtime.mapping.overlap import Overlap
from sartor.runtime.opening import Place, _choose_device
from sartor.runtime.session import Session


def test_reading_ahead_ends_if_the_program_does_not_load(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[Overlap] = []

    def refuse(*_: object) -> None:
        assert not stopped
        raise DeviceError("the device has no memory")

    monkeypatch.setattr(opening, "_load", refuse)
    monkeypatch.setattr(Overlap, "stop", lambda overlap, **_: stopped.append(overlap))
    with pytest.raises(DeviceError, match="has no memory"):
        Session(model)
    assert len(stopped) == 1


def test_a_session_that_opened_reads_on(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[Overlap] = []
    monkeypatch.setattr(Overlap, "stop", lambda overlap, **_: stopped.append(overlap))
    session = Session(model)
    assert stopped == []
    session.close()
    assert len(stopped) == 1


def test_by_default_a_session_has_the_threads_with_which_its_module_is_fastest(
    make_manifest: Callable[..., Manifest],
) -> None:
    fastest_alone, unknown = make_manifest(plan={"workers": 1}), make_manifest(plan={})
    assert _choose_device(Place(None, None, 0), fastest_alone) is open_device("cpu", 1)
    assert _choose_device(Place("cpu", 3, 0), fastest_alone) is open_device("cpu", 3)
    assert _choose_device(Place(None, None, 0), unknown) is open_device("cpu")


def test_a_session_has_no_more_threads_than_there_are_cores_for(
    make_manifest: Callable[..., Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_efficiency_cores = make_manifest(plan={"workers": 6})
    monkeypatch.setattr(opening, "find_cores", lambda _: Cores(6, 2, 2, 1, efficiency=4))
    assert _choose_device(Place(None, None, 0), with_efficiency_cores) is open_device("cpu", 6)
    monkeypatch.setattr(opening, "find_cores", lambda _: Cores(6, 2, 2, 1, quota=3.5, efficiency=4))
    assert _choose_device(Place(None, None, 0), with_efficiency_cores) is open_device("cpu", 3)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("weights") / "w.irpa"
    tool = Path(sys.executable).parent / "iree-create-parameters"
    subprocess.run([tool, "--splat=w=4xf32=2.5", f"--output={file}"], check=True, capture_output=True)
    return file


def test_parameters_come_from_a_file_of_their_own(
    compile_mlir: Callable[..., Path], weights: Path, tmp_path: Path
) -> None:
    model = compile_mlir("parameters")
    value = np.arange(4, dtype=np.float32)
    with Session(model, parameters={"model": weights}) as session:
        np.testing.assert_array_equal(session.run(None, {"input0": value})[0], value + 2.5)
    with pytest.raises(UsageError, match="needs its weights"):
        Session(model)
    with pytest.raises(UsageError, match=r"weights '.*none\.irpa' are missing; pass parameters="):
        Session(model, parameters={"model": tmp_path / "none.irpa"})
    broken = tmp_path / "broken.irpa"
    broken.write_bytes(b"IRPA" + bytes(40))
    with pytest.raises(UsageError, match=r"broken\.irpa' cannot be loaded"):
        Session(model, parameters={"model": broken})


def test_small_files_may_be_overwritten_while_they_are_open(
    compile_mlir: Callable[..., Path], weights: Path, tmp_path: Path
) -> None:
    model, copy = tmp_path / "model.vmfb", tmp_path / "copy.irpa"
    model.write_bytes(compile_mlir("parameters").read_bytes())
    copy.write_bytes(weights.read_bytes())
    value = np.arange(4, dtype=np.float32)
    with Session(model, parameters={"model": copy}) as session:
        for path in (model, copy):
            path.write_bytes(bytes(path.stat().st_size))
            os.truncate(path, 1)
        np.testing.assert_array_equal(session.run(None, {"input0": value})[0], value + 2.5)


def test_parameters_are_found_beside_the_model(
    compile_mlir: Callable[..., Path],
    make_manifest: Callable[..., Manifest],
    weights: Path,
    tmp_path: Path,
) -> None:
    spec = TensorSpec("x", "float32", (4,))
    manifest = make_manifest(entry="main", inputs=(spec,), outputs=(spec,), parameters={"model": "model.irpa"})
    model = tmp_path / "model.vmfb"
    model.write_bytes(compile_mlir("parameters", manifest.to_json()).read_bytes())
    value = {"x": np.zeros(4, np.float32)}
    with pytest.raises(UsageError, match=r"model\.irpa' are missing; put them beside the module"):
        Session(model)
    (tmp_path / "model.irpa").mkdir()
    with pytest.raises(UsageError, match=r"model\.irpa' are no file; put them beside the module"):
        Session(model, parameters={"model": tmp_path / "model.irpa"})
    (tmp_path / "model.irpa").rmdir()
    with pytest.raises(UsageError, match=r"needs the weights 'model\.irpa'"):
        Session(model.read_bytes())
    with Session(model, parameters={"model": weights}) as session:
        assert session.run(None, value)[0][0] == 2.5
    with pytest.raises(UsageError, match=r"no weights of the scope 'modle' .*; it has 'model'"):
        Session(model, parameters={"modle": weights})
    (tmp_path / "model.irpa").write_bytes(weights.read_bytes())
    with Session(model) as session:
        assert session.run(None, value)[0][0] == 2.5


@pytest.mark.skipif(platform.machine() in ("aarch64", "arm64"), reason="this machine runs it")
def test_code_for_other_cpus_is_refused(
    compile_mlir: Callable[..., Path], make_manifest: Callable[..., Manifest]
) -> None:
    compiled = compile_mlir("model", make_manifest().to_json(), "aarch64")
    with pytest.raises(DeviceError, match="holds code for aarch64, which this machine does not run; compile it for h"):
        Session(compiled)
