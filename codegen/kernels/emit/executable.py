"""A kernel as an executable that a layer dispatches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sartor.codegen.ir.layer import I32, TensorType
from sartor.codegen.ir.machines.cuda import WARP
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.size_text import SizeText
from sartor.codegen.ir.sizes.dims import Symbol
from sartor.codegen.ir.target import Target, cpu_features
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.byte_stores import ByteAssembler, packs_bytes
from sartor.codegen.kernels.emit.gpu.invocations import InvocationAssembler
from sartor.codegen.kernels.emit.gpu.threads import ThreadAssembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.mlir.dispatches import executable_target
from sartor.codegen.mlir.iree_compiler import ir, shared_context
from sartor.codegen.mlir.operations import nested
from sartor.codegen.mlir.snippet import first_error

_SUBSPAN = "hal.interface.binding.subspan"
_ROUGH = ("bf16",)
# Without it the assembler spills registers for more workgroups at once than shared memory has room for.
_AT_LEAST_ONE = "nvvm.minctasm = 1 : i32"
_ALIGNMENT = 64
_GROUP = "hal.interface.workgroup.id"
_COUNT = "hal.interface.workgroup.count"
_LANE = "gpu.thread_id"
_GIVEN = "arith.index_cast"
_FLAGS = "%flags"

Write = Callable[[Assembler, Sequence[ir.Value], tuple[Index, Index, Index]], None]


@dataclass(frozen=True)
class Kernel:
    """A kernel's interface.

    Attributes:
        name: symbol of its executable.
        reads: types in memory of what it reads.
        results: types in memory of what it writes; those after the first are workspace.
        groups: number of workgroups in each dimension.
        lanes: elements of a vector.
        tied: position in ``reads`` of the buffer that the first result overwrites; None if it has memory of its own.
        threads: of a workgroup on a GPU; None for code of a CPU.
        flags: type of a last buffer, which is zero when the kernel starts; None for none. Workgroups that run at the
            same time tell each other by it how far they are.
        symbols: sizes that are known only when it runs.
        alone: elements of the result below which the first workgroup computes the shares of all: to hand work to
            another thread takes longer than a little work.
    """

    name: str
    reads: tuple[TensorType, ...]
    results: tuple[TensorType, ...]
    groups: tuple[int, int, int]
    lanes: int
    tied: int | None = None
    threads: int | None = None
    flags: TensorType | None = None
    symbols: tuple[Symbol, ...] = ()
    alone: int = 0

    @property
    def is_rough(self) -> bool:
        """Whether the result is stored in so few bits that rougher approximations of functions suffice."""
        return self.results[0].dtype in _ROUGH

    def executable(self, target: Target, write: Write) -> str:
        """Text of the ``hal.executable``.

        Args:
            target: what it is compiled for.
            write: emits the code of one workgroup, given one-dimensional buffers (inputs, results, flags) and the
                workgroup's position. A tied result has a buffer of its own in the memory of an input.

            Raises:
                RejectionError: if ``write`` emits invalid code.
        """
        with shared_context() as context, ir.Location.unknown(context):
            module = ir.Module.parse(self._shell(target))
            function = next(op for op in nested(module.operation) if op.name == "func.func")
            block = function.regions[0].blocks[0]
            ops = [view.operation for view in block.operations]
            memories = [op.results[0] for op in ops if op.name == _SUBSPAN]
            given = [op.results[0] for op in ops if op.name == _GIVEN]
            x, y, z = (op.results[0] for op in ops if op.name == _GROUP)
            sizes = self.groups
            counts = [op.results[0] for op in ops if op.name == _COUNT]
            with ir.InsertionPoint(ops[-1]):
                assembler = self._assembler(target, block, ops)
                assembler.symbols = dict(zip(self.symbols, given, strict=True))
                group = (x if sizes[0] > 1 else 0, y if sizes[1] > 1 else 0, z if sizes[2] > 1 else 0)
                for count in counts:
                    assembler.repeat(x, sizes[0], count, lambda share: write(assembler, memories, (share, 0, 0)))
                if not counts:
                    write(assembler, memories, group)
            try:
                module.operation.verify()
            except ir.MLIRError as error:
                raise RejectionError(first_error(error)) from None
            return str(module.body.operations[0].operation.get_asm(use_local_scope=True))

    @property
    def may_be_alone(self) -> bool:
        """Whether so many workgroups run as the size of the result tells."""
        groups, *others = self.groups
        fits = self.alone and self.symbols and groups > 1 and others == [1, 1]
        return bool(fits) and len(self.results) == 1 and self.flags is None and self.results[0].dims is not None

    def _is_invocation(self, target: Target) -> bool:
        """Whether an invocation computes one lane of each vector: all kernels on Vulkan, and some on CUDA."""
        return not target.is_cpu and self.threads is None

    def _assembler(self, target: Target, block: ir.Block, ops: Sequence[ir.Operation]) -> Assembler:
        """What emits the code: of a workgroup on a CPU, of one of its invocations on a GPU."""
        if self._is_invocation(target):
            (lane,) = (op.results[0] for op in ops if op.name == _LANE)
            return InvocationAssembler(block, self.lanes, lane)
        features = cpu_features(executable_target(target))
        assembler = ThreadAssembler if self.threads is not None else Assembler
        if self.threads is None and packs_bytes(self.lanes, features):
            assembler = ByteAssembler
        return assembler(block, self.lanes, features, is_rough=self.is_rough)

    def dispatch(self, arguments: Sequence[str]) -> str:
        """The lines that run the kernel; its result is ``%r``, or ``%r#0`` if it has a workspace or flags.

        The values of symbols are ``%s0``, and so on.
        """
        own = None if self.tied is None else arguments[self.tied]
        sizes = SizeText({symbol: f"%s{index}" for index, symbol in enumerate(self.symbols)})
        results = [own or sizes.typed(self.results[0]), *map(sizes.typed, self.results[1:])]
        numbers = [f"%i{index}" for index in range(len(self.symbols))]
        given, types = [*numbers, *arguments], [*[I32] * len(numbers), *map(sizes.typed, self.reads)]
        workload = f"[{sizes.elements(self.results[0].dims or ())}]" if self.may_be_alone else ""
        before = "".join(f"{line}\n  " for line in (*map(_as_number, range(len(numbers))), *sizes.lines))
        if self.flags is not None:
            before += f"%zero = arith.constant 0 : i32\n  {_FLAGS} = flow.tensor.splat %zero : {self.flags}\n  "
            given.append(_FLAGS)
            types.append(str(self.flags))
            results.append(_FLAGS)
        symbol = f"@{self.name}::@{self.name}::@{self.name}"
        reference = f"{{hal.executable.ref = [@{self.name}]}}"
        name = "%r" if len(results) == 1 else f"%r:{len(results)}"
        return (
            f"{before}{name} = flow.dispatch {symbol}{workload}({', '.join(given)}) {reference} : "
            f"({', '.join(types)}) -> ({', '.join(results)})"
        )

    @property
    def _bindings(self) -> list[int]:
        """The binding of each buffer: inputs and flags first, then results with memory of their own."""
        reads, given = len(self.reads), len(self.reads) + (self.flags is not None)
        own = len(self.results) - (self.tied is not None)
        tied = [] if self.tied is None else [self.tied]
        return [*range(reads), *tied, *range(given, given + own), *range(reads, given)]

    def _layout(self, target: Target) -> str:
        """The attribute that tells how bindings are used.

        On a CPU buffers may be named when commands run, as those of IREE's own executables: a module with one binding
        that has to be known when commands are recorded records all of them anew in each call.
        """
        bindings, is_late = self._bindings, target.is_cpu
        written = set(bindings[len(self.reads) :])
        read, rest = (', "ReadOnly|Indirect"', ", Indirect") if is_late else (", ReadOnly", "")
        flags = [rest if index in written else read for index in range(max(bindings) + 1)]
        listed = ", ".join(f"#hal.pipeline.binding<storage_buffer{flag}>" for flag in flags)
        constants = f"constants = {len(self.symbols)}, " if self.symbols else ""
        late = ", flags = Indirect" if is_late else ""
        return f"#hal.pipeline.layout<{constants}bindings = [{listed}]{late}>"

    def _given(self, layout: str) -> str:
        """Lines that read the symbols, as ``%s0`` and so on."""
        return "".join(
            f"    %i{index} = hal.interface.constant.load layout({layout}) ordinal({index}) : i32\n"
            f"    %s{index} = {_GIVEN} %i{index} : i32 to index\n"
            for index in range(len(self.symbols))
        )

    def _shell(self, target: Target) -> str:
        buffers, layout = (*self.reads, *self.results, *([self.flags] if self.flags else [])), self._layout(target)
        is_invocation = self._is_invocation(target)
        space = ", #hal.descriptor_type<storage_buffer>" if target.is_vulkan else ""
        lane = f"    %lane = {_LANE} x" if is_invocation else ""
        extents = SizeText({symbol: f"%s{index}" for index, symbol in enumerate(self.symbols)})
        spans = "\n".join(
            f"    %m{index} = {_SUBSPAN} layout({layout}) binding({binding}) "
            f"alignment({_alignment(target, buffer.dtype)}) offset(%c0) : "
            f"{_memory(buffer, space, extents)}"
            for index, (binding, buffer) in enumerate(zip(self._bindings, buffers, strict=True))
        )
        computed = "".join(f"    {line}\n" for line in extents.lines)
        groups = "\n".join(f"    %g{index} = {_GROUP}[{index}] : index" for index in range(3))
        groups += f"\n    %count = {_COUNT}[0] : index" if self.may_be_alone else ""
        sizes = "\n".join(f"    %s{axis} = arith.constant {size} : index" for axis, size in enumerate(self.groups))
        given, first = "", "%s0"
        if self.may_be_alone:
            given, first = ", %elements: index", "%first"
            sizes += f"""
    %one = arith.constant 1 : index
    %alone = arith.constant {self.alone} : index
    %is_little = arith.cmpi ult, %elements, %alone : index
    %first = arith.select %is_little, %one, %s0 : index"""
        export = f"hal.executable.export public @{self.name} ordinal(0) layout({layout})"
        return f"""hal.executable private @{self.name} {{
  hal.executable.variant public @{self.name} target({executable_target(target)}) {{
   {export} count(%d: !hal.device{given}) -> (index, index, index) {{
{sizes}
    hal.return {first}, %s1, %s2 : index, index, index
   }}
   builtin.module {{ func.func @{self.name}(){self._attributes(target)} {{
    %c0 = arith.constant 0 : index
{lane}
{groups}
{self._given(layout)}{computed}{spans}
    return
   }} }}
  }}
}}"""

    def _attributes(self, target: Target) -> str:
        """Those of the kernel's function: how many threads or invocations a GPU starts."""
        if self._is_invocation(target):
            return f" attributes {{translation_info = {_pipeline(self.lanes, self.lanes)}}}"
        if self.threads is None:
            return ""
        return f" attributes {{translation_info = {_pipeline(self.threads, WARP)}, {_AT_LEAST_ONE}}}"


def _as_number(index: int) -> str:
    """A line that makes a constant of a dispatch of a symbol."""
    return f"%i{index} = arith.index_cast %s{index} : index to i32"


def _memory(tensor: TensorType, space: str, sizes: SizeText) -> str:
    """Type of a buffer of one dimension, with its size behind it if that is open."""
    if tensor.dims is None:
        return f"memref<{tensor.elements}x{tensor.dtype}{space}>"
    return f"memref<?x{tensor.dtype}{space}>{{{sizes.elements(tensor.dims)}}}"


def _alignment(target: Target, dtype: str) -> int:
    """Bytes to which the beginning of a buffer is aligned.

    On a CPU IREE puts a result in the middle of what it is concatenated to, wherever that is.
    """
    return TensorType((1,), dtype).bytes if target.is_cpu else _ALIGNMENT


def _pipeline(threads: int, subgroup: int) -> str:
    """The attribute by which IREE leaves the code of a GPU's kernel as it is."""
    size = f"workgroup_size = [{threads}, 1, 1] subgroup_size = {subgroup}"
    return f"#iree_codegen.translation_info<pipeline = #iree_codegen.no_pipeline {size}>"
