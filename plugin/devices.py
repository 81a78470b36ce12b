"""Kinds of devices, by the names that IREE, the command line and plans have for them."""

from __future__ import annotations

CPU, VULKAN, CUDA = "cpu", "vulkan", "cuda"
GPU_KINDS = (VULKAN, CUDA)
KINDS = (CPU, *GPU_KINDS)


def is_cpu(device: str) -> bool:
    """Whether a device is the CPU, of all kinds the one that runs on the caller's own memory and threads."""
    return device == CPU
