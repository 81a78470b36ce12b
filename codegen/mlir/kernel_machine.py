"""The machine that our own kernels are written for: a CPU, or a GPU whose subgroups take the place of vectors."""

from __future__ import annotations

from collections.abc import Collection

from sartor.codegen.ir.layer import F16, Task
from sartor.codegen.ir.machines.core import Core, core_of_gpu
from sartor.codegen.ir.machines.cuda import cuda_architecture
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.mlir.gpu_machine import gpu_machine
from sartor.codegen.mlir.machine import Machine, float_machine, machine_of
from sartor.devices import CPU, CUDA, VULKAN

CPU_ONLY: tuple[str, ...] = (CPU,)
EVERYWHERE: tuple[str, ...] = (CPU, VULKAN)
"""Devices of kernels that need nothing but vectors: neither memory of a workgroup nor instructions of a CPU."""
ALSO_CUDA: tuple[str, ...] = (*EVERYWHERE, CUDA)
"""The same with CUDA, where most layers have kernels for its tensor cores."""

_STORED_EVERYWHERE = (None, F16)


def devices_storing(storage: str | None) -> tuple[str, ...]:
    """Devices of kernels that need nothing but vectors and a type that results are stored in; None for their own."""
    return EVERYWHERE if storage in _STORED_EVERYWHERE else CPU_ONLY


def kernel_machine(
    task: Task, target: Target, storage: str | None = None, devices: Collection[str] = CPU_ONLY
) -> Machine | Rejected:
    """The machine that our own kernels are compiled for; Rejected if they do not support the layer or target.

    Args:
        task: the layer.
        target: device and architecture.
        storage: narrower type that results are stored in; None for their own.
        devices: what the kernel can be compiled for.
    """
    if target.device not in devices:
        return Rejected(f"the kernel is not for {target.device}")
    if task.opened is not None and task.opened.ends:
        return Rejected("it reads the end of a table, which begins elsewhere for each size")
    machine = float_machine(task, target) if target.is_cpu else gpu_machine(target)
    if isinstance(machine, Machine) and not all(tensor.is_f32 for tensor in (*task.inputs, *task.weights)):
        return Rejected("its element types are not all f32")
    if (storage is not None or not target.is_cpu) and not all(result.is_f32 for result in task.results):
        return Rejected("its results are not all f32")
    return machine


def core_of(target: Target) -> Core:
    """The core of a target's CPU, or of its GPU if that is its only device.

    Raises:
        CompileError: if the compiler rejects the target.
    """
    if target.is_vulkan:
        return gpu_machine(target).core
    gpu = cuda_architecture(target.architecture) if target.is_cuda else None
    return machine_of(target.of(CPU)).core if gpu is None else core_of_gpu(gpu)
