"""Other runtimes on a GPU: what is called, by stand-ins for libraries that are not installed here."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import onnx
import pytest

from benchmarks import gpu_peers
from tests.tiny_models import Builder

RIGHT = np.array([[1, 2, 0], [0, 3, 4]], np.float32)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    builder = Builder()
    path = tmp_path / "net.onnx"
    onnx.save(builder.model([("x", (2, 3))], [(builder.op("Relu", "y", "x"), (2, 3))]), path)
    return path


@pytest.fixture(autouse=True)
def _in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_peers, "_SECONDS", 0.0)
    monkeypatch.setattr(gpu_peers.measured, "__defaults__", (0.0,))
    monkeypatch.setattr(gpu_peers, "ReferenceModel", lambda _: lambda feeds: [RIGHT])


def stand_in_torch(monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    torch = MagicMock(__version__="2.x")
    torch.cuda.get_device_name.return_value = "GPU"
    torch.compile.side_effect = lambda network, mode: network
    monkeypatch.setitem(sys.modules, "torch", torch)
    converter = MagicMock()
    network = converter.convert.return_value.eval.return_value.cuda.return_value
    network.half.return_value = network
    network.return_value.float.return_value.cpu.return_value.numpy.return_value = RIGHT
    monkeypatch.setitem(sys.modules, "onnx2torch", converter)
    return torch


@pytest.mark.parametrize("peer", [each for each in gpu_peers.PEERS if each.startswith("torch")])
def test_torch_waits_for_each_call(
    peer: str, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch = stand_in_torch(monkeypatch)
    assert gpu_peers.main([str(model), peer]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["calls"], found["gpu"], found["error"]) == (20, "GPU", 0.0)
    assert 0 < found["least"] <= found["median"]
    assert torch.cuda.synchronize.call_count == 31
    assert torch.compile.called == ("compile" in peer)
    assert torch.backends.cudnn.allow_tf32 is peer.endswith("tf32")


def test_onnxruntime_without_its_cuda_provider_is_not_installed(model: Path) -> None:
    pytest.importorskip("onnxruntime")
    assert gpu_peers.main([str(model), "onnxruntime"]) == gpu_peers.NOT_INSTALLED


def test_onnxruntime_keeps_inputs_on_the_gpu(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runtime = MagicMock(__version__="1.x")
    session = runtime.InferenceSession.return_value
    session.get_providers.return_value = ["CUDAExecutionProvider"]
    session.get_outputs.return_value = [SimpleNamespace(name="y")]
    session.io_binding.return_value.copy_outputs_to_cpu.return_value = [2 * RIGHT]
    monkeypatch.setitem(sys.modules, "onnxruntime", runtime)
    assert gpu_peers.main([str(model), "onnxruntime-tf32"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["onnxruntime"] == "1.x"
    assert found["error"] == pytest.approx(1.0), "its outputs are wrong"
    assert runtime.InferenceSession.call_args.kwargs["providers"] == [("CUDAExecutionProvider", {"use_tf32": "1"})]
    binding = session.io_binding.return_value
    binding.bind_ortvalue_input.assert_called_once()
    assert binding.synchronize_outputs.call_count == 31


def test_without_torch_the_exit_code_says_so(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert gpu_peers.main([str(model), "torch-eager"]) == gpu_peers.NOT_INSTALLED
