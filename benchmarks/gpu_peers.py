"""A network on a GPU by PyTorch or by ONNX Runtime, where they are installed.

``python -m benchmarks.gpu_peers model.onnx PEER`` prints one object of JSON: seconds of an inference, the smallest and
the median, the relative error against ONNX Runtime on the CPU, and versions. Inputs and outputs stay on the GPU, each
call is waited for, and random numbers are the inputs. PyTorch runs the model as onnx2torch converts it. Without the
libraries the exit code is 3.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from sartor.reference.random_inputs import sample_inputs
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.output_error import relative_error

NOT_INSTALLED = 3
_WARM_UP, _LEAST_CALLS = 10, 20
_SECONDS = 3.0

Call = Callable[[], object]
Outputs = Callable[[], Sequence[Any]]


@dataclass(frozen=True)
class Made:
    """A network that is ready.

    Attributes:
        call: an inference; returns once it has ended.
        outputs: one more, whose outputs are NumPy arrays.
        versions: of what computes it.
    """

    call: Call
    outputs: Outputs
    versions: Mapping[str, str]


def torch_call(model: Path, *, compiled: bool, arithmetic: str) -> Made:
    """An inference by PyTorch, eager or compiled with ``max-autotune``.

    Args:
        model: ONNX file.
        compiled: whether ``torch.compile`` is used.
        arithmetic: ``f32``, ``tf32`` or ``f16``.

    Raises:
        ImportError: if PyTorch or onnx2torch is not installed.
    """
    torch, converter = importlib.import_module("torch"), importlib.import_module("onnx2torch")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = arithmetic == "tf32"
    network = converter.convert(str(model)).eval().cuda()
    inputs = [torch.from_numpy(np.ascontiguousarray(each)).cuda() for each in _inputs(model).values()]
    if arithmetic == "f16":
        network, inputs = network.half(), [each.half() if each.is_floating_point() else each for each in inputs]
    if compiled:
        network = torch.compile(network, mode="max-autotune")

    def call() -> Any:
        with torch.inference_mode():
            results = network(*inputs)
        torch.cuda.synchronize()
        return results

    def outputs() -> list[Any]:
        results = call()
        listed = results if isinstance(results, (list, tuple)) else [results]
        return [each.float().cpu().numpy() for each in listed]

    return Made(call, outputs, {"torch": torch.__version__, "gpu": torch.cuda.get_device_name()})


def onnxruntime_call(model: Path, *, tf32: bool) -> Made:
    """An inference by ONNX Runtime's CUDA provider.

    Raises:
        ImportError: if it is not installed, or has no CUDA provider.
    """
    runtime = importlib.import_module("onnxruntime")
    provider = "CUDAExecutionProvider"
    session = runtime.InferenceSession(str(model), providers=[(provider, {"use_tf32": str(int(tf32))})])
    if provider not in session.get_providers():
        raise ImportError(f"onnxruntime {runtime.__version__} has no {provider}")
    binding = session.io_binding()
    for name, array in _inputs(model).items():
        binding.bind_ortvalue_input(name, runtime.OrtValue.ortvalue_from_numpy(array, "cuda", 0))
    for output in session.get_outputs():
        binding.bind_output(output.name, "cuda")

    def call() -> None:
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()

    def outputs() -> list[Any]:
        call()
        return list(binding.copy_outputs_to_cpu())

    return Made(call, outputs, {"onnxruntime": runtime.__version__})


PEERS: Mapping[str, Callable[[Path], Made]] = {
    "torch-eager": lambda model: torch_call(model, compiled=False, arithmetic="f32"),
    "torch-compile": lambda model: torch_call(model, compiled=True, arithmetic="f32"),
    "torch-compile-tf32": lambda model: torch_call(model, compiled=True, arithmetic="tf32"),
    "torch-compile-f16": lambda model: torch_call(model, compiled=True, arithmetic="f16"),
    "onnxruntime": lambda model: onnxruntime_call(model, tf32=False),
    "onnxruntime-tf32": lambda model: onnxruntime_call(model, tf32=True),
}
"""Other runtimes by name."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_peers", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("peer", choices=list(PEERS))
    options = parser.parse_args(arguments)
    try:
        made = PEERS[options.peer](options.model)
    except ImportError as error:
        print(error, file=sys.stderr)
        return NOT_INSTALLED
    off = relative_error(made.outputs(), ReferenceModel(options.model)(_inputs(options.model)))
    print(json.dumps({"error": off, **measured(made.call), **made.versions}))
    return 0


def measured(call: Call, seconds: float = _SECONDS) -> dict[str, Any]:
    """Times of a call, after it was warmed up: the smallest, the median, and how many there are."""
    for _ in range(_WARM_UP):
        call()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < _LEAST_CALLS or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return {"least": min(times), "median": statistics.median(times), "calls": len(times)}


def _inputs(model: Path) -> dict[str, Any]:
    return dict(sample_inputs(onnx.load(model), 0))


if __name__ == "__main__":
    sys.exit(main())
