"""``python -m tools.workarounds [REWRITE...]``: which rewrites the installed IREE needs, each by a small model.

A rewrite is needed if IREE refuses its model without it, ends the process, or computes other results than ONNX Runtime.
With the rewrite the model has to be right, or the reproducer shows nothing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import ModelProto
from onnx.reference import ReferenceEvaluator
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from sartor.codegen.ir.target import Target
from sartor.devices import CPU
from sartor.frontend.stock_module import compile_stock, run_once
from sartor.tuning.workers.protocol import WorkerError
from tools.workarounds.reproducers import REPRODUCERS, Reproducer

_SECONDS = 120
_TOLERANCE = 1e-6
_MOST_SHOWN = 100
_SILENT = 4


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask for each rewrite; returns 1 if some are not needed, or a reproducer shows nothing."""
    parser = argparse.ArgumentParser(prog="python -m tools.workarounds", description=__doc__)
    parser.add_argument("rewrites", nargs="*", metavar="REWRITE", help="its function (default: all that have a model)")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if unknown := {*options.rewrites} - {*REPRODUCERS}:
        parser.error(f"no reproducer: {', '.join(sorted(unknown))}")
    if options.alone:
        for name in options.rewrites:
            for without in ((), (name,)):
                print(shown(REPRODUCERS[name], without), flush=True)
        return 0
    answers = [(name, _asked(name)) for name in options.rewrites or REPRODUCERS]
    left = [name for name, is_needed in answers if not is_needed]
    print(f"IREE {version('iree-base-compiler')}: {len(answers) - len(left)} of {len(answers)} rewrites are needed")
    return 1 if left else 0


def _asked(name: str) -> bool:
    """Whether a rewrite is needed; prints why. IREE may end the process, or not end itself."""
    command = [sys.executable, "-m", "tools.workarounds", "--alone", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        print(f"{name}: needed, as IREE does not end", flush=True)
        return True
    right, *without = done.stdout.splitlines() or [""]
    if right != "right":
        print(f"{name}: its model shows nothing: with the rewrite it is not right either: {right}", flush=True)
        return False
    reason = without[0] if without else f"the process ends with code {done.returncode}"
    print(f"{name}: {'not needed any more' if reason == 'right' else f'needed: {reason}'}", flush=True)
    return reason != "right"


def shown(reproducer: Reproducer, without: Collection[str]) -> str:
    """``right``, or what is wrong with a model that is prepared without some rewrites, in one line."""
    feeds = reproducer.feeds()
    with tempfile.TemporaryDirectory() as folder:
        model, module = Path(folder) / "model.onnx", Path(folder) / "model.vmfb"
        onnx.save(reproducer.model(), model)
        expected = _expected(reproducer.model(), feeds)
        failure = compile_stock(model, {}, Target.create(CPU), module, without=without)
        outputs = failure if failure is not None else run_once(module, feeds, CPU)
        if isinstance(outputs, WorkerError):
            return f"refused: {' '.join(str(outputs.error).split())[:_MOST_SHOWN]}"
    return _difference(outputs, expected)


def _expected(model: ModelProto, feeds: Mapping[str, np.ndarray]) -> Sequence[np.ndarray]:
    """What ONNX Runtime gives, or ONNX's own evaluator where that has no kernel."""
    try:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = _SILENT
        content = model.SerializeToString()
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        outputs: Sequence[np.ndarray] = session.run(None, dict(feeds))
    except (ort_errors.NotImplemented, ort_errors.Fail):
        outputs = [np.asarray(output) for output in ReferenceEvaluator(model).run(None, dict(feeds))]
    return outputs


def _difference(outputs: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> str:
    """How far outputs are from others, if further than rounding explains."""
    for output, other in zip(outputs, expected, strict=True):
        near = _near(output, other)
        if not near.all():
            index = tuple(np.argwhere(~near)[0])
            return f"wrong: {output[index]:.8g} in place of {other[index]:.8g}"
    return "right"


def _near(output: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Which elements differ by no more than rounding explains: of integers none that differ."""
    if other.dtype.kind != "f":
        return np.asarray(output == other)
    first, second = output.astype(np.float64), other.astype(np.float64)
    scale = np.max(np.abs(second), initial=0, where=np.isfinite(second)) or 1.0
    return np.isclose(first, second, rtol=_TOLERANCE, atol=_TOLERANCE * scale, equal_nan=True)


if __name__ == "__main__":
    sys.exit(main())
