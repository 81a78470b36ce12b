"""Translates the executables of a module apart from it, and each only once, whatever modules contain it.

IREE's passes before translation visit whole modules, bodies of kernels included, which they only simplify: a quarter of
a compilation. Translation knows nothing of the module around an executable. So bodies stay out of the module until
then, and what was translated for one module is used in others. An executable is translated from its text alone, so that
its line numbers, which are part of a module, are the same whether it was known or not, and so are all bytes.
"""

from __future__ import annotations

import functools
import hashlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from sartor.codegen.mlir.iree_compiler import (
    SERIALISED,
    SOURCES,
    TRANSLATED,
    Advance,
    Edit,
    bytecode,
    compiler_version,
    ir,
    write_module,
)
from sartor.codegen.mlir.machine_code import (
    UndividedModuleError,
    add_machine_code,
    bodies_of,
    empty,
    empty_module,
    executables_of,
)
from sartor.codegen.mlir.operations import symbol

_LOG = logging.getLogger(__name__)
# Bodies that were taken away are told apart by it, so that no pass takes two executables for the same.
_MARK = "sartor.body"
# The text of a constant of this kind is its name, which other constants may have.
_NAMED_CONSTANT = "dense_resource<"
# Increase it when translated code is made of the same text in another way.
_FORMAT = 1


class CodeStore(Protocol):
    """Translated executables of other modules, by the key of what they are made of."""

    def find(self, keys: Collection[str]) -> Mapping[str, bytes]:
        """Those of ``keys`` that there are."""

    def add(self, entries: Mapping[str, bytes]) -> None:
        """Keep some for others."""


@dataclass
class TranslatedApart:
    """The executables of one module, which are translated apart; made anew for each module.

    Attributes:
        flags: of the compiler.
        store: translated executables of other modules; None if there are none to be used.
        threaded: whether LLVM compiles them in threads, while the module around them is converted.
    """

    flags: Sequence[str]
    store: CodeStore | None = None
    threaded: bool = False
    _keys: dict[str, str | None] = field(default_factory=dict)
    _known: dict[str, bytes] = field(default_factory=dict)
    _pending: ir.Module | None = None

    def withhold(self, module: ir.Module) -> None:
        """Take away the bodies of a module's executables; those that are not known yet wait for their translation."""
        with_bodies = [executable for executable in executables_of(module) if bodies_of(executable)]
        self._await(module, with_bodies)
        for executable in with_bodies:
            for body in bodies_of(executable):
                body.attributes[_MARK] = executable.attributes["sym_name"]
                empty(body)

    def put_back(self, module: ir.Module, advance: Advance) -> str:
        """Replace the executables of a module by translated ones, also those that appeared since; returns the phase
        that the module is at then."""
        executables = executables_of(module)
        self._await(module, [executable for executable in executables if symbol(executable) not in self._keys])
        translated = self._translated(advance)
        for executable in executables:
            key, place = self._keys[symbol(executable)], ir.InsertionPoint(executable)
            if key in self._known:
                known = ir.Module.parse(self._known[key])
                executables_of(known)[0].clone(ip=place)
            else:
                translated[symbol(executable)].clone(ip=place)
            executable.erase()
        convert = partial(advance, module, TRANSLATED, SERIALISED)
        return SERIALISED if self.threaded and add_machine_code(module, convert, self.flags) else TRANSLATED

    def _await(self, module: ir.Module, executables: Sequence[ir.Operation]) -> None:
        """Look executables up, and put those that are not known where they are translated."""
        if self._pending is None:
            self._pending = empty_module(module)
        texts = {symbol(executable): str(executable.get_asm(use_local_scope=True)) for executable in executables}
        keys = {name: self._key(text) for name, text in texts.items()}
        self._keys |= keys
        if self.store is not None:
            self._known |= self.store.find({key for key in keys.values() if key is not None})
        for executable in executables:
            key, place = keys[symbol(executable)], ir.InsertionPoint(self._pending.body)
            if key is None:
                executable.clone(ip=place)
            elif key not in self._known:
                alone = ir.Module.parse(texts[symbol(executable)])
                executables_of(alone)[0].clone(ip=place)

    def _translated(self, advance: Advance) -> dict[str, ir.Operation]:
        """Translate what is not known, and keep it for other modules; by symbol."""
        pending = self._pending
        if pending is None or not executables_of(pending):
            return {}
        advance(pending, SOURCES, TRANSLATED)
        executables = {symbol(executable): executable for executable in executables_of(pending)}
        if self.store is not None:
            self.store.add(
                {key: _written(executable) for name, executable in executables.items() if (key := self._keys[name])}
            )
        return executables

    def _key(self, text: str) -> str | None:
        """The key of an executable; None if the text does not say all of it."""
        if _NAMED_CONSTANT in text:
            return None
        return hashlib.sha256(f"{_made_by(tuple(self.flags))}\n{text}".encode()).hexdigest()


@functools.cache
def _made_by(flags: tuple[str, ...]) -> str:
    return f"{_FORMAT} {compiler_version()} {flags}"


def _written(executable: ir.Operation) -> bytes:
    module = ir.Module.create()
    executable.clone(ip=ir.InsertionPoint(module.body))
    return bytecode(module.operation)


def write_divided(
    make: Callable[[], ir.Module],
    path: Path,
    flags: Sequence[str],
    store: CodeStore | None,
    edits: Mapping[str, Edit] | None = None,
) -> None:
    """Compile a module of dispatches for CPUs to a .vmfb, its executables by LLVM in threads if the module allows that.

    Args:
        make: makes the module, in the context that is current when it is called; twice if its code cannot be divided.
        path: the file, replaced if there is one.
        flags: session flags of ``iree-compile``.
        store: translated executables of other modules; None if there are none to be used.
        edits: changes the module after a phase, by its name.

    Raises:
        CompileError: with IREE's first diagnostic, or because the file cannot be written.
    """
    try:
        apart = TranslatedApart(flags, store, threaded=True)
        write_module(make, path, flags, start="flow", edits=edits, apart=apart)
    except UndividedModuleError as error:
        _LOG.info("LLVM compiles the executables in one thread: %s", error)
        write_module(make, path, flags, start="flow", edits=edits, apart=TranslatedApart(flags, store))
