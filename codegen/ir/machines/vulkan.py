"""NVIDIA's GPUs as their Vulkan driver shows them.

IREE's table has the shared memory of CUDA. The driver for Vulkan gives a workgroup 48 KiB
(``maxComputeSharedMemorySize``) and refuses kernels that need more, so targets are written out here.
"""

from __future__ import annotations

from collections.abc import Mapping

_SHARED_BYTES = 48 << 10
_COMPUTE = "fp64|fp32|fp16|int64|int32|int16|int8"
_HALF = ("NV_MMA_SYNC_F32_16x8x16_F16", "NV_MMA_SYNC_F16_16x8x16_F16")
_BFLOAT = ("NV_MMA_SYNC_F32_16x8x16_BF16",)
_BYTES = ("NV_MMA_SYNC_F32_16x8x32_F8E4M3FN", "NV_MMA_SYNC_F32_16x8x32_F8E5M2")
_COOPERATIVE = ("NV_WMMA_F32_16x16x16_F16", "NV_WMMA_F16_16x16x16_F16")
_MATRICES: Mapping[str, tuple[str, ...]] = {
    "sm_75": (*_HALF, *_COOPERATIVE),
    "sm_80": (*_HALF, *_BFLOAT, *_COOPERATIVE),
    "sm_86": (*_HALF, *_BFLOAT, *_COOPERATIVE),
    "sm_89": (*_HALF, *_BFLOAT, *_BYTES, *_COOPERATIVE),
}
_FAMILIES: Mapping[str, str] = {"turing": "sm_75", "ampere": "sm_80", "ada": "sm_89"}

NVIDIA = (*_FAMILIES, *_MATRICES)
"""Names of architectures that are written out here."""


def nvidia_attribute(name: str) -> str | None:
    """The attribute of executables for an architecture; None if it is not one that is written out here."""
    architecture = _FAMILIES.get(name, name)
    matrices = _MATRICES.get(architecture)
    if matrices is None:
        return None
    return (
        '#hal.executable.target<"vulkan-spirv", "vulkan-spirv-fb", {iree_codegen.target_info = #iree_gpu.target<'
        f'arch = "{architecture}", features = "spirv:v1.6,cap:Shader", wgp = <compute = {_COMPUTE}, '
        "storage = b64|b32|b16|b8, subgroup = shuffle|arithmetic, dot = dp4xi8toi32, "
        f"mma = [{', '.join(f'<{matrix}>' for matrix in matrices)}], subgroup_size_choices = [32], "
        "max_workgroup_sizes = [1024, 1024, 1024], max_thread_count_per_workgroup = 1024, "
        f"max_workgroup_memory_bytes = {_SHARED_BYTES}, max_workgroup_counts = [2147483647, 65535, 65535]>>}}>"
    )
