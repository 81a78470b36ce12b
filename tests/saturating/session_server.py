"""Program: opens and runs sessions of ONNX Runtime as ``emulated_sessions.py`` asks, until its input ends."""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any

import onnxruntime

from sartor.runtime.reference import ORT_ERRORS

Value = tuple[str, str, list[Any]]
"""Name, type and shape of an input or output."""


def _open(
    source: bytes | str, described: tuple[dict[str, Any], dict[str, str]], disabled: list[str]
) -> tuple[Any, list[Value], list[Value]]:
    options, (values, entries) = onnxruntime.SessionOptions(), described
    for name, value in values.items():
        is_level = name == "graph_optimization_level"
        setattr(options, name, getattr(onnxruntime.GraphOptimizationLevel, value) if is_level else value)
    for key, value in entries.items():
        options.add_session_config_entry(key, value)
    session = onnxruntime.InferenceSession(
        source, options, providers=["CPUExecutionProvider"], disabled_optimizers=disabled
    )
    inputs, outputs = (
        [(value.name, value.type, list(value.shape)) for value in found]
        for found in (session.get_inputs(), session.get_outputs())
    )
    return session, inputs, outputs


def _answer(request: tuple[Any, ...], sessions: list[Any]) -> Any:
    what, *arguments = request
    if what == "open":
        session, *values = _open(*arguments)
        sessions.append(session)
        return len(sessions) - 1, *values
    number, names, feeds = arguments
    return sessions[number].run(names, feeds)


def main() -> None:
    """Answer until the input ends."""
    # What ONNX Runtime prints must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sessions: list[Any] = []
    while True:
        try:
            request = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = "", _answer(request, sessions)
        except (*ORT_ERRORS, RuntimeError, TypeError, ValueError) as error:
            answer = type(error).__name__, str(error)
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    main()
