"""LLVM compiles the executables of a module in groups, each in a thread, while the module around them is converted.

IREE links all executables of a module into one, which LLVM compiles on one core: a third of the time in which a network
is built. So the module is converted with empty bodies, and each group is compiled as a module of its own. Then the
linked executable gets the code of the first group, and a copy of it that of each other group. IREE looks functions up
by their names when a module is loaded, so that only the executable differs in which each is looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from sartor.codegen.mlir.iree_compiler import SERIALISED, TRANSLATED, bytecode, compile_part, ir
from sartor.codegen.mlir.operations import nested, remap, source, symbol
from sartor.errors import CompileError

EXECUTABLE, VARIANT, BODY = "hal.executable", "hal.executable.variant", "builtin.module"
_EXPORT, _BINARY, _END = "hal.executable.export", "hal.executable.binary", "hal.executable.variant_end"
_GLOBAL, _INITIALISER, _LOAD, _STORE = "util.global", "util.initializer", "util.global.load", "util.global.store"
_CREATE, _LOOKUP = "hal.executable.create", "hal.executable.lookup.function"
# A module has the same groups wherever it is compiled, as their number shows in its bytes.
_GROUPS = 2
# Bytes of translated code, as bytecode, that are worth a thread: LLVM takes about a second for 150 kB.
_LEAST = 50_000


@dataclass(frozen=True)
class _Group:
    """Some executables of a module: the names of their functions, and a module of them alone as bytecode."""

    functions: frozenset[str]
    module: bytes


class UndividedModuleError(CompileError):
    """A module uses its executable in a way that does not let its code be divided."""


def add_machine_code(module: ir.Module, convert: Callable[[], None], flags: Sequence[str]) -> bool:
    """Compile the executables of a module in threads, in the module's context; returns False, with nothing done, if
    IREE has to compile them where they are.

    Args:
        module: its executables are translated.
        convert: takes the module from ``TRANSLATED`` to ``SERIALISED``.
        flags: of the compiler.

    Raises:
        UndividedModuleError: if the module is none of IREE's usual ones; it is of no use then.
        CompileError: with IREE's diagnostic.
    """
    executables = executables_of(module)
    # A single one is not linked; what chooses among variants, or sets constants, is not only in the code.
    if len(executables) < 2 or not all(map(_is_plain, executables)):
        return False
    groups = _taken(module, executables)
    with ThreadPoolExecutor(len(groups)) as threads:
        compiling = [threads.submit(compile_part, group.module, flags, TRANSLATED, SERIALISED) for group in groups]
        convert()
        compiled = [future.result() for future in compiling]
    _put_in(module, groups, [_binary(ir.Module.parse(text)).attributes["data"] for text in compiled])
    return True


def executables_of(module: ir.Module) -> list[ir.Operation]:
    """The executables of a module, in order."""
    return [view.operation for view in module.body.operations if view.operation.name == EXECUTABLE]


def bodies_of(executable: ir.Operation) -> list[ir.Operation]:
    """The code of an executable, for each of its variants."""
    return [child for variant in _variants(executable) for child in children(variant) if child.name == BODY]


def children(op: ir.Operation) -> list[ir.Operation]:
    """The operations of an operation's only block."""
    return [view.operation for view in op.regions[0].blocks[0].operations]


def attributes_of(op: ir.Operation) -> Iterator[ir.NamedAttribute]:
    """An operation's attributes."""
    for index in range(len(op.attributes)):
        yield op.attributes[index]


def empty_module(like: ir.Module) -> ir.Module:
    """A module of the same attributes, without operations."""
    module = ir.Module.create()
    for attribute in attributes_of(like.operation):
        module.operation.attributes[attribute.name] = attribute.attr
    return module


def empty(body: ir.Operation) -> None:
    """Take all operations out of the code of an executable."""
    for child in children(body):
        child.erase()


def _variants(executable: ir.Operation) -> list[ir.Operation]:
    return [child for child in children(executable) if child.name == VARIANT]


def _is_plain(executable: ir.Operation) -> bool:
    variants = _variants(executable)
    return len(variants) == 1 and {child.name for child in children(variants[0])} <= {_EXPORT, BODY, _END}


def _taken(module: ir.Module, executables: Sequence[ir.Operation]) -> list[_Group]:
    """The executables in groups that take LLVM about as long; in the module their bodies become empty."""
    modules = [_alone(module, [executable]) for executable in executables]
    sizes = [len(bytecode(part.operation)) for part in modules]
    # A function is looked up by its name, which must tell its group.
    count = max(1, min(_GROUPS, sum(sizes) // _LEAST)) if _are_named_apart(executables) else 1
    loads, members = [0] * count, [list[int]() for _ in range(count)]
    for index in sorted(range(len(sizes)), key=lambda index: -sizes[index]):
        least = loads.index(min(loads))
        loads[least] += sizes[index]
        members[least].append(index)
    groups = [_group(module, [executables[index] for index in sorted(member)]) for member in members]
    for executable in executables:
        for body in bodies_of(executable):
            empty(body)
    return groups


def _group(module: ir.Module, executables: Sequence[ir.Operation]) -> _Group:
    return _Group(frozenset(_functions(executables)), bytecode(_alone(module, executables).operation))


def _functions(executables: Sequence[ir.Operation]) -> list[str]:
    variants = [variant for executable in executables for variant in _variants(executable)]
    return [symbol(child) for variant in variants for child in children(variant) if child.name == _EXPORT]


def _are_named_apart(executables: Sequence[ir.Operation]) -> bool:
    functions = _functions(executables)
    return len({*functions}) == len(functions)


def _alone(module: ir.Module, executables: Sequence[ir.Operation]) -> ir.Module:
    """A module of some executables, which nothing removes because nothing uses them."""
    alone = empty_module(module)
    place = ir.InsertionPoint(alone.body)
    for executable in executables:
        executable.clone(ip=place).attributes["sym_visibility"] = ir.StringAttr.get("public")
    return alone


def _binary(module: ir.Module) -> ir.Operation:
    """The machine code of a module's only executable.

    Raises:
        UndividedModuleError: if there is not exactly one.
    """
    binaries = [
        child for executable in executables_of(module) for child in children(executable) if child.name == _BINARY
    ]
    return _only(binaries, "executables of machine code")


def _put_in(module: ir.Module, groups: Sequence[_Group], codes: Sequence[ir.Attribute]) -> None:
    """Give a module the machine code of its groups.

    Raises:
        UndividedModuleError: if it does not use its executable as IREE's modules do.
    """
    _binary(module).attributes["data"] = codes[0]
    if len(groups) == 1:
        return
    (linked,) = executables_of(module)
    users = [view.operation for view in module.body.operations if view.operation != linked]
    holder = _only([user for user in users if _holds_executable(user)], "variables that hold an executable")
    setters = [user for user in users if user.name == _INITIALISER and _stores(user, symbol(holder))]
    setter = _only(setters, "initialisers of an executable")
    lookups = [op for user in users for op in nested(user) if op.name == _LOOKUP]
    for number, (group, code) in enumerate(zip(groups[1:], codes[1:], strict=True), 1):
        copy = _copied(linked, number)
        held = _copied(holder, number)
        children(copy)[0].attributes["data"] = code
        # Behind what it was copied from: initialisers run in their order, and need what is before them.
        setting = setter.clone(ip=ir.InsertionPoint(setter))
        setting.move_after(setter)
        names = {symbol(linked): symbol(copy), symbol(holder): symbol(held)}
        _refer(setting, names)
        own = [
            lookup for lookup in lookups if any(path[-1] in group.functions for path in _references(lookup).values())
        ]
        _look_up_in(own, names)


def _copied(op: ir.Operation, number: int) -> ir.Operation:
    """A copy of an operation of a module under another name."""
    copy = op.clone(ip=ir.InsertionPoint(op))
    copy.attributes["sym_name"] = ir.StringAttr.get(f"{symbol(op)}_{number}")
    return copy


def _holds_executable(op: ir.Operation) -> bool:
    return op.name == _GLOBAL and str(ir.TypeAttr(op.attributes["type"]).value) == "!hal.executable"


def _stores(initialiser: ir.Operation, name: str) -> bool:
    stores = (op for op in nested(initialiser) if op.name == _STORE)
    return any([name] in _references(store).values() for store in stores)


def _references(op: ir.Operation) -> dict[str, list[str]]:
    """The attributes of an operation that name symbols: the path of names of each."""
    attributes = {attribute.name: attribute.attr for attribute in attributes_of(op)}
    kinds = ir.SymbolRefAttr, ir.FlatSymbolRefAttr
    return {
        name: ir.SymbolRefAttr(attribute).value
        for name, attribute in attributes.items()
        if isinstance(attribute, kinds)
    }


def _refer(op: ir.Operation, names: Mapping[str, str]) -> None:
    """Let the operations within ``op`` refer to other symbols of the module."""
    for inner in nested(op):
        for name, (first, *rest) in _references(inner).items():
            if first in names:
                inner.attributes[name] = ir.SymbolRefAttr.get([names[first], *rest])


def _look_up_in(lookups: Sequence[ir.Operation], names: Mapping[str, str]) -> None:
    """Look functions up in another executable, and call them there.

    Raises:
        UndividedModuleError: if the executable is not loaded from the variable that holds it.
    """
    loads: dict[ir.Value, ir.Value] = {}
    for lookup in lookups:
        linked = lookup.operands[0]
        if linked not in loads:
            load = source(linked)
            if load.name != _LOAD:
                raise UndividedModuleError(
                    f"a function is looked up in what '{load.name}' gives, and not in a variable"
                )
            other = load.clone(ip=ir.InsertionPoint(load))
            _refer(other, names)
            loads[linked] = other.results[0]
        _refer(lookup, names)
        for user in [lookup, *(use.owner.operation for use in lookup.results[0].uses)]:
            remap(user, {linked: loads[linked]})


def _only(ops: Sequence[ir.Operation], what: str) -> ir.Operation:
    if len(ops) != 1:
        raise UndividedModuleError(f"a compiled module has {len(ops)} {what}, expected one")
    return ops[0]
