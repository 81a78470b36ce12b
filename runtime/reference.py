"""Other runtimes on the same model and feeds: ONNX Runtime as the reference, and OpenVINO for comparison."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import TIMEOUT_MAX, Event, Thread
from typing import Any

import numpy as np
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from sartor.errors import ReferenceFailedError, UnsupportedModelError, UsageError
from sartor.runtime.driver.counts import cut_outputs, find_cuts
from sartor.runtime.driver.signature import Array

ORT_ERRORS = (
    ort_errors.EPFail,
    ort_errors.Fail,
    ort_errors.InvalidArgument,
    ort_errors.InvalidGraph,
    ort_errors.InvalidProtobuf,
    ort_errors.NoSuchFile,
    ort_errors.NotImplemented,
    ort_errors.RuntimeException,
)
"""ONNX Runtime's exceptions, which have no common base class."""
_ORT_ERROR_ONLY = 3
# What ONNX Runtime's messages say of a node, when it runs it and when it loads it.
_NODES = (
    re.compile(r"while running (?P<operator>\S+) node\. Name:'(?P<name>.*?)' Status Message: (?P<reason>.*)"),
    re.compile(r"Node \((?P<name>.*?)\) Op \((?P<operator>\S+)\) (?:\[\w+\] )?(?P<reason>.*)"),
    re.compile(r'In Node, \("(?P<name>.*?)", (?P<operator>\w+), .*?, Error (?P<reason>.*)'),
)
# Its own kind of error, its file and line, the function there.
_CODE = re.compile(
    r"\[ONNXRuntimeError\] : \d+ : \w+ : (?:Load model from .*? failed: ?)?|Exception during initialization: "
)
_CHECK = re.compile(r"(?P<condition>.+?) was false\.\s*(?P<reason>.*)")
_PLACE = re.compile(
    r"\S*\.(?:cc|h|cpp|hpp):\d+ "
    r"(?:[^()]*onnxruntime::[^()]*\([^()]*\)(?: const)?(?: \[with [^\]]*\])? |[\w:~<>]+(?:\(\))? )?"
)
# A run may take so many times its seconds while others have the processor: what waits without computing ends then.
_MOST_WAITING = 20
_LEAST_WAIT = 0.01
# What messages of a node that fails while it runs have in common. Others refuse the feeds.
_WHILE_RUNNING = "while running"
# ONNX Runtime 1.32 crashes where it then fuses a transposition with a MatMul of a part of a Split.
_CRASHING = "FuseFp16InitializerToFp32NodeTransformer"


class OnnxRuntimeReference:
    """ONNX Runtime's CPU provider as a callable from feeds to outputs.

    Where it fails with its graph optimisations, it runs without them: they turn some valid models into nodes that it
    refuses, as a filter that is dequantised along its input channels into a QLinearConv.
    """

    def __init__(
        self,
        model: Path | bytes,
        *,
        threads: int | None = None,
        optimises: bool = True,
        layouts: bool = True,
        is_timed: bool = False,
        cuts: bool = True,
        folder: Path | None = None,
    ) -> None:
        """Load a model.

        Args:
            model: path or content of an ONNX file.
            threads: threads within an operator; None for ONNX Runtime's default.
            optimises: whether all graph optimisations are on, as long as the model runs with them, or all off.
            layouts: whether they choose layouts of images, the last and longest of them.
            is_timed: whether it runs with its own settings, as its users run it: threads spin after a run, products by
                weights of 4 bits round their other operand, and the weights of f16 models are widened once and not in
                each run, though ONNX Runtime 1.32 crashes while it does so for some models. A failure with
                optimisations is one. Leave a pause before others are timed.
            cuts: whether outputs of a prepared model are cut to the counts beside them, as ``Session`` does.
            folder: of the weights that lie beside a model that is given by its content.

        Raises:
            UsageError: if ``threads`` is below 1.
            UnsupportedModelError: if ONNX Runtime does not load the model.
        """
        source = model if isinstance(model, bytes) else str(model)
        load = partial(_session, source, threads, spins=is_timed, folder=folder)
        plainly = partial(load, optimises=False, layouts=False) if optimises and not is_timed else None
        try:
            self._session = load(optimises=optimises, layouts=layouts)
        except UnsupportedModelError:
            if plainly is None:
                raise
            self._session, plainly = plainly(), None
        self._load_plainly = plainly
        self.input_names = [value.name for value in self._session.get_inputs()]
        self._names = [value.name for value in self._session.get_outputs()]
        self._cuts = cuts
        cuts_by_name = find_cuts(self._names) if cuts else {}
        hidden = {cut.counted for cut in cuts_by_name.values()}
        self.output_names = [name for index, name in enumerate(self._names) if index not in hidden]
        self.cut_names = frozenset(self._names[index] for index in cuts_by_name)

    def __call__(self, feeds: Mapping[str, Array], seconds: float = math.inf) -> list[Array]:
        """Run the model; returns all outputs in the model's order.

        Args:
            feeds: an array for each input.
            seconds: after which the run is given up, once the operator that is busy has ended. Time in which it does
                not get a processor does not count.

        Raises:
            UsageError: if the feeds do not fit the model, or running it fails.
            ReferenceFailedError: if it did not end in time.
        """
        try:
            with _ending_after(seconds) as options:
                outputs = self._run(feeds, options)
        except (*ORT_ERRORS, ValueError) as error:
            if options.terminate:
                raise ReferenceFailedError(f"ONNX Runtime did not end an inference within {seconds:.3g} s") from None
            raise UsageError(f"ONNX Runtime cannot run the model: {reason_of(error)}") from None
        for name, output in zip(self._names, outputs, strict=True):
            if output is None:
                raise UsageError(f"ONNX Runtime cannot run the model: it gives no value for the output '{name}'")
        return cut_outputs(self._names, outputs) if self._cuts else outputs

    def _run(self, feeds: Mapping[str, Array], options: Any) -> list[Array]:
        try:
            outputs = list(self._session.run(None, dict(feeds), options))
        except ORT_ERRORS as error:
            if options.terminate or self._load_plainly is None or _WHILE_RUNNING not in str(error):
                raise
            try:
                session = self._load_plainly()
            except UnsupportedModelError:
                raise error from None
            outputs = list(session.run(None, dict(feeds), options))
            self._session = session
        # A model that ran once will run again, and its content takes memory.
        self._load_plainly = None
        return outputs


@contextmanager
def _ending_after(seconds: float) -> Iterator[Any]:
    """Options of a run that ends with an error after some time, where it goes from one operator to the next.

    Time in which other programs had the processor, or the process was stopped, does not count, up to a limit.
    """
    options = onnxruntime.RunOptions()
    if _MOST_WAITING * seconds > TIMEOUT_MAX:
        yield options
        return
    ended, begun = Event(), time.monotonic()
    used = time.process_time()

    def end_late() -> None:
        left = seconds
        while not ended.wait(max(left, _LEAST_WAIT)):
            left = seconds - (time.process_time() - used)
            if left <= 0 or time.monotonic() - begun >= _MOST_WAITING * seconds:
                options.terminate = True
                return

    Thread(target=end_late, daemon=True).start()
    try:
        yield options
    finally:
        ended.set()


def reason_of(error: BaseException) -> str:
    """What ONNX Runtime refuses, without places in its own code, and with the node if it says which."""
    message = _first_line(error)
    named = next((match for pattern in _NODES if (match := pattern.search(message))), None)
    reason = _PLACE.sub("", _CODE.sub("", named["reason"] if named else message)).strip()
    if failed := _CHECK.fullmatch(reason):
        # Names of members end in an underscore.
        reason = failed["reason"] or f"it requires {re.sub(r'_(?!w)', '', failed['condition'])}"
    return f"node '{named['name']}' ({named['operator']}): {reason}" if named else reason


def _session(
    source: bytes | str, threads: int | None, *, optimises: bool, layouts: bool, spins: bool, folder: Path | None
) -> Any:
    options = _session_options(threads, optimises=optimises, layouts=layouts, spins=spins)
    if folder is not None and isinstance(source, bytes):
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder.absolute()))
    try:
        return onnxruntime.InferenceSession(
            source,
            options,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=[] if spins else [_CRASHING],
        )
    except ORT_ERRORS as error:
        raise UnsupportedModelError(f"ONNX Runtime cannot load the model: {reason_of(error)}") from None


def _session_options(threads: int | None, *, optimises: bool, layouts: bool, spins: bool) -> Any:
    if threads is not None and threads < 1:
        raise UsageError(f"ONNX Runtime needs at least 1 thread, but {threads} were asked for")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _ORT_ERROR_ONLY
    options.intra_op_num_threads = threads or 0
    options.inter_op_num_threads = 1
    if not optimises:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    elif not layouts:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    if not spins:
        # Workers may spin within a run, which is the default, but not after it, when something else runs.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "0")
    return options


class OpenVinoReference:
    """OpenVINO's CPU plugin as a callable from feeds to outputs."""

    def __init__(self, model: Path, *, threads: int | None = None, precision: str = "f32") -> None:
        """Load a model for low latency in one stream.

        Args:
            model: path of an ONNX file.
            threads: CPU threads; None for OpenVINO's default.
            precision: OpenVINO's inference precision, ``f32`` or ``bf16``.

        Raises:
            UsageError: if OpenVINO is not installed or ``threads`` is below 1.
            UnsupportedModelError: if OpenVINO does not load the model.
        """
        if threads is not None and threads < 1:
            raise UsageError(f"OpenVINO needs at least 1 thread, but {threads} were asked for")
        try:
            import openvino
        except ImportError:
            raise UsageError("OpenVINO is not installed; install it with: pip install 'sartor[peers]'") from None
        try:
            compiled = openvino.Core().compile_model(str(model), "CPU", _openvino_config(threads, precision))
        except RuntimeError as error:
            raise UnsupportedModelError(f"OpenVINO cannot load the model: {_first_line(error)}") from None
        self._request = compiled.create_infer_request()
        self._outputs = compiled.outputs

    def __call__(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Run the model; returns all outputs in the model's order, in memory that the next call overwrites.

        Raises:
            UsageError: if the feeds do not fit the model, or running it fails.
        """
        try:
            results = self._request.infer(dict(feeds), share_inputs=True, share_outputs=True)
        except RuntimeError as error:
            raise UsageError(f"OpenVINO cannot run the model: {_first_line(error)}") from None
        return [np.asarray(results[output]) for output in self._outputs]


def _openvino_config(threads: int | None, precision: str) -> dict[str, str]:
    config = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": "1",
        "INFERENCE_PRECISION_HINT": precision,
    }
    if threads is not None:
        config["INFERENCE_NUM_THREADS"] = str(threads)
    return config


def _first_line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
