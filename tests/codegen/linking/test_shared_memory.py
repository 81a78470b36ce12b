"""Activations of open sizes share memory only where none is needed while another lies there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from sartor.codegen.linking import shared_memory
from sartor.codegen.linking.shared_memory import share_memory
from sartor.codegen.mlir.iree_compiler import ir, shared_context
from sartor.codegen.mlir.operations import defining_op, nested

Sizes = tuple[int, int]
# Activations are of a, 2a, b or a times b pages.
SIZES: list[Sizes] = [(1, 1), (3, 5), (64, 2), (2, 131)]
_PAGE = 64

HEAD = """
hal.executable private @k {
  hal.executable.variant public @v target(<"none", "none">) {
    hal.executable.export public @f ordinal(0) layout(#hal.pipeline.layout<bindings = [
      #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>)
  }
}
util.func public @main(%view: !hal.buffer_view, %fence: !stream.timepoint) -> !stream.timepoint {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c2 = arith.constant 2 : index
  %rows = hal.buffer_view.dim<%view : !hal.buffer_view>[0] : index
  %columns = hal.buffer_view.dim<%view : !hal.buffer_view>[1] : index
  %a = arith.muli %rows, %c64 : index
  %b = arith.muli %columns, %c64 : index
  %twice = arith.muli %a, %c2 : index
  %ab = arith.muli %a, %columns : index
"""


def module_of(parts: list[str], commands: str) -> str:
    """A function that allocates parts of these sizes, one behind the other, and runs commands on ``%m``."""
    lines, offset, offsets = [], "%c0", []
    for number, part in enumerate(parts):
        offsets.append(offset)
        lines.append(f"  %o{number} = arith.addi {offset}, {part} : index" if number else "")
        offset = f"%o{number}" if number else part
    for number, name in enumerate(offsets):
        commands = commands.replace(f"P{number}", f"{name} for {parts[number]}")
    total = "!stream.resource<transient>{" + offset + "}"
    return f"""{HEAD}{chr(10).join(lines)}
  %memory, %made = stream.resource.alloca uninitialized await(%fence) => {total} => !stream.timepoint
  %done = stream.cmd.execute await(%made) => with(%memory as %m: {total}) {{
{commands.replace("TYPE", total)}
  }} => !stream.timepoint
  %freed = stream.resource.dealloca await(%done) => %memory : {total} => !stream.timepoint
  util.return %freed : !stream.timepoint
}}"""


def run(*accesses: str) -> str:
    """A dispatch, given what it reads and writes, as ``wo P0``."""
    listed = ", ".join(f"{kind} %m[{part}] : TYPE" for kind, part in map(str.split, accesses))
    return f"stream.cmd.dispatch @k::@v::@f {{ {listed} }}"


class Memory:
    """What a block of memory holds while a module's commands run, page by page, with some sizes of its input."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes
        self._pages: dict[int, str] = {}
        self.largest = 0

    def trace(self, module: ir.Module) -> Iterator[tuple[str, ...]]:
        """For each access but those that only write, what the pages held that it read."""
        execute = next(op for op in nested(module.operation) if op.name == "stream.cmd.execute")
        total = next(op for op in nested(module.operation) if op.name == "stream.resource.alloca").operands[0]
        for number, view in enumerate(execute.regions[0].blocks[0].operations):
            together = [op for op in nested(view.operation) if op.name == "stream.cmd.dispatch"]
            reads, written = [], dict[int, str]()
            for op, kind, pages in ((writer, *access) for writer in together for access in self._accesses(writer)):
                assert not pages or max(pages) < self.number(total) // _PAGE
                self.largest = max(self.largest, *pages)
                if kind != shared_memory._WRITES:
                    reads.append(tuple(self._pages[page] for page in pages))
                if kind != 1:
                    assert not written.keys() & set(pages)
                    order = together.index(op)
                    written |= {page: f"{number}.{order}.{place}" for place, page in enumerate(pages)}
                    # What another command that runs at once reads may be gone.
                    self._pages |= {page: "unknown" for page in pages if len(together) > 1}
            yield from reads
            self._pages |= written

    def _accesses(self, op: ir.Operation) -> Iterator[tuple[int, range]]:
        kinds = [ir.IntegerAttr(kind).value for kind in ir.ArrayAttr(op.attributes["resource_accesses"])]
        for number, kind in enumerate(kinds):
            access = shared_memory._Access(op, number, 0, is_new=False)
            offset, length = (self.number(op.operands[access.operand(segment)]) for segment in (4, 5))
            yield kind, range(offset // _PAGE, (offset + length) // _PAGE)

    def number(self, value: ir.Value) -> int:
        op = defining_op(value)
        assert op is not None
        if op.name == "hal.buffer_view.dim":
            return self._sizes[ir.IntegerAttr(op.attributes["index"]).value]
        if op.name == "arith.constant":
            return int(ir.IntegerAttr(op.attributes["value"]).value)
        return shared_memory._RESULTS[op.name](*map(self.number, op.operands))


def traced(text: str, sizes: Sizes, *, shares: bool) -> tuple[list[tuple[str, ...]], int]:
    """What commands read, and the number of pages that they use."""
    with shared_context():
        module = ir.Module.parse(text)
        if shares:
            share_memory(module)
            assert module.operation.verify()
        memory = Memory(sizes)
        return [*memory.trace(module)], memory.largest + 1


CHAIN = module_of(
    ["%ab", "%a", "%twice", "%a", "%b"],
    "\n".join(
        [
            run("wo P0"),
            run("ro P0", "wo P1"),
            run("ro P1", "wo P2"),
            run("ro P2", "rw P1"),
            run("ro P1", "wo P3"),
            "stream.cmd.concurrent {",
            run("ro P3", "wo P2"),
            run("ro P3", "wo P4"),
            "}",
            run("ro P2", "ro P4", "wo P0"),
            run("ro P0", "wo P1"),
            run("ro P1"),
        ]
    ),
)
SHARED: Mapping[str, str] = {
    "a chain": CHAIN,
    "a value that is read late": module_of(
        ["%a", "%a", "%ab", "%b"],
        "\n".join(
            [run("wo P0"), run("ro P0", "wo P1"), run("ro P1", "wo P2"), run("ro P2", "wo P3"), run("ro P0", "ro P3")]
        ),
    ),
}


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("name", SHARED)
def test_commands_read_what_they_did_before_from_less_memory(name: str, sizes: Sizes) -> None:
    before, most = traced(SHARED[name], sizes, shares=False)
    after, least = traced(SHARED[name], sizes, shares=True)
    assert after == before
    assert least < most


def test_memory_that_is_shared_too_long_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    before, _ = traced(CHAIN, (3, 5), shares=False)
    monkeypatch.setattr(
        shared_memory._Life, "meets", lambda life, other: life.accesses[0].time == other.accesses[0].time
    )
    after, _ = traced(CHAIN, (3, 5), shares=True)
    assert after != before


WHOLE = run("wo P0"), run("ro P0", "wo P1"), run("ro P1", "wo P2"), run("ro P2")
LEFT: Mapping[str, list[str]] = {
    "a part of a part": [*WHOLE, run("ro P1").replace("P1", "%a for %b")],
    "two parts at once": [*WHOLE, run("ro P0").replace("P0", "%c0 for %twice")],
    "a place within a part": [*WHOLE, run("ro P0").replace("P0", "%twice for %a")],
    "a copy": [*WHOLE, "stream.cmd.copy %m[%c0], %m[%a], %a : TYPE -> TYPE", run("ro P1")],
}


@pytest.mark.parametrize("name", LEFT)
def test_memory_that_is_used_in_another_way_stays_as_it_is(name: str) -> None:
    with shared_context():
        module = ir.Module.parse(module_of(["%a", "%twice", "%ab"], "\n".join(LEFT[name])))
        text = str(module)
        share_memory(module)
        changed = [line for line in str(module).splitlines() if "stream.cmd" in line and line not in text]
        assert changed == []
