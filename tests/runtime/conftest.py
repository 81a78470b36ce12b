"""Small modules compiled once for all tests of the runtime."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sartor.errors import DeviceError
from sartor.runtime.driver.device import open_device
from sartor.runtime.driver.signature import Array, TensorSpec
from sartor.runtime.manifest import MANIFEST_KEY, Manifest

DATA = Path(__file__).parent / "data"
FLAGS = {
    "cpu": (
        "--iree-hal-target-device=local",
        "--iree-hal-local-target-device-backends=llvm-cpu",
        "--iree-llvmcpu-target-cpu=generic",
        "--iree-input-demote-f64-to-f32=false",
    ),
    "aarch64": (
        "--iree-hal-target-device=local",
        "--iree-hal-local-target-device-backends=llvm-cpu",
        "--iree-llvmcpu-target-triple=aarch64-unknown-unknown-eabi-elf",
        "--iree-llvmcpu-target-cpu=generic",
        "--iree-input-demote-f64-to-f32=false",
    ),
    "vulkan": ("--iree-hal-target-device=vulkan", "--iree-vulkan-target=llvmpipe"),
}
INPUTS = (TensorSpec("x", "float32", (4, 6)), TensorSpec("größe", "float32", (4, 6)))
OUTPUTS = (TensorSpec("sum", "float32", (4, 6)), TensorSpec("product", "float32", (4, 6)))
MANIFEST = {
    "model": "modèle",
    "model_sha256": "0" * 64,
    "entry": "main_graph",
    "inputs": INPUTS,
    "outputs": OUTPUTS,
    "devices": ("cpu",),
    "levels": ("generic",),
    "sartor_version": "0.1.0",
    "iree_version": "3.13.0",
    "plan": {"layers": [{"name": "café → 日本", "routine": 'a"b\\c\n'}]},
}

Compile = Callable[..., Path]


def _quoted(text: str) -> str:
    plain = set(range(32, 127)) - set(b'"\\')
    return '"' + "".join(chr(byte) if byte in plain else f"\\{byte:02X}" for byte in text.encode()) + '"'


@pytest.fixture(scope="session")
def compile_mlir(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """``compile_mlir(source, manifest=None, device="cpu")``: a file of ``data`` as a .vmfb."""
    folder = tmp_path_factory.mktemp("modules")

    def run(source: str, manifest: str | None = None, device: str = "cpu") -> Path:
        reflection = f'iree.reflection = {{"{MANIFEST_KEY}" = {_quoted(manifest)}}}' if manifest else ""
        text = (DATA / f"{source}.mlir").read_text(encoding="utf-8").replace("REFLECTION", reflection)
        number = len(list(folder.glob("*.mlir")))
        module, target = folder / f"{source}{number}.mlir", folder / f"{source}{number}.vmfb"
        module.write_text(text, encoding="utf-8")
        tool = Path(sys.executable).parent / "iree-compile"
        subprocess.run([tool, module, "-o", target, *FLAGS[device]], check=True, capture_output=True)
        return target

    return run


@pytest.fixture(scope="session")
def make_manifest() -> Callable[..., Manifest]:
    """The manifest of ``model``, with the given fields changed."""

    def make(**changes: object) -> Manifest:
        return Manifest(**(MANIFEST | changes))  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="session")
def model(compile_mlir: Compile, make_manifest: Callable[..., Manifest]) -> Path:
    """A model with a manifest and an asynchronous entry."""
    return compile_mlir("model", make_manifest().to_json())


@pytest.fixture(scope="session")
def foreign(compile_mlir: Compile) -> Path:
    """Many small functions without a manifest, each with the signature IREE records."""
    return compile_mlir("foreign")


@pytest.fixture
def feeds() -> dict[str, Array]:
    """Values for the model's inputs."""
    random = np.random.default_rng(0)
    return {spec.name: random.random((4, 6), np.float32) for spec in INPUTS}


@pytest.fixture
def vulkan() -> str:
    """The name of a Vulkan device; the test is skipped where there is none."""
    try:
        open_device("vulkan")
    except DeviceError as error:
        pytest.skip(str(error))
    return "vulkan"
