"""Runs onnxslim on the model in a separate process, which isolates crashes, memory use and output."""

from __future__ import annotations

import logging
import math
import subprocess
import sys
import tempfile
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from google.protobuf.message import DecodeError, EncodeError
from onnx import ModelProto, TensorProto, checker, helper

from sartor.onnx_model.graphs.infer import infer_shapes
from sartor.onnx_model.graphs.names import producer_names, restore_names
from sartor.onnx_model.graphs.walk import nodes
from sartor.onnx_model.preparing import simplify_worker
from sartor.onnx_model.rewrites.control_flow import resolve_sequences
from sartor.onnx_model.rewrites.structure.drop_unused import drop_unused
from sartor.tuning.workers.starting.copies import Copy, copied

_log = logging.getLogger(__name__)

# Of a processor, on any machine about ten times what it takes. Some models would keep it busy for ever, as
# nested Concats that it flattens.
_LIMIT_SECONDS = 25.0
_SECONDS_PER_NODE = 0.05
# Beside other programs it is waited for so many times as long.
_PATIENCE = 8
_MOST_SAID = 200
_WEIGHT_ELEMENTS = 2**10


def simplify(model: ModelProto, process: SimplifyProcess | None = None) -> tuple[str, ...]:
    """Merge reshapes, slices, transposes and equal subexpressions; returns the names of the removed nodes.

    Node names are kept, also where onnxslim replaces nodes. Inputs and outputs do not change. If onnxslim fails,
    crashes, takes too long or returns another signature, a warning is logged and the model does not change.

    A model with sequences does not change either. It is refused later, and onnxslim would look for the shape of a
    sequence for ever where a tensor is wanted.

    Args:
        model: changed in place.
        process: an already running process; None starts one.
    """
    if any(node.op_type in resolve_sequences.OPERATORS and not node.domain for node in nodes(model)):
        return ()
    light = weights_as_inputs(model)
    simplified = _run_worker(light) if process is None else process.simplified(light)
    if simplified is None:
        return ()
    before = producer_names(model)
    restore_names(simplified, before)
    _take_graph(model, simplified)
    present = {node.name for node in model.graph.node}
    return tuple(name for name in dict.fromkeys(before.values()) if name not in present)


def weights_as_inputs(model: ModelProto) -> ModelProto:
    """A copy of the model with weights as inputs: onnxslim does not need their values, which can be gigabytes."""
    light = ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    graph = light.graph
    graph.name = model.graph.name
    for field in ("node", "input", "output", "value_info"):
        getattr(graph, field).extend(getattr(model.graph, field))
    for tensor in model.graph.initializer:
        if _is_weight(tensor):
            graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
        else:
            graph.initializer.append(tensor)
    return light


def _is_weight(tensor: TensorProto) -> bool:
    return math.prod(tensor.dims) > _WEIGHT_ELEMENTS


class OnnxslimError(Exception):
    """What ended onnxslim."""


class SimplifyProcess(AbstractContextManager["SimplifyProcess"]):
    """A process that runs onnxslim. It imports onnxslim right away, as that takes longer than to simplify most models.

    It serves one model. Leaving the context ends it.

    Args:
        copies: whether it is a copy of this process; see ``may_copy``.

    Attributes:
        has_failed: whether a model was left as it was, because it could not be simplified.
    """

    has_failed = False

    def __init__(self, *, copies: bool = False) -> None:
        self._process: subprocess.Popen[bytes] | Copy | None = None
        # If the process cannot be started, ``simplified`` warns.
        with suppress(OSError):
            self._process = copied(simplify_worker.serve_copy, leads=False) if copies else _program()

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def simplified(self, model: ModelProto) -> ModelProto | None:
        """Let onnxslim simplify ``model``; returns None and logs a warning if that fails."""
        result, problem = None, ""
        try:
            result = self.run(model, _LIMIT_SECONDS + _SECONDS_PER_NODE * len(model.graph.node))
            problem = _difference(model, result)
        except OnnxslimError as error:
            problem = f"failed ({error})"
        except (OSError, subprocess.SubprocessError, DecodeError, EncodeError, ValueError) as error:
            problem = f"could not be run ({type(error).__name__})"
        if problem:
            _log.warning("the model is not simplified: onnxslim %s", problem)
            self.has_failed = True
        return None if problem else result

    def run(self, model: ModelProto, seconds: float) -> ModelProto:
        """Let onnxslim work on ``model``, unchecked, for so many seconds of a processor.

        Raises:
            OnnxslimError: if it fails, or needs longer.
            OSError, subprocess.SubprocessError, DecodeError, EncodeError, ValueError: if it cannot be run.
        """
        if self._process is None:
            raise FileNotFoundError(sys.executable)
        with tempfile.TemporaryDirectory(prefix="sartor-") as folder:
            Path(folder, simplify_worker.SOURCE).write_bytes(model.SerializeToString())
            start = simplify_worker.start(folder, seconds)
            _, printed = self._process.communicate(start, timeout=_PATIENCE * seconds)
            if code := self._process.returncode:
                # Of a traceback the last line is the error.
                last = printed.decode(errors="replace").strip().rpartition("\n")[2]
                raise OnnxslimError(last[:_MOST_SAID] or str(code))
            return ModelProto.FromString(Path(folder, simplify_worker.TARGET).read_bytes())


def _program() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", simplify_worker.__name__]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def _run_worker(model: ModelProto) -> ModelProto | None:
    with SimplifyProcess() as process:
        return process.simplified(model)


def _difference(model: ModelProto, simplified: ModelProto) -> str:
    """The reason why ``simplified`` cannot replace ``model``; empty if it can."""
    if [value.name for value in model.graph.output] != [value.name for value in simplified.graph.output]:
        return "changed the outputs"
    if {value.name for value in simplified.graph.input} - {value.name for value in model.graph.input}:
        return "added inputs"
    try:
        checker.check_model(simplified)
    except (checker.ValidationError, ValueError):
        return "made it invalid"
    return ""


def _take_graph(model: ModelProto, simplified: ModelProto) -> None:
    """Take over the simplified graph, except for the signature, which keeps even unused inputs."""
    graph, new = model.graph, simplified.graph
    del graph.node[:]
    graph.node.extend(new.node)
    for index in reversed(range(len(graph.initializer))):
        if not _is_weight(graph.initializer[index]):
            del graph.initializer[index]
    graph.initializer.extend(new.initializer)
    drop_unused(model)
    # onnxslim describes some values without a shape. The importer would take them for scalars.
    del graph.value_info[:]
    infer_shapes(model)
