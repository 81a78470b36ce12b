"""What code is generated for: a device, its architecture, and the compiler flags that follow."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sartor.codegen.ir.machines.cuda import cuda_architecture
from sartor.codegen.ir.machines.vulkan import nvidia_attribute
from sartor.devices import CPU, CUDA, KINDS, VULKAN, is_cpu
from sartor.errors import UsageError

_DEFAULT_ARCHITECTURE = {CPU: "host", VULKAN: "llvmpipe", CUDA: "sm_80"}

# The flags that a user of stock IREE would give; candidate 0 and every other variant are compiled with them.
_OPTIMISATION = ("--iree-opt-level=O3",)

# IREE links code for no particular operating system, so that it runs under any.
_NO_SYSTEM = "unknown-unknown-eabi-elf"
# Code that IREE packs itself may use its microkernels. The default stack limit of 32 KiB refuses some layer
# normalisations; IREE's worker threads have 128 KiB.
_CPU_FLAGS = ("--iree-llvmcpu-enable-ukernels=mmt4d", "--iree-llvmcpu-stack-allocation-limit=65536")


@dataclass(frozen=True)
class Target:
    """A device and the architecture level of its code.

    Attributes:
        device: ``cpu``, ``vulkan`` or ``cuda``.
        architecture: as IREE's flags name it, for example ``host``, ``llvmpipe``, ``sm_80``; for a CPU with another
            instruction set than this machine's, that comes first: ``aarch64:neoverse-n1``.
        threads: worker threads that kernels partition their work for; the code runs with any number.
        withheld: CPU features, by LLVM's names, that the operating system does not let programs use.
        others: further devices for parts of a network; its inputs and outputs are on this one.
        without: CPU features of the architecture, by LLVM's names, that the code does not use.
    """

    device: str
    architecture: str
    threads: int = 1
    withheld: tuple[str, ...] = ()
    others: tuple[Target, ...] = ()
    without: tuple[str, ...] = ()

    @staticmethod
    def create(device: str, architecture: str | None = None) -> Target:
        """A target by the user's names.

        Raises:
            UsageError: for an unknown device, or an architecture of which a part is missing.
        """
        if device not in KINDS:
            raise UsageError(f"'{device}' is not a target, choose among {', '.join(KINDS)}")
        if architecture is not None and not all(architecture.split(":")):
            raise UsageError(
                f"'{architecture}' is not an architecture, expected for example host or aarch64:neoverse-n1"
            )
        return Target(device, architecture or _DEFAULT_ARCHITECTURE[device])

    @staticmethod
    def joined(targets: Sequence[Target]) -> Target:
        """One target of one device, or of the CPU and a GPU.

        Raises:
            UsageError: for other devices.
        """
        first, *others = sorted(targets, key=lambda target: KINDS.index(target.device))
        if others and (len(others) > 1 or not first.is_cpu or others[0].is_cpu):
            names = ",".join(target.device for target in targets)
            raise UsageError(f"'{names}' is not a target; several devices are cpu,vulkan or cpu,cuda")
        return replace(first, others=tuple(others))

    def __str__(self) -> str:
        return ",".join(f"{target.device}:{target.architecture}" for target in (self, *self.others))

    @property
    def each(self) -> tuple[Target, ...]:
        """A target of one device for each of the devices, this one first."""
        return (replace(self, others=()), *self.others)

    @property
    def is_cpu(self) -> bool:
        """Whether code is for the CPU, of all devices the one that runs on the caller's own memory and threads."""
        return is_cpu(self.device)

    @property
    def is_vulkan(self) -> bool:
        """Whether code is SPIR-V, which a driver of Vulkan compiles when it is loaded."""
        return self.device == VULKAN

    @property
    def is_cuda(self) -> bool:
        """Whether code is PTX, for the GPUs of NVIDIA from an architecture on."""
        return self.device == CUDA

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of the devices."""
        return tuple(target.device for target in self.each)

    def of(self, device: str) -> Target:
        """The target of one of the devices alone."""
        return next(target for target in self.each if target.device == device)

    @property
    def key(self) -> str:
        """The target with a hash of its flags, because measurements under other flags are not comparable."""
        flags = [flag for target in self.each for flag in (*target.flags, target.written_out) if flag]
        return f"{self}/{hashlib.sha256(' '.join(flags).encode()).hexdigest()[:8]}"

    @property
    def multiplies_tf32(self) -> bool:
        """Whether one of the devices has kernels for tensor cores that multiply in TF32."""
        return any(part.is_cuda and cuda_architecture(part.architecture) is not None for part in self.each)

    @property
    def is_software(self) -> bool:
        """Whether code is for a driver that computes on the CPU: all that runs or compiles there is slow."""
        return self.is_vulkan and self.architecture == _DEFAULT_ARCHITECTURE[VULKAN]

    @property
    def is_this_cpu(self) -> bool:
        """Whether code is for the CPU that compiles it."""
        return self.is_cpu and self.architecture == _DEFAULT_ARCHITECTURE[CPU]

    @property
    def isa(self) -> str | None:
        """LLVM's name of the instruction set that a CPU's architecture begins with; None for this machine's."""
        isa, colon, _ = self.architecture.partition(":")
        return isa if self.is_cpu and colon else None

    @property
    def device_flags(self) -> tuple[str, ...]:
        """Flags that select the device and architecture, without optimisation."""
        if self.is_cpu:
            triple = (f"--iree-llvmcpu-target-triple={self.isa}-{_NO_SYSTEM}",) if self.isa else ()
            less = ",".join(f"-{feature}" for feature in self.without)
            return (
                "--iree-hal-target-device=local",
                "--iree-hal-local-target-device-backends=llvm-cpu",
                *triple,
                *((f"--iree-llvmcpu-target-cpu-features={less}",) if less else ()),
                f"--iree-llvmcpu-target-cpu={self.architecture.removeprefix(f'{self.isa}:')}",
            )
        if self.is_vulkan:
            return ("--iree-hal-target-device=vulkan", f"--iree-vulkan-target={self.architecture}")
        known = cuda_architecture(self.architecture)
        return ("--iree-hal-target-device=cuda", f"--iree-cuda-target={known.base if known else self.architecture}")

    @property
    def written_out(self) -> str | None:
        """The attribute of executables, where it is not IREE's own for these flags; None where it is."""
        if self.is_vulkan:
            return nvidia_attribute(self.architecture)
        known = cuda_architecture(self.architecture) if self.is_cuda else None
        return known.attribute if known else None

    @property
    def has_models(self) -> bool:
        """Whether models predict the cost of kernels for it, so that a plan can be made without measuring."""
        return not self.is_cuda or self.written_out is not None

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags of every compilation for this target's first device."""
        extra = _CPU_FLAGS if self.is_cpu else ()
        return (*self.device_flags, *_OPTIMISATION, *extra)


def cpu_features(text: str) -> frozenset[str]:
    """CPU features that a target's attribute enables; where it names one twice, the last entry counts."""
    match = re.search(r'cpu_features = "([^"]*)"', text)
    words = match[1].split(",") if match else []
    present = {word[1:]: word.startswith("+") for word in words if word}
    return frozenset(name for name, has in present.items() if has)
