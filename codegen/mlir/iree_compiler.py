"""The one door to ``iree.compiler``: parsing, passes and compilation, with diagnostics as exceptions.

A crash of the compiler ends the process, so callers that compile risky code do so in a worker.
"""

from __future__ import annotations

import ctypes
import functools
import io
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

from iree.compiler import ir, passmanager  # noqa: TID251 the one place
from iree.compiler.api import Invocation, Output, Session, Source, ctypes_dl  # noqa: TID251 the one place
from iree.compiler.dialects import arith, gpu, llvm, math, memref, scf, vector  # noqa: TID251 the one place
from iree.compiler.extras import onnx_importer  # noqa: TID251 the one place
from iree.compiler.tools.import_onnx.importer_externalization_overrides import (  # noqa: TID251 the one place
    IREENodeImporter as WeightImporter,
)
from iree.compiler.tools.import_onnx.importer_externalization_overrides import (  # noqa: TID251 the one place
    ParamData,
)

from sartor.codegen.mlir.signal_handlers import keeping_signal_handlers
from sartor.errors import CompileError

__all__ = [
    "WIDE_FLAGS",
    "ParamData",
    "WeightImporter",
    "arith",
    "bytecode",
    "compile_made",
    "compile_module",
    "compile_part",
    "compiler_version",
    "flags_for",
    "gpu",
    "inlined",
    "inlined_module",
    "ir",
    "is_double",
    "llvm",
    "load_dialects",
    "mark_double",
    "math",
    "memref",
    "onnx_importer",
    "run_passes",
    "scf",
    "shared_context",
    "translate",
    "translate_bytecode",
    "vector",
    "write_module",
]

_MESSAGE_LIMIT = 600
_SEVERITY_ERROR = 2
# What comes from this phase was verified when it was parsed, as is what later phases make of it. Lowering ONNX needs
# more: invalid code is how IREE refuses some models.
_VERIFIED = "flow"
_LOWERED = "input"
# What sessions have no flag for. IREE infers devices of values along chains of operations, and by default gives up on
# long ones, as in DenseNet-121: "failed to solve for affinity analysis" (iree-org/iree #20923).
_OPTIONS_OF_THE_PROCESS = ("--iree-stream-affinity-solver-max-iterations=65536",)
# When this file is imported, since it is possible only once, and sessions are opened by several threads.
ctypes_dl._initializeGlobalCL("sartor", *_OPTIONS_OF_THE_PROCESS)


WIDE_FLAGS = ("--iree-input-demote-f64-to-f32=false",)
"""Flags with which float64 is computed in float64: by default it is in float32."""

_DOUBLE = re.compile(r"[x<]f64>")


def flags_for(source: str) -> tuple[str, ...]:
    """Flags that code needs beside those of its target: tensors of float64 that are in it are meant."""
    return WIDE_FLAGS if _DOUBLE.search(source) else ()


_DOUBLE_MARK = "sartor.double"


def mark_double(module: ir.Module) -> None:
    """Note in a module that tensors of float64 in it are meant, where its bytecode can tell (``is_double``)."""
    with module.context:
        module.operation.attributes[_DOUBLE_MARK] = ir.UnitAttr.get()


def is_double(bytecode: bytes) -> bool:
    """Whether tensors of float64 in a module are meant."""
    return _DOUBLE_MARK.encode() in bytecode


_Writer = Callable[[Invocation, Output], None]
_DiagnosticCallback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


def load_dialects() -> None:
    """Load the dialect whose operations layers consist of, which otherwise happens when one is first met, and takes a
    fifth of a second."""
    import_module("iree.compiler.dialects.linalg")


def compiler_version() -> str:
    """Version of the installed compiler wheel, part of every key under which results are stored."""
    return version("iree-base-compiler")


@functools.cache
def shared_context() -> ir.Context:
    """A context for small modules: creating one takes longer than rewriting a layer."""
    return ir.Context()


def _c_function(name: str, *argument_types: type) -> Callable[..., object]:
    """A function of IREE's stable C API that its Python wrapper leaves out."""
    function = getattr(ctypes_dl._dylib, name)
    function.argtypes, function.restype = argument_types, None
    return function  # type: ignore[no-any-return]


def _set_phase(invocation: Invocation, which: str, phase: str | None) -> None:
    if phase is not None:
        setter = _c_function(f"ireeCompilerInvocationSetCompile{which}Phase", ctypes.c_void_p, ctypes.c_char_p)
        setter(invocation._inv_p, phase.encode())


def _trust(invocation: Invocation) -> None:
    """Let passes not verify what they made, which takes a quarter to a third of the time and changes no byte."""
    _c_function("ireeCompilerInvocationSetVerifyIR", ctypes.c_void_p, ctypes.c_bool)(invocation._inv_p, False)


def _collect_errors(invocation: Invocation, sink: list[str]) -> object:
    """Route diagnostics into ``sink``; the returned callback must outlive the invocation."""

    def on_diagnostic(severity: int, message: int, size: int, _user: int) -> None:
        if severity >= _SEVERITY_ERROR:
            sink.append(ctypes.string_at(message, size).decode(errors="replace"))

    callback = _DiagnosticCallback(on_diagnostic)
    enable = _c_function(
        "ireeCompilerInvocationEnableCallbackDiagnostics",
        ctypes.c_void_p,
        ctypes.c_int,
        _DiagnosticCallback,
        ctypes.c_void_p,
    )
    enable(invocation._inv_p, 0, callback, None)
    return callback


def _read(invocation: Invocation, write: _Writer) -> bytes:
    output = Output.open_membuffer()
    try:
        write(invocation, output)
        return bytes(output.map_memory())
    except ValueError as error:
        # The buffer is a file without a name, whose size the system may limit.
        raise CompileError(f"IREE could not keep what it compiled: {error}; see `ulimit -f`") from None
    finally:
        output.close()


@dataclass(frozen=True)
class _Opened:
    """An invocation that is ready for a module, and the errors it has reported so far."""

    session: Session
    invocation: Invocation
    errors: list[str]

    def finish(self, ready: bool, write: Callable[[Invocation], None]) -> None:
        """Run the pipeline on the module, and write its result."""
        if not (ready and self.invocation.execute()):
            detail = self.errors[0] if self.errors else "no diagnostic was given"
            raise CompileError(f"IREE rejected the module: {detail.strip()[:_MESSAGE_LIMIT]}")
        write(self.invocation)


@contextmanager
def _opened_session(flags: Sequence[str]) -> Iterator[Session]:
    with keeping_signal_handlers(), Session() as session:
        try:
            session.set_flags(*flags)
        except ValueError as error:
            raise CompileError(f"IREE refused a flag: {error}") from None
        yield session


@contextmanager
def _invoked(session: Session, start: str | None, to: str | None) -> Iterator[_Opened]:
    invocation = session.invocation()
    errors: list[str] = []
    callback = _collect_errors(invocation, errors)
    _set_phase(invocation, "From", start)
    if start not in (None, _LOWERED):
        _trust(invocation)
    _set_phase(invocation, "To", to)
    yield _Opened(session, invocation, errors)
    invocation.close()
    del callback


def _run(source: bytes, flags: Sequence[str], start: str | None, to: str | None, write: _Writer) -> bytes:
    outputs: list[bytes] = []
    with _opened_session(flags) as session, _invoked(session, start, to) as opened:
        ready = opened.invocation.parse_source(Source.wrap_buffer(opened.session, source))
        opened.finish(ready, lambda invocation: outputs.append(_read(invocation, write)))
    return outputs[0]


Edit = Callable[[ir.Module], None]
Advance = Callable[[ir.Module, str, str], None]
"""Runs the part of the pipeline from the first phase to the second on a module, in place."""

SOURCES, TRANSLATED, SERIALISED = "executable-sources", "executable-targets", "hal"
"""The phases before and after each executable is translated, one by one, to what LLVM compiles, and after LLVM."""


class Apart(Protocol):
    """Translates the executables of one module apart from it."""

    def withhold(self, module: ir.Module) -> None:
        """Take away what the executables contain."""

    def put_back(self, module: ir.Module, advance: Advance) -> str:
        """Replace the executables of a module at ``SOURCES`` by translated ones; returns the phase that it is at
        then."""


def _as_it_is(_: ir.Module) -> None:
    """Change nothing."""


def write_module(
    make: Callable[[], ir.Module],
    path: Path,
    flags: Sequence[str],
    *,
    start: str,
    edits: Mapping[str, Edit] | None = None,
    apart: Apart | None = None,
) -> None:
    """Compile a module to a .vmfb file without copying its contents in memory, which may be gigabytes of weights.

    Args:
        make: makes the module, in the context that is current when it is called.
        path: the file, replaced if there is one.
        flags: session flags of ``iree-compile``.
        start: phase whose output the module is.
        edits: changes the module after a phase, by its name; in the order of the phases.
        apart: translates its executables; ``edits`` come before that then.

    Raises:
        CompileError: with IREE's first diagnostic, or because the file cannot be written.
    """
    edits = {_VERIFIED: _as_it_is, **(edits or {})} if start == _LOWERED else edits or {}
    with _opened_session(flags) as session:
        _compile(session, make, start, edits, apart, lambda opened: _write_file(opened.invocation, path, opened.errors))


def compile_made(make: Callable[[], ir.Module], flags: Sequence[str], *, start: str, apart: Apart) -> bytes:
    """Like ``write_module``, but returns the bytes of the .vmfb.

    Raises:
        CompileError: with IREE's first diagnostic.
    """
    outputs: list[bytes] = []
    with _opened_session(flags) as session:
        _compile(
            session,
            make,
            start,
            {},
            apart,
            lambda opened: outputs.append(_read(opened.invocation, Invocation.output_vm_bytecode)),
        )
    return outputs[0]


def _compile(
    session: Session,
    make: Callable[[], ir.Module],
    start: str,
    edits: Mapping[str, Edit],
    apart: Apart | None,
    write: Callable[[_Opened], None],
) -> None:
    context = session.context
    advance = partial(_advance, session)
    with context, ir.Location.unknown(context):
        module = make()
        if apart is not None:
            apart.withhold(module)
    for begin, end in itertools.pairwise([start, *edits]):
        advance(module, begin, end)
        edits[end](module)
    reached = [start, *edits][-1]
    if apart is not None:
        advance(module, reached, SOURCES)
        with context, ir.Location.unknown(context):
            reached = apart.put_back(module, advance)
    with _invoked(session, reached, None) as opened:
        opened.invocation.import_module(module.operation)
        opened.finish(True, lambda _: write(opened))


def _advance(session: Session, module: ir.Module, begin: str, end: str) -> None:
    with _invoked(session, begin, end) as opened:
        opened.invocation.import_module(module.operation)
        opened.finish(True, lambda _: None)


def compile_part(module: bytes, flags: Sequence[str], start: str, to: str) -> bytes:
    """Run part of the pipeline on the bytecode of a module, in a context of its own; returns bytecode.

    Raises:
        CompileError: with IREE's first diagnostic.
    """
    with _opened_session(flags) as session:
        with session.context, ir.Location.unknown(session.context):
            parsed = ir.Module.parse(module)
        _advance(session, parsed, start, to)
        return bytecode(parsed.operation)


def _write_file(invocation: Invocation, path: Path, errors: Sequence[str]) -> None:
    try:
        output = Output.open_file(str(path))
        invocation.output_vm_bytecode(output)
    except ValueError as error:
        detail = errors[0] if errors else str(error)
        raise CompileError(f"'{path}' cannot be written: {detail.strip()[:_MESSAGE_LIMIT]}") from None
    output.keep()
    output.close()


def translate(source: str | bytes, flags: Sequence[str], *, to: str, start: str | None = None) -> str:
    """Run part of IREE's pipeline and return the module as text.

    Args:
        source: MLIR text or bytecode.
        flags: session flags of ``iree-compile``.
        to: phase after which to stop, for example ``input`` or ``flow``.
        start: phase whose output ``source`` is; None for source dialects.

    Raises:
        CompileError: with IREE's first diagnostic.
    """
    return _run(_encoded(source), flags, start, to, Invocation.output_ir).decode()


def translate_bytecode(source: str | bytes, flags: Sequence[str], *, to: str) -> bytes:
    """Like ``translate``, but the result is bytecode, which keeps the locations.

    Raises:
        CompileError: with IREE's first diagnostic.
    """
    return _run(_encoded(source), flags, None, to, Invocation.output_ir_bytecode)


def compile_module(source: str | bytes, flags: Sequence[str], *, start: str | None = None) -> bytes:
    """Compile MLIR to the bytes of a .vmfb.

    Raises:
        CompileError: with IREE's first diagnostic.
    """
    return _run(_encoded(source), flags, start, None, Invocation.output_vm_bytecode)


def _encoded(source: str | bytes) -> bytes:
    """Text must end in a zero byte, bytecode must not."""
    return source.encode() + b"\0" if isinstance(source, str) else source


def inlined(text: str) -> bytes:
    """Bytecode of a module whose private functions are inlined where they are called.

    Raises:
        CompileError: if the text is not valid.
    """
    context = ir.Context()
    with context, ir.Location.unknown(context):
        return bytecode(inlined_module(text).operation)


def inlined_module(text: str) -> ir.Module:
    """Like ``inlined``, in the current context.

    Raises:
        CompileError: if the text is not valid.
    """
    try:
        module = ir.Module.parse(text)
    except ir.MLIRError as error:
        raise CompileError(f"the module is not valid: {error}") from None
    run_passes(module, "builtin.module(inline)")
    return module


def bytecode(op: ir.Operation) -> bytes:
    """A module as bytecode."""
    buffer = io.BytesIO()
    op.write_bytecode(buffer)
    return buffer.getvalue()


def run_passes(module: ir.Module, pipeline: str) -> None:
    """Run a textual pass pipeline on ``module`` in place.

    Raises:
        CompileError: if the pipeline does not parse or a pass fails.
    """
    try:
        with module.context:
            passmanager.PassManager.parse(pipeline).run(module.operation)
    except (ValueError, ir.MLIRError) as error:
        raise CompileError(f"the passes '{pipeline}' failed: {error}") from None
