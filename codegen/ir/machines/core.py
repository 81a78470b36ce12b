"""What the analytic models know of a CPU's core: vectors, ports, latencies and caches."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from sartor.codegen.ir.machines.cuda import CudaArchitecture

_FLOAT_BYTES = 4
LINE_BYTES = 64
"""Of a line of the cache."""


@dataclass(frozen=True)
class Core:
    """A core as the analytic models see it; the default is one of x86-64 with vectors of 64 bytes.

    Attributes:
        vector_bytes: width of a vector register.
        multiplies: multiply-adds of whole vectors that start in a cycle.
        loads: vectors that are loaded in a cycle.
        latency: cycles from a multiply-add to the next one on the same sum.
        issue: instructions that start in a cycle; infinite where ports are the bound.
        duplicates: whether loading one number into all elements of a vector takes a slot of a multiply-add.
        indexes: whether a multiply-add may take one element of a vector as its factor.
        line_cycles: cycles to move a line of filters from the second-level cache to the first.
        far_line_cycles: the same from beyond the second-level cache.
        resident_bytes: half of the second-level cache, which filters share with the image.
        bytes_per_cycle: bytes that the core reads from memory, or writes to it, in a cycle.
        hertz: cycles in a second.
        dispatch_cycles: to start a dispatch.
        conversion_cycles: to start one that only converts a tensor, beside what the network starts anyway.
        element_cycles: to move an element of a conversion, whose order of elements is another.
        channel_cycles: the same where both layouts have channels innermost, which IREE moves one vector at a time.
        serial_cycles: of each product in a sum that one thread adds up, as in code that IREE generates for GPUs.
        gpu: the GPU that this stands for, all its multiprocessors as one core; None for a CPU.
        pairs: whether a load of 64 bits for each lane takes little longer than one of 32.
    """

    vector_bytes: int = 64
    multiplies: float = 2
    loads: float = 2
    latency: float = 4
    issue: float = math.inf
    duplicates: bool = False
    indexes: bool = False
    line_cycles: float = 3
    far_line_cycles: float = 6
    resident_bytes: int = 1 << 20
    bytes_per_cycle: float = 8
    hertz: float = 3e9
    dispatch_cycles: float = 3000
    conversion_cycles: float = 1200
    element_cycles: float = 0.35
    channel_cycles: float = 0.8
    serial_cycles: float = 0
    gpu: CudaArchitecture | None = None
    pairs: bool = False

    @property
    def lanes(self) -> int:
        """Elements of f32 in a vector."""
        return self.vector_bytes // _FLOAT_BYTES

    @property
    def lines(self) -> float:
        """Lines of the cache that a vector takes."""
        return self.vector_bytes / LINE_BYTES

    @property
    def comparable(self) -> Core:
        """The core by which learned models describe variants: a GPU is itself, and one core stands for all CPUs, so
        that what was learned on one serves others."""
        return self if self.gpu else WIDE

    @property
    def operations_per_cycle(self) -> float:
        """Operations in f32 at most, a multiply-add counting as two."""
        return 2 * self.multiplies * self.lanes


WIDE = Core()
"""A core of x86-64 with AVX-512."""

_KIB = 1 << 10
# How fast conversions are was measured on x86-64 alone.
_Arm = partial(Core, conversion_cycles=3000, element_cycles=1.5, channel_cycles=1.5)
_MIDDLE = _Arm(16, 2, 2, 2, 4, True, True, 4, 12, 256 * _KIB, 8, 2.6e9)

# By LLVM's names. Approximate figures of each family, chosen by what is published of it; none was measured here, and
# caches and clocks differ between products of one core.
_SMALL = _Arm(16, 1, 0.5, 4, 2, True, True, 8, 24, 64 * _KIB, 4, 1.8e9)
_OLD = _Arm(16, 1, 1, 3, 3, True, True, 6, 16, 512 * _KIB, 4, 1.8e9)
_LARGE = _Arm(16, 4, 3, 2, 8, True, True, 3, 8, 512 * _KIB, 16, 2.8e9)
_CLOUD = _Arm(16, 2, 2, 2, 4, True, True, 4, 12, 512 * _KIB, 8, 2.8e9)
_NEWER = _Arm(16, 2, 3, 2, 5, True, True, 4, 10, 512 * _KIB, 12, 2.8e9)
_APPLE = _Arm(16, 4, 3, 4, 8, True, True, 3, 8, 2048 * _KIB, 20, 3.2e9)
_CORES_OF_64_BITS = {
    **dict.fromkeys(("cortex-a53", "cortex-a55", "cortex-a510", "cortex-a520"), _SMALL),
    **dict.fromkeys(("cortex-a57", "cortex-a72", "cortex-a73"), _OLD),
    **dict.fromkeys(("cortex-a75", "cortex-a76", "cortex-a77", "cortex-a78"), _MIDDLE),
    **dict.fromkeys(("cortex-x1", "cortex-x2", "cortex-x3", "cortex-x4", "neoverse-v1", "neoverse-v2"), _LARGE),
    **dict.fromkeys(("neoverse-n1", "ampere1", "ampere1a"), _CLOUD),
    **dict.fromkeys(("neoverse-n2", "cortex-a710", "cortex-a715", "cortex-a720"), _NEWER),
    **dict.fromkeys(("apple-a14", "apple-m1", "apple-a15", "apple-m2", "apple-m3", "apple-m4"), _APPLE),
}


def core_of_aarch64(name: str) -> Core:
    """The core of a CPU of 64-bit Arm by LLVM's name; one in the middle of those known if it is not among them."""
    return _CORES_OF_64_BITS.get(name, _MIDDLE)


def core_of_gpu(gpu: CudaArchitecture) -> Core:
    """A GPU as one core: vectors of a warp, and all multiprocessors' multiply-adds in a cycle."""
    lanes = 32
    return Core(
        vector_bytes=lanes * _FLOAT_BYTES,
        multiplies=gpu.multiprocessors * gpu.multiply_adds / lanes,
        bytes_per_cycle=gpu.bandwidth / gpu.hertz,
        hertz=gpu.hertz,
        dispatch_cycles=gpu.launch_seconds * gpu.hertz,
        conversion_cycles=gpu.launch_seconds * gpu.hertz,
        element_cycles=0.0,
        channel_cycles=0.0,
        # Two loads from the first-level cache, some of them on their way at once.
        serial_cycles=20.0,
        gpu=gpu,
    )
