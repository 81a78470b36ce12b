"""Worker side: time transfers as a session does them, each with a call on the device that gets the tensor."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from sartor.codegen.ir.target import Target
from sartor.codegen.mlir.iree_compiler import compile_module
from sartor.errors import SartorError
from sartor.runtime.driver.device import open_device
from sartor.runtime.driver.device_array import upload
from sartor.runtime.driver.iree_runtime import parse_module
from sartor.runtime.driver.native_device import NativeDevice
from sartor.runtime.driver.program import Program
from sartor.tuning.workers.protocol import WorkerError

_ENTRY = "main"
# Its call takes what a segment's call takes beside its layers.
_MODULE = """
func.func @main(%x: tensor<16xf32>) -> tensor<16xf32> {
  %sum = arith.addf %x, %x : tensor<16xf32>
  return %sum : tensor<16xf32>
}
"""
_ROUNDS = 9


def time_transfers(source: Target, target: Target, sizes: Sequence[int]) -> dict[int, tuple[float, ...]] | WorkerError:
    """Seconds of moving tensors of some sizes from one device to another and of one call there; samples by size."""
    try:
        return _time(_device(source), _device(target), compile_module(_MODULE, target.flags), sizes)
    except SartorError as error:
        return WorkerError(error)


def _device(target: Target) -> NativeDevice:
    return open_device(target.device, target.threads if target.is_cpu else None)


def _time(
    source: NativeDevice, target: NativeDevice, module: bytes, sizes: Sequence[int]
) -> dict[int, tuple[float, ...]]:
    program = Program(parse_module(module, "the probe"), "the probe", target, {})
    argument = upload(np.zeros(16, np.float32), target)
    times: dict[int, tuple[float, ...]] = {}
    for size in sizes:
        tensor = upload(np.zeros(size, np.uint8), source)
        samples = []
        for _ in range(_ROUNDS + 1):
            begin = time.perf_counter()
            moved = upload(tensor.to_host(), target)
            program.invoke(_ENTRY, [argument.view])
            samples.append(time.perf_counter() - begin)
            del moved
        # The first one allocates what later ones use again.
        times[size] = tuple(samples[1:])
    return times
