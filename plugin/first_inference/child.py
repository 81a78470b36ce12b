"""The fresh process whose first inference is timed: ``python child.py JOB``, with a ``Job`` as JSON.

It is run as a file, and loads only what the runtime needs that it times; so do users' programs. It writes its times to
standard output, in nanoseconds by ``time.perf_counter_ns``, which processes of a machine share.
"""

from __future__ import annotations

import time

_BEGUN = time.perf_counter_ns()

import json  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from collections.abc import Callable, Mapping  # noqa: E402
from typing import Any  # noqa: E402

# What takes longer to be brought into memory is timed as it is.
_SETTLE_SECONDS = 300.0
_OPENVINO = {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": "1", "INFERENCE_PRECISION_HINT": "f32"}

Run = Callable[[Mapping[str, Any]], object]
Load = Callable[[], Run]


def main() -> None:
    """Import a runtime, load a model, run it some times, and say when each was done."""
    job = json.loads(sys.argv[1])
    prepare_load = {"sartor": _sartor, "onnxruntime": _onnxruntime, "openvino": _openvino}[job["runtime"]]
    load, told = prepare_load(job)
    imported = time.perf_counter_ns()
    feeds = _feeds(job["feeds"])
    loading, taken = time.perf_counter_ns(), [time.process_time_ns()]
    run = load()
    loaded, ends = time.perf_counter_ns(), []
    for _ in range(job["runs"]):
        run(feeds)
        ends.append(time.perf_counter_ns())
        taken.append(time.process_time_ns())
    times = {"begun": _BEGUN, "imported": imported, "loading": loading, "loaded": loaded, "runs": ends}
    times["taken"] = taken
    print(json.dumps(times | told()), flush=True)
    # What a runtime does when it is torn down is not timed.
    os._exit(0)


def _feeds(described: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs, each from a file of its bytes."""
    import numpy as np

    if any(not hasattr(np, described_array["dtype"]) for described_array in described.values()):
        import ml_dtypes  # noqa: F401

    return {
        name: np.fromfile(described_array["file"], np.dtype(described_array["dtype"])).reshape(described_array["shape"])
        for name, described_array in described.items()
    }


def _sartor(job: Mapping[str, Any]) -> tuple[Load, Callable[[], dict[str, Any]]]:
    from sartor.runtime.driver.signature import Signature, TensorSpec
    from sartor.runtime.session import Session

    opened: list[Session] = []
    options = dict(job["options"])
    is_settled = options.pop("settled", False)
    if "signature" in options:
        entry, *values = options["signature"]
        inputs, outputs = (tuple(map(TensorSpec.read, value)) for value in values)
        options["signature"] = Signature(entry, inputs, outputs)

    def load() -> Run:
        session = Session(job["model"], keep_states=False, **options)
        opened.append(session)
        if is_settled:
            session.settle(_SETTLE_SECONDS)
        return lambda feeds: session.run(None, feeds)

    def told() -> dict[str, Any]:
        return {"steps": [[step.kind, step.begin, step.end, step.size] for step in opened[0].steps]}

    return load, told


def _onnxruntime(job: Mapping[str, Any]) -> tuple[Load, Callable[[], dict[str, Any]]]:
    import onnxruntime

    def load() -> Run:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = job["threads"]
        options.inter_op_num_threads = 1
        if saved := job["options"].get("save"):
            options.optimized_model_filepath = saved
            options.add_session_config_entry("session.save_model_format", "ORT")
        session = onnxruntime.InferenceSession(job["model"], options, providers=["CPUExecutionProvider"])
        return lambda feeds: session.run(None, feeds)

    return load, dict


def _openvino(job: Mapping[str, Any]) -> tuple[Load, Callable[[], dict[str, Any]]]:
    import openvino

    def load() -> Run:
        settings = _OPENVINO | {"INFERENCE_NUM_THREADS": str(job["threads"])}
        core = openvino.Core()
        if cache := job["options"].get("cache"):
            core.set_property({"CACHE_DIR": cache})
        request = core.compile_model(job["model"], "CPU", settings).create_infer_request()
        return lambda feeds: request.infer(feeds)

    return load, dict


if __name__ == "__main__":
    main()
