"""CUDA's architectures: limits of a kernel, and rates that the analytic models use.

The limits are those of NVIDIA's CUDA C++ Programming Guide, "Compute Capabilities". IREE's own table has no sm_90, and
gives sm_86 the shared memory of sm_80, so targets are written out here. Rates are those of one product of each
architecture, by NVIDIA's whitepapers; none was measured.
"""

from __future__ import annotations

from dataclasses import dataclass

_KIB = 1 << 10
_COMPUTE = "fp64|fp32|fp16|int64|int32|int16|int8"
_MMA = (
    "<NV_MMA_SYNC_F32_16x8x16_F16>, <NV_MMA_SYNC_F16_16x8x16_F16>, <NV_MMA_SYNC_F32_16x8x16_BF16>, "
    "<NV_WMMA_F32_16x16x16_F16>, <NV_WMMA_F16_16x16x16_F16>"
)
WARP = 32
"""Threads that run together, and that share the operands of an instruction on matrices."""

NATIVE = "native"
"""Stands for the architecture of the GPU that is found."""


@dataclass(frozen=True)
class CudaArchitecture:
    """A GPU as kernels and models see it.

    Attributes:
        name: ``sm_80``.
        ptx: feature by which LLVM's names select the version of PTX.
        base: architecture of IREE's table whose flags it is compiled with.
        shared_bytes: shared memory that a workgroup may have.
        shared_total: shared memory of a multiprocessor; one KiB of it is reserved for each workgroup.
        resident_threads: threads that a multiprocessor holds.
        resident_groups: workgroups that it holds.
        multiprocessors: of the product that the rates are of.
        hertz: its boost clock.
        bandwidth: bytes that it reads from memory, or writes to it, in a second.
        cache_bytes: its second-level cache.
        multiply_adds: in f32, that a multiprocessor starts in a cycle.
        tensor_multiply_adds: the same by ``mma.sync`` for operands of f16 with sums in f32; TF32 has half of it.
        byte_multiply_adds: the same for operands of 8 bits.
        launch_seconds: from the end of a kernel to the start of the next, an estimate.
    """

    name: str
    ptx: str
    base: str
    shared_bytes: int
    shared_total: int
    resident_threads: int
    resident_groups: int
    multiprocessors: int
    hertz: float
    bandwidth: float
    cache_bytes: int
    multiply_adds: int
    tensor_multiply_adds: int
    byte_multiply_adds: int
    launch_seconds: float = 4e-6

    @property
    def attribute(self) -> str:
        """The attribute of executables for it."""
        return (
            '#hal.executable.target<"cuda", "cuda-nvptx-fb", {iree_codegen.target_info = #iree_gpu.target<'
            f'arch = "{self.name}", features = "{self.ptx}", wgp = <compute = {_COMPUTE}, '
            "storage = b64|b32|b16|b8, subgroup = shuffle|arithmetic, dot = dp4xi8toi32, "
            f"mma = [{_MMA}], subgroup_size_choices = [32], max_workgroup_sizes = [1024, 1024, 1024], "
            f"max_thread_count_per_workgroup = 1024, max_workgroup_memory_bytes = {self.shared_bytes}, "
            "max_workgroup_counts = [2147483647, 65535, 65535]>>}>"
        )


# A100 with 40 GB, RTX 3090, RTX 4090, and H100 SXM, of whose tensor cores mma.sync uses about 0.6.
ARCHITECTURES = {
    architecture.name: architecture
    for architecture in (
        CudaArchitecture(
            *("sm_80", "+ptx76", "sm_80", 163 * _KIB, 164 * _KIB, 2048, 32, 108, 1.41e9, 1.555e12, 40 << 20),
            *(64, 1024, 2048),
        ),
        CudaArchitecture(
            *("sm_86", "+ptx76", "sm_86", 99 * _KIB, 100 * _KIB, 1536, 16, 82, 1.70e9, 0.936e12, 6 << 20),
            *(128, 256, 1024),
        ),
        CudaArchitecture(
            *("sm_89", "+ptx80", "sm_89", 99 * _KIB, 100 * _KIB, 1536, 24, 128, 2.52e9, 1.008e12, 72 << 20),
            *(128, 256, 1024),
        ),
        CudaArchitecture(
            *("sm_90", "+ptx80", "sm_89", 227 * _KIB, 228 * _KIB, 2048, 32, 132, 1.755e9, 3.35e12, 50 << 20),
            *(128, 1230, 2460),
        ),
    )
}
"""Architectures that are written out here, by name."""


_SMALLER_AGAIN = 12


def cuda_architecture(name: str) -> CudaArchitecture | None:
    """The architecture of a name; None for those that only IREE knows."""
    return ARCHITECTURES.get(name)


def newest_for(major: int, minor: int) -> str | None:
    """The newest architecture whose code runs on a GPU of this compute capability; None if all are newer.

    The driver compiles PTX for the GPU at hand, so code for an older architecture runs on a newer one, if that has as
    much shared memory: those of compute capability 12 have as much as sm_89.
    """
    if major >= _SMALLER_AGAIN:
        return "sm_89"
    known = [name for name in ARCHITECTURES if int(name.removeprefix("sm_")) <= 10 * major + minor]
    return known[-1] if known else None
