"""The competitors, each as a callable that takes the same inputs."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sartor.codegen.ir.target import Target
from sartor.errors import CompileError, UsageError
from sartor.runtime.driver.device import open_device
from sartor.runtime.driver.signature import Array, Signature, TensorSpec
from sartor.runtime.manifest import ASYNC_SUFFIX, BOUND_SUFFIX
from sartor.runtime.module import open_module
from sartor.runtime.reference import OnnxRuntimeReference, OpenVinoReference
from sartor.runtime.session import Session

Run = Callable[[Mapping[str, Array]], Sequence[Array]]

_COMPILE_TIMEOUT = 900
_IREE_FLAGS = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
    "--iree-opt-level=O3",
)


@dataclass(frozen=True)
class StockFiles:
    """A model compiled by stock IREE: the module and its weights."""

    module: Path
    weights: Path


def build_stock(model: Path, directory: Path, target: Target | None = None) -> StockFiles:
    """Compile by IREE's tools as its manual recommends, at ``-O3`` for this machine, or for ``target``.

    Raises:
        CompileError: if a tool fails; the message has its last line.
    """
    stem = f"{model.stem}.stock.{target.device}" if target else f"{model.stem}.stock"
    files = StockFiles(directory / f"{stem}.vmfb", directory / f"{stem}.irpa")
    source = directory / f"{stem}.mlir"
    _tool("iree-import-onnx", model, "-o", source, "--externalize-params", "--save-params-to", files.weights)
    _tool("iree-compile", source, "-o", files.module, *(target.flags if target else _IREE_FLAGS))
    return files


def _tool(name: str, *arguments: object) -> None:
    program = Path(sys.executable).with_name(name)
    command = [str(program), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_TIMEOUT, check=False)
    if result.returncode:
        lines = [line for line in result.stderr.splitlines() if line.strip()]
        raise CompileError(f"{name} failed: {next((line for line in lines if 'error' in line), lines[-1:])}")


def stock_peer(
    files: StockFiles, feeds: Mapping[str, Array], outputs: Sequence[Array], threads: int | None, device: str = "cpu"
) -> Run:
    """Stock IREE's module as a callable; its signature is taken from the inputs and the right outputs."""
    entry = next(
        name for name in open_module(files.module).functions if not name.endswith((ASYNC_SUFFIX, BOUND_SUFFIX))
    )
    inputs = tuple(TensorSpec(name, array.dtype.name, array.shape) for name, array in feeds.items())
    results = tuple(TensorSpec(f"output{i}", array.dtype.name, array.shape) for i, array in enumerate(outputs))
    session = Session(
        files.module,
        device=open_device(device, threads),
        parameters={"model": files.weights},
        signature=Signature(entry, inputs, results),
    )
    return lambda given: session.run(None, dict(given))


def sartor_peer(module: Path, threads: int | None, device: str = "cpu") -> Run:
    """A module of Sartor as a callable."""
    session = Session(module, device=open_device(device, threads))
    return lambda given: session.run(None, dict(given))


def other_peers(model: Path, threads: int) -> dict[str, Run]:
    """ONNX Runtime, and OpenVINO in f32 if it is installed, as callables by name."""
    peers: dict[str, Run] = {"onnxruntime": OnnxRuntimeReference(model, threads=threads, is_timed=True)}
    try:
        peers["openvino"] = OpenVinoReference(model, threads=threads)
    except UsageError as error:
        print(f"without OpenVINO: {error}", file=sys.stderr)
    return peers


def openvino_int8(model: Path, directory: Path, samples: Sequence[Mapping[str, Array]], threads: int) -> Run:
    """OpenVINO on the model quantised by NNCF with default settings, calibrated with the same samples.

    Raises:
        UsageError: if OpenVINO or NNCF is not installed.
    """
    path = directory / f"{model.stem}.nncf.xml"
    if not path.exists():
        try:
            nncf = importlib.import_module("nncf")
            openvino = importlib.import_module("openvino")
        except ImportError:
            raise UsageError("NNCF is not installed; install it with: pip install 'sartor[peers]'") from None
        quantised = nncf.quantize(
            openvino.Core().read_model(str(model)), nncf.Dataset(list(samples)), subset_size=len(samples)
        )
        openvino.save_model(quantised, str(path))
    return OpenVinoReference(path, threads=threads)
