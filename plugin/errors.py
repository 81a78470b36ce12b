"""Errors for the user: one sentence each, with an exit code by kind."""

from __future__ import annotations

_PACKAGE = "sartor"

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells define it."""
READER_GONE = 141
"""Exit code where nobody reads the output any more, as of programs that the signal PIPE ends."""


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


class LateError(DisturbedError):
    """The time budget ended before something was compiled."""


class WrongOutputsError(CompileError):
    """Every module that was built computes something else than ONNX Runtime."""


class ReferenceFailedError(SartorError):
    """ONNX Runtime crashed or hung on the model, so that nothing can be compared with its results."""

    exit_code = 4


class InfeasibleError(SartorError):
    """No plan meets the constraints."""

    exit_code = 5


class SystemRefusedError(SartorError):
    """The operating system refuses something: a disk is full, a file may not be opened."""

    exit_code = 7


class DeviceError(SartorError):
    """A device is missing or failed while it ran."""

    exit_code = 6


class RewriteError(SartorError):
    """A model was rewritten to something that computes other results: a defect of Sartor."""

    exit_code = 8


class InternalError(SartorError):
    """An exception that nothing explains but a defect of Sartor."""

    exit_code = 70

    @classmethod
    def of(cls, error: BaseException, doing: str = "") -> InternalError:
        """What is said of an exception; ``doing`` is a clause about what went on, if that is known."""
        text = " ".join(f"{type(error).__name__}: {error}".removesuffix(": ").split())
        step = f" while {doing}" if doing else ""
        return cls(f"internal: {text}{step}, in {place_of(error)}; please report it, with the command and its model")


def place_of(error: BaseException) -> str:
    """Where an exception was raised: the innermost function of this package, with its module and line."""
    trace, place = error.__traceback__, "no function of sartor"
    while trace is not None:
        module = trace.tb_frame.f_globals.get("__name__", "")
        if module.partition(".")[0] == _PACKAGE:
            place = f"{module}.{trace.tb_frame.f_code.co_qualname} (line {trace.tb_lineno})"
        trace = trace.tb_next
    return place
