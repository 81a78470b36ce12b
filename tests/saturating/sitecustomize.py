"""Python imports this at its start where the folder is in PYTHONPATH: ONNX Runtime's sessions then run on another CPU.

So do those of worker processes, which get the same environment. All else runs on this machine; code for it is for the
level that SARTOR_TESTS_LEVEL names, as for x86-64-v3, which has neither AVX-512 nor VNNI.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_CPU, _LEVEL = "--iree-llvmcpu-target-cpu=", os.environ.get("SARTOR_TESTS_LEVEL", "host")


def _emulate(onnxruntime: Any) -> None:
    """Have another process run the sessions."""
    onnxruntime.InferenceSession = import_module("emulated_sessions").EmulatedSession


def _lower(target: Any) -> None:
    """Generate code for a level in place of the machine itself."""
    flags = target.Target.device_flags.fget

    def lowered(self: object) -> tuple[str, ...]:
        return tuple(f"{_CPU}{_LEVEL}" if flag == f"{_CPU}host" else flag for flag in flags(self))

    target.Target.device_flags = property(lowered)


_CHANGES: Mapping[str, Callable[[Any], None]] = {"onnxruntime": _emulate, "sartor.codegen.ir.target": _lower}


class _Loader(Loader):
    def __init__(self, loader: Loader, change: Callable[[Any], None]) -> None:
        self._loader, self._change = loader, change

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._change(module)


class _Finder(MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _CHANGES:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, _CHANGES[name])
        return spec


sys.meta_path.insert(0, _Finder())
