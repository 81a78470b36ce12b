"""The order of what the benchmark for GPUs runs, and what it leaves; the commands themselves are stood in for."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest

from benchmarks import cuda
from benchmarks.gpu_peers import NOT_INSTALLED, PEERS
from benchmarks.launches import launches, launches_of
from tests.tiny_models import Builder

DISASSEMBLY = """
vm.import @hal.command_buffer.dispatch cconv "0rrIiiiICiDCiirIID_v"
vm.func @__init() -> (!vm.ref<?>) {
  %r4 = vm.call @hal.command_buffer.create(%R1, %i10, %i9, %i22, %i9)
  vm.call.variadic @hal.command_buffer.dispatch segments[65535, 3](%r4, %r3, %i22)
  vm.call @hal.command_buffer.execution_barrier(%r4, %i5, %i4, %i20)
  vm.call @hal.command_buffer.fill_buffer(%r4, %r5, %i5, %i4, %i20)
  vm.call.variadic @hal.command_buffer.dispatch segments[65535, 3](%r4, %r3, %i21)
  vm.call @hal.command_buffer.finalize(%r4)
}
vm.func @main_graph$async(%r0: !vm.ref<?>) -> (!vm.ref<?>) {
  vm.call @hal.device.queue.execute(%r4)
}
"""


PYTHON = Path(sys.executable).name


class Watch:
    """Stands in for the program that prints clocks."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def __call__(self, command: Sequence[str], **_: Any) -> Watch:
        self.events.append(command[0])
        return self

    def terminate(self) -> None:
        self.events.append("terminated")

    def wait(self) -> None:
        self.events.append("waited for")


class Commands:
    """Stands in for the programs: each writes the file that it is asked for."""

    def __init__(self, failing: str = "") -> None:
        self.seen: list[str] = []
        self.failing = failing

    def __call__(self, command: Sequence[str], timeout: float, **_: Any) -> subprocess.CompletedProcess[str]:
        name = Path(command[0]).name
        text = " ".join(command[1:])
        self.seen.append(f"{name} {text}")
        if self.failing and self.failing in self.seen[-1]:
            raise subprocess.TimeoutExpired(list(command), timeout, b"layer 7 is measured")
        for place, each in enumerate(command):
            if each == "-o":
                Path(command[place + 1]).write_text("", encoding="utf-8")
        code = NOT_INSTALLED if text.endswith(" onnxruntime") else 0
        if name == "iree-dump-module":
            return subprocess.CompletedProcess(list(command), code, DISASSEMBLY, "")
        return subprocess.CompletedProcess(list(command), code, json.dumps({"seconds": 1.0}), "")


def written(name: str, folder: Path) -> Path:
    """Stands in for a network of the zoo."""
    builder = Builder()
    model = builder.model([("x", (2, 3))], [(builder.op("Relu", "y", "x"), (2, 3))])
    model.graph.name = name
    onnx.save(model, folder / f"{name}.onnx")
    return folder / f"{name}.onnx"


def run(folder: Path, patch: pytest.MonkeyPatch, commands: Commands, seconds: float = 600) -> int:
    """Run the benchmark of one network."""
    patch.setattr(cuda, "write", written)
    patch.setattr(subprocess, "run", commands)
    watch = Watch()
    patch.setattr(subprocess, "Popen", watch)
    try:
        return _benchmark(folder, seconds)
    finally:
        assert watch.events == ["nvidia-smi", "terminated", "waited for"]


def _benchmark(folder: Path, seconds: float = 600) -> int:
    return cuda.main(["-o", str(folder), "--arch", "sm_90", "--seconds", str(seconds), "lenet5"])


def test_each_module_is_timed_once_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = Commands()
    assert run(tmp_path, monkeypatch, commands) == 0
    assert [each.partition(" ")[0] for each in commands.seen] == [
        *("nvidia-smi", "iree-import-onnx", "iree-compile", PYTHON, "iree-dump-module"),
        *(("compile-to-vmfb", PYTHON, "iree-dump-module") * 3),
        *([PYTHON] * len(PEERS)),
        "sartor",
    ]
    assert "--iree-cuda-target=sm_89" in commands.seen[2]
    assert "--signature func @lenet5(%x: tensor<2x3xf32>) -> (%y: tensor<2x3xf32>)" in commands.seen[3]
    assert "--arch sm_90 --time-budget" in commands.seen[5]
    peers = [peer for peer in PEERS if peer != "onnxruntime"]
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    ours = {kind: {"seconds": 1.0, "launches": 3} for kind in ("stock", "tuned", "tf32", "f16")}
    assert results == {"lenet5": {**ours, **{peer: {"seconds": 1.0} for peer in peers}}}
    assert "exit code 0" in (tmp_path / "export.log").read_text(encoding="utf-8")


def test_launches_of_an_entry_for_given_buffers_are_not_counted_twice() -> None:
    assert launches(DISASSEMBLY) == 3
    second = DISASSEMBLY.replace("@__init", "@fn3") + "vm.func @main_graph$bound(%r0: !vm.ref<?>) -> () {\n}\n"
    assert launches(DISASSEMBLY + second) == 3


def test_a_file_that_is_no_module_has_no_count(tmp_path: Path) -> None:
    (tmp_path / "m.vmfb").write_text("no module", encoding="utf-8")
    assert launches_of(tmp_path / "m.vmfb") is None


@pytest.mark.parametrize("error", [FileNotFoundError("iree-dump-module"), subprocess.TimeoutExpired("it", 1.0)])
def test_without_a_count_a_network_keeps_its_times(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(Commands):
        def __call__(self, command: Sequence[str], timeout: float, **_: Any) -> subprocess.CompletedProcess[str]:
            if Path(command[0]).name == "iree-dump-module":
                raise error
            return super().__call__(command, timeout)

    assert run(tmp_path, monkeypatch, Failing()) == 0
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert results["lenet5"]["tuned"] == {"seconds": 1.0}


def test_what_takes_too_long_leaves_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(tmp_path, monkeypatch, Commands("lenet5.tuned.vmfb --target")) == 0
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert results["lenet5"]["tuned"] == {"failed": "see lenet5.tuned.compile.log"}
    assert results["lenet5"]["f16"] == {"seconds": 1.0, "launches": 3}
    log = (tmp_path / "lenet5.tuned.compile.log").read_text(encoding="utf-8")
    assert "exit code 124" in log
    assert "layer 7 is measured" in log, "what a stopped command had said is kept"


def test_a_network_gets_time_to_be_tuned_however_many_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = Commands()
    monkeypatch.setattr(cuda, "write", written)
    monkeypatch.setattr(subprocess, "run", commands)
    monkeypatch.setattr(subprocess, "Popen", Watch())
    assert cuda.main(["-o", str(tmp_path), "--arch", "sm_90"]) == 0
    tuned = [each for each in commands.seen if "resnet50.tuned.vmfb --target" in each]
    assert [float(each.partition("--time-budget ")[2].partition(" ")[0]) for each in tuned] >= [30.0]


def test_a_slow_peer_leaves_time_for_the_next_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, float] = {}

    class Timed(Commands):
        def __call__(self, command: Sequence[str], timeout: float, **_: Any) -> subprocess.CompletedProcess[str]:
            given[command[-1]] = timeout
            return super().__call__(command, timeout)

    assert run(tmp_path, monkeypatch, Timed(), seconds=1200) == 0
    assert {given[peer] for peer in PEERS} == {90.0}


def test_what_fails_is_noted_and_the_next_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(tmp_path, monkeypatch, Commands(f"lenet5.onnx {tmp_path / 'lenet5.stock.vmfb'}")) == 0
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert str(results["lenet5"]["stock"]["failed"]).startswith("exit code 124: stopped after")
    assert results["lenet5"]["tuned"] == {"seconds": 1.0, "launches": 3}


def test_results_are_written_before_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(Commands):
        def __call__(self, command: Sequence[str], timeout: float, **given: Any) -> subprocess.CompletedProcess[str]:
            if "--precision tf32" in " ".join(command):
                raise KeyboardInterrupt
            return super().__call__(command, timeout, **given)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, monkeypatch, Interrupted())
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert list(results["lenet5"]) == ["stock", "tuned"]


def test_a_program_that_is_missing_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> subprocess.CompletedProcess[str]:
        raise FileNotFoundError("no such program")

    monkeypatch.setattr(cuda, "write", written)
    monkeypatch.setattr(subprocess, "run", missing)
    monkeypatch.setattr(subprocess, "Popen", missing)
    assert _benchmark(tmp_path) == 1
    assert "no such program" in (tmp_path / "clocks.csv").read_text(encoding="utf-8")
    assert "no such program" in (tmp_path / "driver.log").read_text(encoding="utf-8")
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert all("failed" in each for each in results["lenet5"].values())


def test_without_time_nothing_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = Commands()
    assert run(tmp_path, monkeypatch, commands, seconds=1) == 1
    assert [each.partition(" ")[0] for each in commands.seen] == ["nvidia-smi"]
