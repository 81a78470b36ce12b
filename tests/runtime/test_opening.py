"""Opening a model: where weights are found, what is refused, undone or loaded."""

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


_CODE = """
import numpy, sys
before = set(sys.modules)
import sartor
sartor.Session
print(*sorted(set(sys.modules) - before))
"""
# Python's own modules that a session needs beyond what numpy loads. Each costs every program that runs a model, so that
# a new one needs a reason.
_STANDARD = {
    *("_json", "_string", "atexit", "copy", "ctypes", "_ctypes", "dataclasses", "fcntl", "json", "mmap", "signal"),
    *("threading", "zlib"),
}
# The native library alone, and not the package that wraps it for others.
_IREE = {"iree", "iree._runtime", "iree._runtime.libs", "iree._runtime_libs", "iree._runtime_libs._runtime"}
# What of this package only commands need.
_COMMANDS = {"benchmark", "dispatch_statistics", "memory", "module_facts", "output_error", "reference"}


def test_a_session_loads_nothing_of_the_compiler() -> None:
    done = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "sartor.runtime.session" in loaded
    own = {name for name in loaded if name.startswith("sartor.")} - {
        "sartor.devices",
        "sartor.errors",
        "sartor.runtime",
    }
    assert not {name for name in own if not name.startswith("sartor.runtime.")}
    assert not {name.split(".")[2] for name in own} & _COMMANDS
    assert {name for name in loaded if name.partition(".")[0] == "iree"} == _IREE
    others = {name.partition(".")[0] for name in loaded} - {"sartor", "iree"}
    assert not {name for name in others if not name.startswith("__editable__")} - _STANDARD


def test_the_package_around_the_library_can_be_used_beside_a_session() -> None:
    code = "import sartor; sartor.Session; import iree.runtime; from iree._runtime.libs import _runtime\n"
    code += "print(iree.runtime.VmInstance is _runtime.VmInstance)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"]


def test_flags_of_iree_in_the_environment_are_left_to_its_package() -> None:
    code = "import sys, sartor; sartor.Session; print('iree.runtime.flags' in sys.modules)"
    environment = {**os.environ, "IREE_PY_RUNTIME_FLAGS": "--task_topology_group_count=1"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == ["True"]
