"""ONNX Runtime's sessions on an emulated CPU with AVX2 and without VNNI, where products of u8 and s8 saturate."""

from __future__ import annotations

import functools
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import starmap
from pathlib import Path
from typing import Any, NamedTuple

from onnxruntime.capi import onnxruntime_pybind11_state as ort

# What qemu does not emulate is left out, as it would say so at each start.
CPU = "Haswell,pcid=off,x2apic=off,tsc-deadline=off,hle=off,rtm=off,invpcid=off"
_ENTRIES = (
    "session.force_spinning_stop",
    "session.model_external_initializers_file_folder_path",
    "session.qdq_matmulnbits_accuracy_level",
)
_OPTIONS = ("graph_optimization_level", "intra_op_num_threads", "log_severity_level", "optimized_model_filepath")


class _Value(NamedTuple):
    name: str
    type: str
    shape: list[Any]


class EmulatedSession:
    """Takes the place of ``onnxruntime.InferenceSession``, as far as the package and ONNX Runtime's tools use it."""

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        disabled_optimizers: Sequence[str] = (),
        **_: Any,
    ) -> None:
        source = path_or_bytes if isinstance(path_or_bytes, bytes) else os.path.abspath(path_or_bytes)
        self._server = _server(os.getpid())
        request = "open", source, _described(sess_options), list(disabled_optimizers or ())
        self._number, inputs, outputs = self._server.ask(*request)
        self._inputs, self._outputs = (list(starmap(_Value, values)) for values in (inputs, outputs))

    def get_inputs(self) -> list[_Value]:
        """Names, types and shapes."""
        return self._inputs

    def get_outputs(self) -> list[_Value]:
        """Names, types and shapes."""
        return self._outputs

    def run(self, names: Sequence[str] | None, feeds: Mapping[str, Any], options: Any = None) -> list[Any]:
        """The outputs; the options of a run do not pass on."""
        return list(self._server.ask("run", self._number, names, dict(feeds)))


def _described(options: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """The options that are set, by name; and the configuration's entries."""
    if options is None:
        return {}, {}
    entries = {}
    for key in _ENTRIES:
        try:
            entries[key] = options.get_session_config_entry(key)
        except RuntimeError:
            continue
    values = {name: getattr(options, name) for name in _OPTIONS}
    values["graph_optimization_level"] = values["graph_optimization_level"].name
    return values, entries


class _Server:
    """The other process: it opens and runs sessions, one at a time."""

    def __init__(self) -> None:
        qemu = shutil.which("qemu-x86_64")
        if qemu is None:
            raise RuntimeError("there is no qemu-x86_64; install qemu-user")
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        program = Path(__file__).with_name("session_server.py")
        self._process = subprocess.Popen(
            [qemu, "-cpu", CPU, sys.executable, str(program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )

    def ask(self, *request: Any) -> Any:
        """The answer to a request.

        Raises:
            An error of ONNX Runtime, if the answer is one.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump(request, self._process.stdin)
        self._process.stdin.flush()
        error, answer = pickle.load(self._process.stdout)
        if error:
            raise getattr(ort, error, ValueError)(answer)
        return answer


@functools.cache
def _server(process: int) -> _Server:
    """The server of a process, which a fork does not share."""
    return _Server()
