"""Compile ONNX models into IREE modules in which every layer runs the routine that was measured to be best.

    artifact = sartor.compile("model.onnx", sartor.CompileConfig(threads=2))
    outputs = sartor.Session(artifact.path).run(None, feeds)

Names are loaded when they are first used (PEP 562): worker processes import this package too, and need few of them.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sartor.api import compile
    from sartor.artifact import Artifact
    from sartor.config import CompileConfig
    from sartor.runtime.generation.generate import generate
    from sartor.runtime.session import Session
    from sartor.tuning.selection.problem.cost import Objective
    from sartor.tuning.selection.problem.limits import Quantity

    __version__: str

__all__ = ["Artifact", "CompileConfig", "Objective", "Quantity", "Session", "__version__", "compile", "generate"]

# ONNX Runtime's own packages report about models to Microsoft and write to the temporary folder, unless they are told
# not to before they are loaded, here and in workers. Who sets the variable decides.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

_HOME = {
    "Artifact": "sartor.artifact",
    "CompileConfig": "sartor.config",
    "Objective": "sartor.tuning.selection.problem.cost",
    "Quantity": "sartor.tuning.selection.problem.limits",
    "Session": "sartor.runtime.session",
    "compile": "sartor.api",
    "generate": "sartor.runtime.generation.generate",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = import_module("importlib.metadata").version("sartor")
    elif name in _HOME:
        try:
            value = getattr(import_module(_HOME[name]), name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] == __name__:
                raise
            message = f"sartor.{name} needs {error.name}, which running models does not: pip install 'sartor[compile]'"
            raise ImportError(message, name=error.name) from error
    else:
        raise AttributeError(f"module 'sartor' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
