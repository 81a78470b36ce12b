"""What runs in a worker that serves one test after the other; it imports no pytest."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Mapping

from onnx import ModelProto

from sartor.frontend import import_job
from sartor.onnx_model.preparing import simplify
from sartor.onnx_model.preparing.simplify_worker import simplify_bytes


class SimplifyHere(simplify.SimplifyProcess):
    """onnxslim in this process, in its main thread, where it can be interrupted; elsewhere in one of its own."""

    def __init__(self, *, copies: bool = False) -> None:
        self._is_main = threading.current_thread() is threading.main_thread()
        if not self._is_main:
            super().__init__(copies=copies)

    def __exit__(self, *_: object) -> None:
        if not self._is_main:
            super().__exit__()

    def run(self, model: ModelProto, seconds: float) -> ModelProto:
        if not self._is_main:
            return super().run(model, seconds)
        before = signal.signal(signal.SIGPROF, _interrupt)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            return ModelProto.FromString(simplify_bytes(model.SerializeToString()))
        except Exception as error:  # whatever it is, it ends the process that onnxslim has elsewhere
            raise simplify.OnnxslimError(f"{type(error).__name__}: {error}") from error
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)


def _interrupt(*_: object) -> None:
    raise TimeoutError


def simplify_here() -> None:
    """Let onnxslim run in this process from now on."""
    for module in (simplify, import_job):
        setattr(module, "SimplifyProcess", SimplifyHere)  # noqa: B010 mypy takes a class for no variable


def serve_again(environment: Mapping[str, str], folder: str) -> None:
    """Take over the environment and the folder of the process that is served from now on."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    tempfile.tempdir = None
