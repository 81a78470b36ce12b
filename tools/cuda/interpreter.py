"""Runs a kernel's MLIR, all threads of a workgroup side by side, as a GPU would run the instructions made from it.

Each value is an array whose first dimension is that of the threads. Copies that a thread starts land where it waits for
them, so that what is read too early is found, and so is what only a barrier would have ordered.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.machines.cuda import WARP
from sartor.codegen.mlir.iree_compiler import ir, shared_context
from sartor.codegen.mlir.operations import nested
from tools.cuda.arithmetic import ARITHMETIC, ASSEMBLY, SHAPES, constant, dtype_of
from tools.cuda.matrices import multiply, row_places, to_lanes
from tools.cuda.memory import GlobalMemory, KernelFault, SharedMemory, bank_conflicts

_UNIT, _WORD, _TURNED_BYTES = 16, 4, 2
_THREADS = "workgroup_size = ["

Value = np.ndarray | GlobalMemory | SharedMemory


@dataclass
class Counts:
    """What a kernel did.

    Attributes:
        conflicts: how many times longer the worst load from shared memory takes than it has to.
        groups: workgroups that ran.
        shared_bytes: shared memory of a workgroup.
    """

    conflicts: int = 1
    groups: int = 0
    shared_bytes: int = 0


def run_kernel(text: str, buffers: Sequence[np.ndarray]) -> Counts:
    """Run the kernel of a ``hal.executable``.

    Args:
        text: of the op.
        buffers: flat arrays, one for each binding; results are written in place.

    Raises:
        KernelFault: if the kernel is wrong, or leaves elements of what it writes out.
    """
    with shared_context() as context, ir.Location.unknown(context):
        module = ir.Module.parse(text)
        ops = list(nested(module.operation))
        function = next(op for op in ops if op.name == "func.func")
        counted = next(op for op in ops if op.name == "hal.return")
        groups = [ir.IntegerAttr(operand.owner.attributes["value"]).value for operand in counted.operands]
        threads = int(str(function.attributes["translation_info"]).partition(_THREADS)[2].partition(",")[0])
        memories = [GlobalMemory(buffer) for buffer in buffers]
        counts = Counts()
        for z, y, x in itertools.product(*(range(group) for group in reversed(groups))):
            Workgroup(memories, (x, y, z), threads, counts).run(function)
            counts.groups += 1
    for memory in memories:
        if memory.written.any() and not memory.written.all():
            raise KernelFault(f"{int((~memory.written).sum())} elements of a result are never written")
    return counts


@dataclass
class Workgroup:
    """A workgroup that runs.

    Attributes:
        memories: the kernel's buffers.
        position: of the workgroup.
        threads: of it.
        counts: what is noted.
    """

    memories: Sequence[GlobalMemory]
    position: tuple[int, int, int]
    threads: int
    counts: Counts
    _values: dict[ir.Value, Value] = field(default_factory=dict)
    _shared: list[SharedMemory] = field(default_factory=list)
    _open: list[Callable[[], None]] = field(default_factory=list)
    _pending: list[list[Callable[[], None]]] = field(default_factory=list)

    def run(self, function: ir.Operation) -> None:
        """Run the function of a kernel."""
        self._block(function.regions[0].blocks[0], np.ones(self.threads, bool))
        if self._open or any(self._pending):
            raise KernelFault("the kernel ends while copies are under way")

    def _block(self, block: ir.Block, active: np.ndarray) -> list[np.ndarray]:
        """Run a block; returns what its last op yields."""
        for view in block.operations:
            op = view.operation
            if op.name in ("scf.yield", "func.return", "scf.reduce"):
                return [self._read(operand) for operand in op.operands]
            self._run(op, active)
        return []

    def _run(self, op: ir.Operation, active: np.ndarray) -> None:
        special = getattr(self, "_" + op.name.replace(".", "_"), None)
        if special is not None:
            special(op, active)
        elif op.name == "arith.constant":
            self._values[op.results[0]] = constant(op)
        elif op.name in SHAPES:
            self._values[op.results[0]] = SHAPES[op.name](op, [self._read(operand) for operand in op.operands])
        elif op.name in ARITHMETIC:
            operands = [self._read(operand) for operand in op.operands]
            with np.errstate(all="ignore"):
                found = ARITHMETIC[op.name](op, operands)
            self._values[op.results[0]] = found
        else:
            raise KernelFault(f"{op.name} is not known here")

    def _read(self, value: ir.Value) -> np.ndarray:
        found = self._values[value]
        if not isinstance(found, np.ndarray):
            raise KernelFault("a memory is used as a number")
        return found

    def _memory(self, value: ir.Value) -> GlobalMemory | SharedMemory:
        found = self._values[value]
        if isinstance(found, np.ndarray):
            raise KernelFault("a number is used as a memory")
        return found

    def _every(self, value: ir.Value) -> np.ndarray:
        """A number of each thread."""
        found = self._read(value)
        return np.broadcast_to(found, (self.threads, *found.shape[1:]))

    def _together(self, op: ir.Operation, active: np.ndarray) -> None:
        if not active.all():
            raise KernelFault(f"{op.name} is run by a part of the threads")

    # Places and memories.

    def _hal_interface_workgroup_id(self, op: ir.Operation, active: np.ndarray) -> None:
        axis = ir.IntegerAttr(op.attributes["dimension"]).value
        self._values[op.results[0]] = np.array([self.position[axis]])

    def _hal_interface_binding_subspan(self, op: ir.Operation, active: np.ndarray) -> None:
        memory = self.memories[ir.IntegerAttr(op.attributes["binding"]).value]
        kind = dtype_of(ir.MemRefType(op.results[0].type).element_type)
        # A kernel may read longer words of a binding than its elements are.
        is_viewed = kind.itemsize != memory.values.itemsize
        self._values[op.results[0]] = GlobalMemory(memory.values.view(kind)) if is_viewed else memory

    def _gpu_thread_id(self, op: ir.Operation, active: np.ndarray) -> None:
        self._values[op.results[0]] = np.arange(self.threads)

    def _memref_alloc(self, op: ir.Operation, active: np.ndarray) -> None:
        kind = ir.MemRefType(op.results[0].type)
        memory = SharedMemory(np.zeros(kind.shape, dtype_of(kind.element_type)))
        self._shared.append(memory)
        self.counts.shared_bytes = sum(each.values.nbytes for each in self._shared)
        self._values[op.results[0]] = memory

    # Control flow.

    def _scf_for(self, op: ir.Operation, active: np.ndarray) -> None:
        lower, upper, step = (self._uniform(operand) for operand in list(op.operands)[:3])
        carried = [self._read(operand) for operand in list(op.operands)[3:]]
        block = op.regions[0].blocks[0]
        index, *arguments = list(block.arguments)
        for each in range(lower, upper, step):
            self._values[index] = np.array([each])
            self._values.update(zip(arguments, carried, strict=True))
            carried = self._block(block, active)
        self._values.update(zip(op.results, carried, strict=True))

    def _uniform(self, value: ir.Value) -> int:
        found = np.unique(self._read(value))
        if len(found) != 1:
            raise KernelFault("threads of a workgroup run a loop with different bounds")
        return int(found[0])

    def _scf_if(self, op: ir.Operation, active: np.ndarray) -> None:
        condition = np.broadcast_to(self._read(op.operands[0]), active.shape)
        found = []
        for region, mask in zip(op.regions, (active & condition, active & ~condition), strict=True):
            blocks = list(region.blocks)
            found.append(self._block(blocks[0], mask) if blocks and mask.any() else None)
        for index, result in enumerate(op.results):
            parts = [None if each is None else each[index] for each in found]
            self._values[result] = _merged(condition, parts[0], parts[1])

    def _gpu_barrier(self, op: ir.Operation, active: np.ndarray) -> None:
        self._together(op, active)
        for each in self._shared:
            each.epoch += 1

    # Asynchronous copies.

    def _nvgpu_device_async_copy(self, op: ir.Operation, active: np.ndarray) -> None:
        operands = list(op.operands)
        target, source = self._memory(operands[0]), self._memory(operands[2])
        if not isinstance(target, SharedMemory) or not isinstance(source, GlobalMemory):
            raise KernelFault("cp.async copies to shared memory only")
        count = ir.IntegerAttr(op.attributes["dstElements"]).value
        place, origin = self._every(operands[1])[active], self._every(operands[3])[active]
        size = target.values.itemsize * count
        if size not in (4, 8, 16) or (place % count).any() or (origin % count).any():
            raise KernelFault(f"cp.async copies {size} bytes that are not aligned")
        read = self._every(operands[4])[active] if len(operands) > 4 else np.full(len(place), count)
        steps = np.arange(count)
        wanted = steps < read[:, None]
        values = np.zeros((len(place), count), target.values.dtype)
        values[wanted] = source.read((origin[:, None] + steps)[wanted])
        places, threads = place[:, None] + steps, np.nonzero(active)[0][:, None] + 0 * steps
        target.start(places, threads)
        self._open.append(lambda: target.land(places, threads, values))

    def _nvvm_cp_async_commit_group(self, op: ir.Operation, active: np.ndarray) -> None:
        self._together(op, active)
        self._pending.append(self._open)
        self._open = []

    def _nvvm_cp_async_wait_group(self, op: ir.Operation, active: np.ndarray) -> None:
        self._together(op, active)
        left = ir.IntegerAttr(op.attributes["n"]).value
        while len(self._pending) > left:
            for land in self._pending.pop(0):
                land()

    # Matrices.

    def _nvgpu_ldmatrix(self, op: ir.Operation, active: np.ndarray) -> None:
        self._together(op, active)
        memory = self._memory(op.operands[0])
        if not isinstance(memory, SharedMemory):
            raise KernelFault("ldmatrix reads shared memory only")
        count = ir.IntegerAttr(op.attributes["numTiles"]).value
        size = memory.values.itemsize
        places = row_places(self._every(op.operands[1]), _UNIT // size, count)
        starts = places[..., 0] * size
        if (starts % _UNIT).any():
            raise KernelFault("ldmatrix reads rows that are not aligned")
        self.counts.conflicts = max(self.counts.conflicts, bank_conflicts(starts, _UNIT))
        readers = np.arange(self.threads).reshape(-1, 1, 8, 4).repeat(count, axis=1)
        words = readers.repeat(_UNIT // 4 // size if size < 4 else 1, axis=3)
        found = memory.read(places, words)
        if ir.BoolAttr(op.attributes["transpose"]).value:
            if size != _TURNED_BYTES:
                raise KernelFault("ldmatrix transposes elements of two bytes only")
            found = found.swapaxes(2, 3)
        self._values[op.results[0]] = to_lanes(found)

    def _nvgpu_mma_sync(self, op: ir.Operation, active: np.ndarray) -> None:
        self._together(op, active)
        left, right, total = (self._every(operand) for operand in op.operands)
        is_tf32 = "tf32Enabled" in op.attributes
        self._values[op.results[0]] = multiply(left, right, total, is_tf32=is_tf32)

    def _gpu_shuffle(self, op: ir.Operation, active: np.ndarray) -> None:
        self._together(op, active)
        mode, threads = str(op.attributes["mode"]), np.arange(self.threads)
        value, number = self._every(op.operands[0]), self._uniform(op.operands[1])
        if "xor" in mode:
            sources = threads ^ number
        elif "idx" in mode:
            sources = threads // WARP * WARP + number
        else:
            raise KernelFault(f"shuffles by {mode} are not known here")
        self._values[op.results[0]] = value[sources]
        self._values[op.results[1]] = np.array([True])

    def _llvm_inline_asm(self, op: ir.Operation, active: np.ndarray) -> None:
        text = ir.StringAttr(op.attributes["asm_string"]).value
        if text not in ASSEMBLY:
            raise KernelFault(f"{text} is not known here")
        self._values[op.results[0]] = ASSEMBLY[text](self._read(op.operands[0]))

    # Loads and stores.

    def _load(self, op: ir.Operation, active: np.ndarray, count: int) -> np.ndarray:
        memory, steps = self._memory(op.operands[0]), np.arange(count)
        places = self._every(op.operands[1])[:, None] + steps
        _check_alignment(op, places, memory)
        found = np.zeros(places.shape, memory.values.dtype)
        if isinstance(memory, SharedMemory):
            found[active] = memory.read(places[active], np.nonzero(active)[0][:, None] + 0 * steps)
        else:
            found[active] = memory.read(places[active])
        return found

    def _store(
        self, memory: GlobalMemory | SharedMemory, start: np.ndarray, values: np.ndarray, active: np.ndarray
    ) -> None:
        steps = np.arange(values.shape[1])
        places = start[:, None] + steps
        if isinstance(memory, SharedMemory):
            memory.write(places[active], np.nonzero(active)[0][:, None] + 0 * steps, values[active])
        else:
            memory.write(places[active], values[active])

    def _vector_load(self, op: ir.Operation, active: np.ndarray) -> None:
        self._values[op.results[0]] = self._load(op, active, ir.VectorType(op.results[0].type).shape[0])

    def _memref_load(self, op: ir.Operation, active: np.ndarray) -> None:
        memory = self._memory(op.operands[0])
        if isinstance(memory, SharedMemory) and active.all():
            starts = self._every(op.operands[1]).reshape(-1, WARP) * memory.values.itemsize
            self.counts.conflicts = max(self.counts.conflicts, bank_conflicts(starts, _WORD))
        self._values[op.results[0]] = self._load(op, active, 1)[:, 0]

    def _vector_store(self, op: ir.Operation, active: np.ndarray) -> None:
        values, memory = self._every(op.operands[0]), self._memory(op.operands[1])
        start = self._every(op.operands[2])
        _check_alignment(op, start[active][:, None], memory)
        self._store(memory, start, values, active)

    def _memref_store(self, op: ir.Operation, active: np.ndarray) -> None:
        values = self._every(op.operands[0])[:, None]
        self._store(self._memory(op.operands[1]), self._every(op.operands[2]), values, active)


def _check_alignment(op: ir.Operation, places: np.ndarray, memory: GlobalMemory | SharedMemory) -> None:
    if "alignment" not in op.attributes or not places.size:
        return
    bytes_ = ir.IntegerAttr(op.attributes["alignment"]).value
    if (places[:, 0] * memory.values.itemsize % bytes_).any():
        raise KernelFault(f"an access is not aligned to {bytes_} bytes")


def _merged(condition: np.ndarray, one: np.ndarray | None, other: np.ndarray | None) -> np.ndarray:
    if one is None or other is None:
        found = other if one is None else one
        if found is None:
            raise KernelFault("no thread computes the result of a branch")
        return found
    shape = condition.reshape(-1, *[1] * (max(one.ndim, other.ndim) - 1))
    return np.where(shape, one, other)


def types_of(text: str) -> list[TensorType]:
    """Types of a kernel's buffers, by binding."""
    with shared_context() as context, ir.Location.unknown(context):
        module = ir.Module.parse(text)
        spans = [op for op in nested(module.operation) if op.name == "hal.interface.binding.subspan"]
        kinds = {ir.IntegerAttr(op.attributes["binding"]).value: ir.MemRefType(op.results[0].type) for op in spans}
        return [TensorType(tuple(kinds[kind].shape), str(kinds[kind].element_type)) for kind in sorted(kinds)]
