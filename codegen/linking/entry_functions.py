"""The functions by which a module is called: one with fences, and one that waits. Both carry the manifest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sartor.codegen.linking.borrowed_inputs import as_own
from sartor.codegen.linking.entries import Entry, Port

MANIFEST_KEY = "sartor.manifest"
_FENCES = ("%wait: !hal.fence", "%signal: !hal.fence")


def entry_functions(entry: Entry, lines: Sequence[str], returned: Sequence[str], manifest: str) -> str:
    """The entry with coarse fences, and its synchronous wrapper; both carry the manifest.

    Args:
        entry: what it takes and gives; ``lines`` know the first input as ``%t0``, and so on.
        lines: what is computed.
        returned: values of the outputs.
        manifest: JSON text that both carry as reflection data; empty for none.
    """
    inputs, outputs = entry.inputs, entry.outputs
    reflection = f", iree.reflection = {{{quoted(MANIFEST_KEY)} = {quoted(manifest)}}}" if manifest else ""
    arguments = [f"%in{index}: !hal.buffer_view" for index in range(len(inputs))]
    views = ", ".join(["!hal.buffer_view"] * len(outputs))
    types = ", ".join(str(each.type) for each in outputs)
    many = f":{len(returned)}" if len(returned) > 1 else ""
    joined = [f"%b#{index}" if many else "%b" for index in range(len(returned))]
    exports = [
        f"%o{index} = hal.tensor.export {name} {quoted(each.name)} : {each.type} -> !hal.buffer_view"
        for index, (name, each) in enumerate(zip(joined, outputs, strict=True))
    ]
    exported = ", ".join(f"%o{index}" for index in range(len(returned)))
    return "\n".join(
        [
            f"util.func public @{entry.name}$async({', '.join([*arguments, *_FENCES])}) -> "
            f'({views}) attributes {{inlining_policy = #util.inline.never, iree.abi.model = "coarse-fences", '
            f"iree.abi.stub{reflection}}} {{",
            *_imports(inputs),
            *lines,
            f"%b{many} = hal.tensor.barrier join({', '.join(returned)} : {types}) => %signal : !hal.fence",
            *exports,
            f"util.return {exported} : {views}",
            "}",
            _synchronous(entry.name, len(inputs), len(returned), views, reflection),
        ]
    )


def _imports(inputs: Sequence[Port]) -> Iterator[str]:
    """The inputs ``%t0``, …, which layers may overwrite as if they were no one else's."""
    for index, each in enumerate(inputs):
        source = f"%in{index} {quoted(each.name)} : !hal.buffer_view -> {each.type}"
        yield f"%borrowed{index} = hal.tensor.import wait(%wait) => {source}"
        yield as_own(f"%t{index}", f"%borrowed{index}", each.type)


def _synchronous(name: str, inputs: int, outputs: int, views: str, reflection: str) -> str:
    arguments = ", ".join(f"%in{index}: !hal.buffer_view" for index in range(inputs))
    operands = ", ".join([*(f"%in{index}" for index in range(inputs)), "%null", "%fence"])
    types = ", ".join([*(["!hal.buffer_view"] * inputs), "!hal.fence", "!hal.fence"])
    many = f":{outputs}" if outputs > 1 else ""
    results = ", ".join(f"%r#{index}" if many else "%r" for index in range(outputs))
    return f"""util.func public @{name}({arguments}) -> ({views}) attributes {{iree.abi.stub{reflection}}} {{
  %null = util.null : !hal.fence
  %forever = arith.constant -1 : i32
  %first = arith.constant 0 : index
  %device = hal.devices.get %first : !hal.device
  %fence = hal.fence.create device(%device : !hal.device) flags("None") : !hal.fence
  %r{many} = util.call @{name}$async({operands}) : ({types}) -> ({views})
  %status = hal.fence.await until([%fence]) timeout_millis(%forever) flags("None") : i32
  util.return {results} : {views}
}}"""


def quoted(text: str) -> str:
    """``text`` as an MLIR string: all but plain printable ASCII as hexadecimal bytes."""
    escaped = "".join(chr(byte) if byte in _PLAIN_BYTES else f"\\{byte:02X}" for byte in text.encode())
    return f'"{escaped}"'


_PLAIN_BYTES = frozenset(range(0x20, 0x7F)) - frozenset(b'"\\')
