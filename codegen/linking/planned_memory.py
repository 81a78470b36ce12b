"""The memory that IREE plans for a module, found by running IREE's pipeline until memory is planned.

Which values lie in memory at once, and where, depends on more than their sizes: IREE runs independent dispatches side
by side, writes parts of a concatenation where they are joined, and packs what is left into one buffer first come first
served, with gaps. So IREE itself is asked. Up to that phase nothing looks into kernels: they are left out, and planning
takes seconds where compiling takes minutes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sartor.codegen.ir.layer import ENTRY, I32
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation
from sartor.codegen.linking.known_sizes import KnownSizes
from sartor.codegen.linking.shared_memory import PHASE, has_open_sizes, with_shared_memory
from sartor.codegen.mlir.iree_compiler import inlined, translate

_DISPATCH = re.compile(
    r"flow\.dispatch @(?P<name>[\w$.]+)::@[\w$.]+::@[\w$.]+(?:\[(?P<workload>[^\]]*)\])?\([^)]*\) *: "
    r"\((?P<types>[^)]*)\) -> (?P<results>.*)"
)
# Attributes, and sizes that are known only when the module runs.
_BRACES = re.compile(r" ?\{[^{}]*\}")
_ALLOCATED = re.compile(
    r"(%[\w$.]+), %[\w$.]+ = stream\.resource\.alloca .*!stream\.resource<\w+>\{(%[\w$.]+)\} => !stream\.timepoint"
)
_FREED = re.compile(r"stream\.resource\.dealloca .*=> (%[\w$.]+) : !stream\.resource")
_ENTRY = f"util.func public @{ENTRY}$async("


def without_code(implementation: Implementation) -> Implementation:
    """The implementation with a kernel that does nothing in place of its own."""
    if implementation.kernel is None:
        return implementation
    return replace(implementation, kernel=_Hollow(implementation.body))


@dataclass(frozen=True)
class _Hollow:
    """A kernel with the interface of the one that a body dispatches, and no code."""

    body: str

    @property
    def identity(self) -> str:
        return f"hollow {self.body}"

    def executables(self) -> tuple[str, ...]:
        match = _DISPATCH.search(_BRACES.sub("", self.body))
        if match is None:
            raise ValueError("the body dispatches no kernel")
        name, types = match["name"], match["types"].split(", ")
        constants = types.count(I32)
        # A result that overwrites an argument shares its buffer, and is named like it.
        results = [part for part in match["results"].strip("() ").split(", ") if not part.startswith("%")]
        buffers = len(types) - constants + len(results)
        layout = ", ".join(["#hal.pipeline.binding<storage_buffer>"] * buffers)
        numbers = f"constants = {constants}, " if constants else ""
        layout = f"#hal.pipeline.layout<{numbers}bindings = [{layout}]>"
        export = f"hal.executable.export public @{name} ordinal(0) layout({layout})"
        workload = "".join(f", %w{index}: index" for index in range(len((match["workload"] or "").split())))
        return (
            f"""hal.executable private @{name} {{
  hal.executable.variant public @{name} target(<"none", "none">) {{
    {export} count(%d: !hal.device{workload}) -> (index, index, index) {{
      %c1 = arith.constant 1 : index
      hal.return %c1, %c1, %c1 : index, index, index
    }}
    builtin.module {{ func.func @{name}() {{ return }} }}
  }}
}}""",
        )


def planned_bytes(module: str, shapes: Sequence[Sequence[int]], target: Target) -> int | None:
    """The peak of what an inference allocates, with outputs and without inputs and weights.

    Args:
        module: stitched, at the flow level.
        shapes: of its inputs; of a module for any size the greatest, with which it allocates the most.
        target: what it is compiled for.

    Returns:
        Bytes; None if a size is not known before the module runs.

    Raises:
        CompileError: if it does not compile.
    """
    planned = translate(inlined(module), target.flags, to=PHASE, start="flow")
    return peak_of(with_shared_memory(planned) if target.is_cpu and has_open_sizes(module) else planned, shapes)


def peak_of(text: str, shapes: Sequence[Sequence[int]]) -> int | None:
    """The peak of what the entry function of a module at the stream level allocates if its inputs have these shapes;
    None if a size is not known."""
    sizes, live = KnownSizes(shapes), dict[str, int]()
    peak, is_entry = 0, False
    for line in text.splitlines():
        if line.lstrip().startswith("util.func "):
            is_entry, sizes, live = _ENTRY in line, KnownSizes(shapes), {}
        if not is_entry:
            continue
        sizes.read(line)
        if match := _ALLOCATED.search(line):
            if match[2] not in sizes.values:
                return None
            live[match[1]] = sizes.values[match[2]]
            peak = max(peak, sum(live.values()))
        elif match := _FREED.search(line):
            live.pop(match[1], None)
    return peak
