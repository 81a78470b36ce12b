"""Lower implementations to dispatches by IREE's flow phase, and separate them for stitching.

Each layer is lowered by itself, so nothing fuses across layers, and measured code is shipped code. The header (device
and affinity) is the same for all layers of a target.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sartor.codegen.ir.layer import BF16
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, KernelSource
from sartor.codegen.mlir.before_lowering.bfloat_conversions import convert_by_floats
from sartor.codegen.mlir.before_lowering.guarded_divisions import guard_divisions
from sartor.codegen.mlir.before_lowering.index_constants import index_constants
from sartor.codegen.mlir.before_lowering.nearest_even import round_by_adding
from sartor.codegen.mlir.before_lowering.open_arguments import imported_types, take_out_views
from sartor.codegen.mlir.before_lowering.vulkan_defects import avoid_defects
from sartor.codegen.mlir.before_lowering.widened_operands import drop_barriers
from sartor.codegen.mlir.iree_compiler import flags_for, ir, translate
from sartor.codegen.mlir.operations import symbol
from sartor.codegen.mlir.whole_vectors import divide_by_vectors, masks_slowly
from sartor.errors import CompileError

_STORED = re.compile(r"util\.global\.store [^\n]*@([A-Za-z_$][\w$.]*)")
_REFERENCE = re.compile(r"@([A-Za-z_$][\w$.]*)")
_TRIVIAL = "util.func public @trivial(%arg0: tensor<4xf32>) -> tensor<4xf32> { util.return %arg0 : tensor<4xf32> }"


@dataclass(frozen=True)
class DispatchCode:
    """One implementation after the flow phase.

    Attributes:
        function: ``util.func private`` that dispatches.
        companions: executables and globals it refers to, in module order.
    """

    function: str
    companions: tuple[str, ...]

    @property
    def text(self) -> str:
        return "\n".join((*self.companions, self.function))


@functools.cache
def module_header(target: Target) -> tuple[str, str]:
    """Attributes of a flow module for ``target``, and the globals that name its device.

    It is asked for with every compilation, and IREE takes a tenth of a second to tell it.
    """
    with ir.Context():
        module = ir.Module.parse(translate(on_device(_TRIVIAL, target), target.flags, to="flow"))
        attributes = ", ".join(
            f"{named_attribute.name} = {named_attribute.attr}"
            for named_attribute in _named_attributes(module.operation)
        )
        devices = [str(view) for view in module.body.operations if view.operation.name == "util.global"]
    return attributes, "\n".join(devices)


def on_device(source: str, target: Target) -> str:
    """A module's text in source dialects with the device that it is compiled for, where flags cannot name it."""
    if target.written_out is None:
        return source
    device = f'#hal.device.target<"{target.device}", [{target.written_out}]>'
    return f"module attributes {{hal.device.targets = [{device}]}} {{\n{source}\n}}"


@functools.cache
def executable_target(target: Target) -> str:
    """The attribute of the target's executables.

    Raises:
        ValueError: if there is not exactly one.
    """
    _, devices = module_header(target)
    targets = re.findall(r"\[(#hal\.executable\.target<.*>)\]", devices)
    if len(targets) != 1:
        raise ValueError(f"{target} does not have exactly one format of executables")
    return str(targets[0])


def _named_attributes(op: ir.Operation) -> Iterator[ir.NamedAttribute]:
    for index in range(len(op.attributes)):
        yield op.attributes[index]


def lower(implementations: Mapping[str, Implementation], target: Target) -> dict[str, DispatchCode]:
    """Lower implementations to dispatches, all in one run of the compiler.

    Args:
        implementations: by the symbol their function is to have; symbols are plain identifiers.
        target: what to lower for.

    Raises:
        CompileError: if any of them does not lower; the caller finds out which by lowering them one by one.
    """
    kernels = {
        name: _kernel_code(name, implementation.body, _written(implementation.kernel))
        for name, implementation in implementations.items()
        if implementation.kernel
    }
    others = {name: implementation for name, implementation in implementations.items() if not implementation.kernel}
    if not others:
        return kernels
    source = on_device("\n".join(_renamed(other.body, name) for name, other in others.items()), target)
    if target.is_cpu:
        source = guard_divisions(round_by_adding(source))
    with ir.Context():
        source = _without_defects(source, target)
        types = imported_types(source) if any(other.symbols for other in others.values()) else {}
        module = ir.Module.parse(translate(source, (*target.flags, *flags_for(source)), to="flow"))
        drop_barriers(module)
        if masks_slowly(target):
            divide_by_vectors(module, target)
        if types:
            take_out_views(module, types)
        return {**kernels, **_split(module, set(others))}


def _without_defects(source: str, target: Target) -> str:
    """A module of which IREE's code for the target is right."""
    edits = [index_constants] if "linalg.index" in source else []
    if target.is_cpu and "itofp" in source and BF16 in source:
        edits.append(convert_by_floats)
    if target.is_vulkan:
        edits.append(avoid_defects)
    if not edits:
        return source
    try:
        module = ir.Module.parse(source)
    except ir.MLIRError as error:
        raise CompileError(f"the module is not valid: {error}") from None
    for edit in edits:
        edit(module)
    return str(module)


def _written(kernel: KernelSource) -> tuple[str, ...]:
    try:
        return kernel.executables()
    except ValueError as error:
        raise CompileError(f"a kernel cannot be written: {error}") from None


def _kernel_code(name: str, body: str, executables: tuple[str, ...]) -> DispatchCode:
    """Rename a kernel, which is a dispatch already; all symbols of a module must differ, as executables are linked by
    them."""
    own = {symbol for executable in executables for symbol in _REFERENCE.findall(executable)}

    def rename(text: str) -> str:
        return _REFERENCE.sub(lambda match: f"@{name}_{match[1]}" if match[1] in own else match[0], text)

    return DispatchCode(rename(_private(_renamed(body, name))), tuple(map(rename, executables)))


def _renamed(body: str, name: str) -> str:
    """The function under another symbol, without the wrapper that IREE adds to public functions."""
    head, brace, rest = body.partition(" {\n")
    if "@layer(" not in head:
        raise CompileError("an implementation has no function @layer")
    return head.replace("@layer(", f"@{name}(", 1) + " attributes {iree.abi.stub}" + brace + rest


def _split(module: ir.Module, symbols: set[str]) -> dict[str, DispatchCode]:
    functions: dict[str, str] = {}
    others: dict[str, str] = {}
    initialisers: dict[str, frozenset[str]] = {}
    for view in module.body.operations:
        op = view.operation
        text = str(op.get_asm(use_local_scope=True))
        if op.name == "util.func" and symbol(op) in symbols:
            functions[symbol(op)] = _private(text)
        elif "sym_name" in op.attributes:
            others[symbol(op)] = text
        elif op.name == "util.initializer":
            initialisers[text] = frozenset(_STORED.findall(text))
    return {name: _with_companions(name, text, others, initialisers) for name, text in functions.items()}


def _private(function: str) -> str:
    text = function.replace("util.func public", "util.func private", 1)
    return re.sub(r" attributes \{iree\.abi\.stub\}", "", text, count=1)


def _with_companions(
    name: str, function: str, others: Mapping[str, str], initialisers: Mapping[str, frozenset[str]]
) -> DispatchCode:
    """The function with the executables and globals it refers to, under names that no other implementation uses.

    Constants that IREE computes once are globals, whose initialisers have no names: ``initialisers`` has the globals
    that each stores, by its text.
    """
    needed: set[str] = set()
    pending, used = [function], dict.fromkeys(initialisers, False)
    while pending:
        name_of_companion = {
            name_of_companion for name_of_companion in _REFERENCE.findall(pending.pop()) if name_of_companion in others
        } - needed
        needed |= name_of_companion
        pending.extend(others[name_of_companion] for name_of_companion in name_of_companion)
        for text, stored in initialisers.items():
            if not used[text] and not stored.isdisjoint(name_of_companion):
                used[text] = True
                pending.append(text)
    kept = [other for other in others if other in needed and not other.startswith("__device")]
    texts = [*(others[name_of_kept] for name_of_kept in kept), *(text for text in initialisers if used[text])]
    foreign = [name_of_kept for name_of_kept in kept if not name_of_kept.startswith(f"{name}_")]

    def rename(text: str) -> str:
        return _REFERENCE.sub(lambda match: f"@{_own(match.group(1), name, foreign)}", text)

    return DispatchCode(rename(function), tuple(map(rename, texts)))


def _own(reference: str, name: str, foreign: list[str]) -> str:
    """Prefix a reference to a foreign companion with ``name``; exports, named after their executable, must differ
    too."""
    inside = any(
        reference == name_of_foreign or reference.startswith(f"{name_of_foreign}_") for name_of_foreign in foreign
    )
    return f"{name}_{reference}" if inside else reference
