"""Errors for the user: one sentence each, with an exit code by kind."""

from __future__ import annotations

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells define it."""


class SartorError(Exception):
    """Base of every error that the command line reports as one sentence."""

    exit_code = 1


class UsageError(SartorError):
    """An option of the command line, or a file that the user named, is not valid."""

    exit_code = 2


class UnsupportedModelError(SartorError):
    """The model is not valid ONNX, or contains something that cannot be imported."""

    exit_code = 3


class CompileError(SartorError):
    """IREE's compiler rejected its input or crashed."""

    exit_code = 4


class DisturbedError(CompileError):
    """A worker was killed, stopped or starved from outside, so the result of its job is unknown."""


class WrongOutputsError(CompileError):
    """Every module that was built computes something else than ONNX Runtime."""


class InfeasibleError(SartorError):
    """No plan meets the constraints."""

    exit_code = 5


class DeviceError(SartorError):
    """A device is missing or failed while it ran."""

    exit_code = 6
