"""The functions by which a module is called: one with fences, one that waits, and one that writes into given buffers.

The first two carry the manifest. The third costs its caller no allocation: its results lie where the caller wants them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sartor.codegen.ir.layer import I64
from sartor.codegen.linking.functions.borrowed_inputs import as_own
from sartor.codegen.linking.functions.entries import Entry
from sartor.codegen.linking.functions.open_sizes import OpenSizes
from sartor.codegen.linking.functions.quoted import quoted

MANIFEST_KEY = "sartor.manifest"
BOUND_SUFFIX = "$bound"
_APART_SUFFIX = "$apart"
_FENCES = ("%wait: !hal.fence", "%signal: !hal.fence")
NEVER_INLINED = "inlining_policy = #util.inline.never"
_STUB = 'iree.abi.model = "coarse-fences", iree.abi.stub'


def entry_functions(
    entry: Entry, lines: Sequence[str], returned: Sequence[str], manifest: str, *, is_whole: bool = True
) -> str:
    """The entry with coarse fences, its synchronous wrapper, and the entry that writes into given buffers.

    Args:
        entry: what it takes and gives; ``lines`` know the first input as ``%t0``, and so on.
        lines: what is computed.
        returned: values of the outputs.
        manifest: JSON text that both carry as reflection data; empty for none.
        is_whole: whether it computes the network rather than a segment, which callers do not call.
    """
    return "\n".join(
        [
            asynchronous(f"public @{entry.name}$async", entry, lines, returned, stub_attributes(manifest)),
            synchronous(entry.name, len(entry.inputs), len(returned), manifest),
            # Nobody can give buffers for outputs before their sizes are computed.
            *([bound_function(entry, lines, returned)] if is_whole and entry.length is None else []),
        ]
    )


def asynchronous(
    heading: str, entry: Entry, lines: Sequence[str], returned: Sequence[str], attributes: str = ""
) -> str:
    """A function with coarse fences.

    Args:
        heading: its visibility and symbol.
        entry: as for ``entry_functions``.
        lines: what is computed.
        returned: values of the outputs.
        attributes: of the function, further ones.
    """
    inputs, outputs, sizes = entry.inputs, entry.outputs, OpenSizes(entry)
    types = ", ".join(str(output.type) for output in outputs)
    many = f":{len(returned)}" if len(returned) > 1 else ""
    joined = [f"%b#{index}" if many else "%b" for index in range(len(returned))]
    imports = [*_imports(entry, sizes)]
    before = [*sizes.lines]
    exports = [
        f"%o{index} = hal.tensor.export {name} {quoted(output.name)} : {sizes.typed(output.type)} -> !hal.buffer_view"
        for index, (name, output) in enumerate(zip(joined, outputs, strict=True))
    ]
    exported = ", ".join(f"%o{index}" for index in range(len(returned)))
    return "\n".join(
        [
            f"{with_fences(heading, len(inputs), len(outputs), attributes)} {{",
            *sizes.read(),
            *before,
            *imports,
            *lines,
            # Of outputs, whose sizes layers may have computed.
            *sizes.lines[len(before) :],
            f"%b{many} = hal.tensor.barrier join({', '.join(returned)} : {types}) => %signal : !hal.fence",
            *exports,
            f"util.return {exported} : {views(len(outputs))}",
            "}",
        ]
    )


def bound_function(entry: Entry, lines: Sequence[str], returned: Sequence[str], *, is_public: bool = True) -> str:
    """A function that takes a buffer view for each input and then for each output, writes the latter, and waits."""
    taken = [f"%in{index}" for index in range(len(entry.inputs))]
    filled = [f"%to{index}" for index in range(len(returned))]
    symbol = f"{entry.name}{BOUND_SUFFIX}"
    aliases, sizes = list[str](), OpenSizes(entry)
    for index, (value, memory, port) in enumerate(zip(returned, filled, entry.outputs, strict=True)):
        aliases += [
            f"%memory{index} = hal.buffer_view.buffer<{memory} : !hal.buffer_view> : !hal.buffer",
            f"%a{index} = hal.tensor.alias wait(%wait) => {value} : {sizes.typed(port.type)} to %memory{index} : "
            "!hal.buffer",
        ]
    imports = [*_imports(entry, sizes)]
    written = ", ".join(f"%a{index}" for index in range(len(returned)))
    types = ", ".join(str(output.type) for output in entry.outputs)
    many = f":{len(returned)}" if len(returned) > 1 else ""
    computed = [
        "%wait = util.null : !hal.fence",
        *sizes.read(),
        *sizes.lines,
        *imports,
        *lines,
        *aliases,
        f"%b{many} = hal.tensor.barrier join({written} : {types}) => %signal : !hal.fence",
    ]
    function, called, _ = computed_apart(symbol, [*taken, *filled], [], computed)
    visibility, attributes = ("public", "iree.abi.stub") if is_public else ("private", NEVER_INLINED)
    heading = f"{visibility} @{symbol}({typed_views([*taken, *filled])})"
    stub = [f"util.func {heading} attributes {{{attributes}}} {{", *called, "util.return", "}"]
    return "\n".join([function, *stub])


def computed_apart(
    symbol: str,
    taken: Sequence[str],
    given: Sequence[str],
    lines: Sequence[str],
    fences: Sequence[str] = ("%signal",),
    numbers: Sequence[str] = (),
) -> tuple[str, list[str], list[str]]:
    """A function of its own for what is computed, which its caller waits for.

    In a function that branches, IREE 3.13 orders ops anew by the values that connect them alone: a wait in the same
    function came before what signals its fence, and so never ended.

    Args:
        symbol: of the caller.
        taken: buffer views that it takes.
        given: buffer views that ``lines`` define.
        lines: what is computed; they signal the fences.
        fences: their names, in both functions.
        numbers: arguments of type i64, in both functions.

    Returns:
        The function, the caller's lines that call it and wait, and the names of what it gives there.
    """
    name, results = f"@{symbol}{_APART_SUFFIX}", views(len(given))
    others = [*(f"{number}: i64" for number in numbers), *(f"{fence}: !hal.fence" for fence in fences)]
    arguments = ", ".join([typed_views(taken), *others]).removeprefix(", ")
    types = ", ".join([*["!hal.buffer_view"] * len(taken), *[I64] * len(numbers), *["!hal.fence"] * len(fences)])
    returned = f"util.return {', '.join(given)} : {results}" if given else "util.return"
    heading = f"private {name}({arguments}) -> ({results}) attributes {{{NEVER_INLINED}}}"
    function = "\n".join([f"util.func {heading} {{", *lines, returned, "}"])
    defined = {0: "", 1: "%given = "}.get(len(given), f"%given:{len(given)} = ")
    call = f"{defined}util.call {name}({', '.join([*taken, *numbers, *fences])}) : ({types}) -> ({results})"
    names = [f"%given#{index}" for index in range(len(given))] if len(given) > 1 else ["%given"][: len(given)]
    return function, [*new_fence(*fences), call, *await_fence(*fences)], names


def typed_views(names: Iterable[str]) -> str:
    """Arguments that are buffer views, by name."""
    return ", ".join(f"{name}: !hal.buffer_view" for name in names)


def new_fence(*names: str) -> list[str]:
    """Lines that define fences of the module's device."""
    return [
        "%first = arith.constant 0 : index",
        "%device = hal.devices.get %first : !hal.device",
        *(f'{name} = hal.fence.create device(%device : !hal.device) flags("None") : !hal.fence' for name in names),
    ]


def await_fence(*fences: str) -> list[str]:
    """Lines that wait for fences."""
    return [
        "%forever = arith.constant -1 : i32",
        f'%status = hal.fence.await until([{", ".join(fences)}]) timeout_millis(%forever) flags("None") : i32',
    ]


def _imports(entry: Entry, sizes: OpenSizes) -> Iterator[str]:
    """The inputs ``%t0``, …, which layers may overwrite as if they were no one else's."""
    for index, port in enumerate(entry.inputs):
        if entry.length is not None and entry.length.cuts(port):
            yield from sizes.given(index, port)
            continue
        kind = sizes.typed(port.type)
        source = f"%in{index} {quoted(port.name)} : !hal.buffer_view -> {kind}"
        yield f"%borrowed{index} = hal.tensor.import wait(%wait) => {source}"
        yield as_own(f"%t{index}", f"%borrowed{index}", kind)


def with_fences(heading: str, inputs: int, outputs: int, attributes: str = "") -> str:
    """The head of a function with coarse fences that takes ``%in0`` and so on, ``%wait`` and ``%signal``."""
    arguments = ", ".join([*(f"%in{index}: !hal.buffer_view" for index in range(inputs)), *_FENCES])
    return f"util.func {heading}({arguments}) -> ({views(outputs)}) attributes {{{NEVER_INLINED}{attributes}}}"


def stub_attributes(manifest: str) -> str:
    """The further attributes of a function that callers of the module call, which carries a manifest."""
    return f", {_STUB}{_reflection(manifest)}"


def views(count: int) -> str:
    """Types of so many tensors as callers pass them."""
    return ", ".join(["!hal.buffer_view"] * count)


def synchronous(name: str, inputs: int, outputs: int, manifest: str) -> str:
    """The wrapper of ``name``'s function with fences that waits until it is done; it carries the manifest."""
    arguments = typed_views(f"%in{index}" for index in range(inputs))
    operands = ", ".join([*(f"%in{index}" for index in range(inputs)), "%null", "%fence"])
    types = ", ".join([*(["!hal.buffer_view"] * inputs), "!hal.fence", "!hal.fence"])
    many = f":{outputs}" if outputs > 1 else ""
    results = ", ".join(f"%r#{index}" if many else "%r" for index in range(outputs))
    given, attributes = views(outputs), f"iree.abi.stub{_reflection(manifest)}"
    return "\n".join(
        [
            f"util.func public @{name}({arguments}) -> ({given}) attributes {{{attributes}}} {{",
            "%null = util.null : !hal.fence",
            *new_fence("%fence"),
            f"%r{many} = util.call @{name}$async({operands}) : ({types}) -> ({given})",
            *await_fence("%fence"),
            f"util.return {results} : {given}",
            "}",
        ]
    )


def _reflection(manifest: str) -> str:
    return f", iree.reflection = {{{quoted(MANIFEST_KEY)} = {quoted(manifest)}}}" if manifest else ""
