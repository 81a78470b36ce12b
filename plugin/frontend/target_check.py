"""Checks, before other work, that the compiler knows a target, and whether this machine can run code for it."""

from __future__ import annotations

import platform
import resource

from sartor.codegen.ir.machines.cpu_queries import queried
from sartor.codegen.ir.target import Target, cpu_features
from sartor.codegen.mlir.dispatches import executable_target, on_device
from sartor.codegen.mlir.iree_compiler import compile_module
from sartor.devices import CPU, CUDA, VULKAN
from sartor.errors import DeviceError, SystemRefusedError, UsageError
from sartor.runtime.driver.device import is_available, list_devices
from sartor.runtime.driver.drivers import SOFTWARE_GPUS
from sartor.tuning.workers.entry_points import entry_point
from sartor.tuning.workers.pool import JobStatus, WorkerPool

_TIMEOUT = 120.0
_LEAST_FILE = 1 << 20
"""Bytes of the largest file that a compilation has to be allowed to write, at least."""
# An empty module is not enough: IREE looks up some architectures only when it has something to compile.
_MODULE = """
func.func @probe(%x: tensor<4xf32>) -> tensor<4xf32> {
  %sum = arith.addf %x, %x : tensor<4xf32>
  return %sum : tensor<4xf32>
}
"""
_KNOWN = {
    CPU: "host, generic, x86-64-v3, x86-64-v4 or another CPU of this machine's kind that LLVM names, "
    "or one of another kind after its instruction set, for example aarch64:neoverse-n1",
    VULKAN: "llvmpipe, ampere, rdna3, adreno or another GPU that IREE names",
    CUDA: "sm_80, sm_86, sm_89, sm_90, native or another GPU that IREE names",
}
# Operating systems' names of instruction sets for which LLVM uses another name.
_ISAS = {"amd64": "x86_64", "arm64": "aarch64"}


def check_target(target: Target, pool: WorkerPool) -> None:
    """Compile one addition for a target, in a worker, because LLVM and IREE abort at unknown names.

    The names of this machine come from LLVM, so they are not checked.

    Raises:
        UsageError: if the compiler does not know the architecture.
        SystemRefusedError: if this process may write small files only.
        CompileError: if the worker died or timed out.
        DisturbedError: if something outside the worker ended it.
    """
    check_file_limit()
    for device in target.each:
        _check_device(device, pool)


def check_file_limit() -> None:
    """Make sure that LLVM may write: where a file of its own in memory may not grow, it ends the process, without what
    Python does at its end.

    Raises:
        SystemRefusedError: if this process may write small files only.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit != resource.RLIM_INFINITY and limit < _LEAST_FILE:
        raise SystemRefusedError(
            f"this process may write files of {limit} bytes at most, too few for a module; "
            f"allow {_LEAST_FILE >> 20} MiB and more with ulimit -f"
        )


def _check_device(target: Target, pool: WorkerPool) -> None:
    if target.is_this_cpu and not target.without:
        return
    (result,) = pool.map_unordered(entry_point(compile_probe), [("target", {"target": target})], _TIMEOUT)
    if result.status in (JobStatus.FAILED, JobStatus.CRASHED):
        raise UsageError(
            f"IREE knows no architecture '{target.architecture}' of the target {target.device}; "
            f"name {_KNOWN[target.device]}"
        )
    if result.status is not JobStatus.OK:
        raise result.error(f"asking the compiler about {target}")


def compile_probe(target: Target) -> None:
    """Worker side: compile one addition."""
    compile_module(on_device(_MODULE, target), target.flags)


def runs_here(target: Target) -> bool:
    """Whether this machine has the devices of a target, and if one is a CPU, one with its instruction set."""
    return all(_is_here(device) for device in target.each)


def check_measurable(target: Target) -> None:
    """Make sure that layers need not be divided between devices without measuring.

    Raises:
        DeviceError: if there are several devices, of which this machine lacks one.
    """
    if target.others:
        lacking = next(device for device in target.each if not _is_here(device))
        raise DeviceError(
            f"this machine does not run {lacking} code, so {' and '.join(target.devices)} cannot be compared; compile "
            "for one device, or here from a plan"
        )


def _is_here(target: Target) -> bool:
    machine = platform.machine().lower()
    if not is_available(target.device) or target.isa not in (None, _ISAS.get(machine, machine)):
        return False
    if target.is_vulkan:
        return _computes(target)
    return not target.is_cpu or target.is_this_cpu or _has_features(target)


def _computes(target: Target) -> bool:
    """Whether a Vulkan device is a GPU, if code is for one: software runs it too, but its times tell nothing of it."""
    names = [info.name for info in list_devices() if info.spec.startswith(target.device)]
    return target.architecture in SOFTWARE_GPUS or not all(name.startswith(SOFTWARE_GPUS) for name in names)


def _has_features(target: Target) -> bool:
    """Whether this machine has what a CPU level needs, of that which a module can ask for."""
    wanted, present = (
        queried(cpu_features(executable_target(wanted_target))) for wanted_target in (target, Target.create(CPU))
    )
    return {*wanted} <= {*present}
