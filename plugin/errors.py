"""Errors that reach the user: one sentence each, and an exit code that tells their kind apart."""

from __future__ import annotations

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells give it."""


class SartorError(Exception):
    """Base of every error that the command line reports as one sentence."""

    exit_code = 1


class UsageError(SartorError):
    """The command line, an option or a file the user named is wrong."""

    exit_code = 2


class UnsupportedModelError(SartorError):
    """The model is not valid ONNX, or holds something that cannot be imported."""

    exit_code = 3


class CompileError(SartorError):
    """IREE's compiler rejected or crashed on what it was given."""

    exit_code = 4


class DisturbedError(CompileError):
    """A worker was killed, stopped or starved from outside: that says nothing of what it worked on."""


class InfeasibleError(SartorError):
    """No plan meets the constraints."""

    exit_code = 5


class DeviceError(SartorError):
    """A device is missing or failed while it ran."""

    exit_code = 6
