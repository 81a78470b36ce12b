"""Devices that IREE's runtime can open, and emulators for tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence

from sartor.devices import CUDA, KINDS, VULKAN
from sartor.doctor.finding import Finding, State
from sartor.runtime.driver.device import DeviceInfo, list_devices

_TOPIC = "devices"
_HOW_TO_GET = {
    VULKAN: "install a Vulkan driver; on Debian 'libvulkan1 mesa-vulkan-drivers' has one for the CPU too",
    CUDA: "install NVIDIA's driver, which brings libcuda.so",
}
_EMULATORS = {"qemu-aarch64": "AArch64", "qemu-x86_64": "other x86-64 processors"}


def examine_devices(devices: Sequence[DeviceInfo] | None = None) -> Iterator[Finding]:
    """The devices of each kind, and emulators of other processors."""
    present = list_devices() if devices is None else devices
    for kind in KINDS:
        names = [f"{info.spec} ({info.name})" for info in present if info.spec.split(":")[0] == kind]
        if names:
            yield Finding(_TOPIC, kind, ", ".join(names))
        else:
            yield Finding(_TOPIC, kind, "", State.MISSING, _HOW_TO_GET[kind])
    for program, what in _EMULATORS.items():
        path = shutil.which(program)
        if path:
            yield Finding(_TOPIC, program, path)
        else:
            advice = f"only tests of code for {what} need it; on Debian install 'qemu-user'"
            yield Finding(_TOPIC, program, "", State.MISSING, advice)
