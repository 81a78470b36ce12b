"""The competitors, each as a callable that takes the same inputs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime

from benchmarks.kept import kept_name
from sartor.codegen.ir.target import Target
from sartor.errors import CompileError, UnsupportedModelError
from sartor.runtime.driver.device import open_device
from sartor.runtime.driver.signature import Array, Signature, TensorSpec
from sartor.runtime.manifest import ASYNC_SUFFIX, BOUND_SUFFIX
from sartor.runtime.module import open_module
from sartor.runtime.reference import ORT_ERRORS, reason_of
from sartor.runtime.session import Session
from sartor.tuning.records.hardware import host

Run = Callable[[Mapping[str, Array]], Sequence[Array]]

_COMPILE_TIMEOUT = 900
_ORT_ERROR_ONLY = 3
_IREE_FLAGS = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
    "--iree-opt-level=O3",
)
_PREPROCESSING = "--iree-preprocessing-pass-pipeline=builtin.module(util.func({}))"

MANUAL = "as its manual says"

STOCK_FLAGS: Mapping[str, tuple[str, ...]] = {
    MANUAL: (),
    "channels last": (_PREPROCESSING.format("iree-preprocessing-convert-conv-to-channels-last"),),
    "im2col": (
        _PREPROCESSING.format("iree-global-opt-convert-conv2d-to-img2col"),
        "--iree-opt-data-tiling",
        "--iree-llvmcpu-enable-ukernels=all",
    ),
    "blocked channels": (
        "--iree-opt-data-tiling",
        "--iree-dispatch-creation-experimental-set-data-tiling-ops=convolution",
        "--iree-dispatch-creation-experimental-set-data-tiling-ops=matmul",
        "--iree-llvmcpu-enable-ukernels=mmt4d,conv_nchwc",
    ),
}
"""Flags of `iree-compile` beside ``-O3`` that make some networks much faster, others slower, by a name in words."""


_IREE = ("iree-base-compiler",)


@dataclass(frozen=True)
class StockFiles:
    """A model compiled by stock IREE: the module and its weights."""

    module: Path
    weights: Path


def build_stock(model: Path, directory: Path, target: Target | None = None, flags: str | None = None) -> StockFiles:
    """Compile by IREE's tools at ``-O3`` for this machine, or for ``target``.

    Args:
        model: the ONNX file.
        directory: for the module and its weights.
        target: what it is compiled for; None for this CPU.
        flags: a key of ``STOCK_FLAGS``, whose module is kept and not compiled again by this version; None for IREE's
            manual's, anew.

    Raises:
        CompileError: if a tool fails, with its last line, or takes more than a quarter of an hour.
    """
    kind = ".".join(filter(None, ["stock", target.device if target else "", (flags or "").replace(" ", "_")]))
    stem = kept_name(model, kind, _IREE, str(target or host().key))
    files = StockFiles(directory / f"{stem}.vmfb", directory / f"{stem}.irpa")
    if flags is not None and files.module.exists():
        return files
    source = directory / f"{stem}.mlir"
    _tool("iree-import-onnx", model, "-o", source, "--externalize-params", "--save-params-to", files.weights)
    chosen = (*(target.flags if target else _IREE_FLAGS), *(STOCK_FLAGS[flags] if flags else ()))
    _tool("iree-compile", source, "-o", files.module, *chosen)
    return files


def _tool(name: str, *arguments: object) -> None:
    program = Path(sys.executable).with_name(name)
    command = [str(program), *map(str, arguments)]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        raise CompileError(f"{name} did not end within {_COMPILE_TIMEOUT} s") from None
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
    session = Session(module, device=open_device(device, threads), keep_states=False)
    return lambda given: session.run(None, dict(given))


def bound_sartor_peer(module: Path, threads: int | None, feeds: Mapping[str, Array]) -> Run:
    """A module of Sartor whose inputs and outputs stay in place (``Session.bind``); it ignores later inputs."""
    session = Session(module, device=open_device("cpu", threads), keep_states=False)
    bound = session.bind(dict(feeds))
    outputs = [bound.outputs[spec.name].to_host() for spec in session.get_outputs()]

    def run(_: Mapping[str, Array]) -> list[Array]:
        bound.run()
        return outputs

    return run


def bound_onnxruntime_peer(model: Path, threads: int, feeds: Mapping[str, Array], outputs: Sequence[Array]) -> Run:
    """ONNX Runtime with its IO binding and memory for its outputs; it ignores later inputs.

    Raises:
        UnsupportedModelError: if it does not load the model; and the callable, if it does not run it.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _ORT_ERROR_ONLY
    options.intra_op_num_threads = threads
    try:
        session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    except ORT_ERRORS as error:
        raise UnsupportedModelError(f"ONNX Runtime cannot load the model: {reason_of(error)}") from None
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_cpu_input(name, array)
    kept = [np.empty_like(output) for output in outputs]
    for value, array in zip(session.get_outputs(), kept, strict=True):
        binding.bind_ortvalue_output(value.name, onnxruntime.OrtValue.ortvalue_from_numpy(array))

    def run(_: Mapping[str, Array]) -> list[Array]:
        try:
            session.run_with_iobinding(binding)
        except ORT_ERRORS as error:
            raise UnsupportedModelError(f"ONNX Runtime cannot run the model: {reason_of(error)}") from None
        return kept

    return run
