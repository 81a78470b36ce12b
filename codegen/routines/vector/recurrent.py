"""Recurrent layers, LSTM, GRU and RNN, by our own kernel: all steps in one dispatch."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.ir.layer import LayerKind, Task
from sartor.codegen.ir.layouts import layouts_of
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.schema import schemas_of
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.descriptor import SHARES
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected, integer, required
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.layers.kernel_layer import KernelLayer, build_kernel
from sartor.codegen.kernels.recurrence.form import Recurrence, recurrence_of
from sartor.codegen.kernels.recurrence.steps import StepsKernel
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.kernel_machine import kernel_machine
from sartor.codegen.mlir.machine import Machine
from sartor.codegen.mlir.rewriting.rewrite import Rewrite

# Vectors of a block and rows of a matrix in an iteration. On a Zen 5 all are limited by the second-level cache, which
# more sums than these in registers do not relieve.
_SIZES = ((2, 2), (1, 2), (4, 2))
# Worker threads have stacks of 128 KiB, and the compiler allows half of it.
_MOST_SCRATCH_BYTES = 48 << 10
_FLOAT_BYTES = 4


@dataclass(frozen=True)
class Recurrent:
    """Computes a block of the state after the other, each with all its gates.

    Parameters: ``vectors`` of a block, ``unroll`` rows of a matrix in an iteration, ``rows`` of the batch that are
    computed together, ``groups``, workgroups that partition the batch, and ``shares``, workgroups that share the steps
    of each of these, by default one.

    Attributes:
        name: the algorithm in descriptors.
    """

    name: str = "recurrent"

    @property
    def traits(self) -> Traits:
        return Traits(sizes=("vectors", "unroll", "rows", "groups", SHARES), opens=True)

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        if task.kind is not LayerKind.RECURRENCE:
            return Rejected("not a recurrent layer")
        machine = required(kernel_machine(task, target))
        form = _form(Rewrite.plain(task))
        groups = max(index for index in range(1, machine.threads + 1) if form.batch % index == 0)
        offered = [_parameters(form, machine, *sizes, groups) for sizes in _SIZES]
        fitting = [candidate for candidate in offered if candidate is not None]
        alone = [candidate for candidate in fitting if _scratch_bytes(form, machine, candidate) <= _MOST_SCRATCH_BYTES]
        # The memory that workgroups share is of known size.
        shared = [candidate for given in fitting for candidate in _shared(form, machine, given) if task.opened is None]
        return [*alone, *shared] or Rejected("its state does not fit the scratch memory")

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        return build_kernel(self, task, parameters, target)

    def layer(self, task: Task, parameters: Parameters, target: Target) -> KernelLayer:
        """The kernel of a layer.

        Raises:
            RejectionError: if there is no kernel for the layer.
        """
        machine = required(kernel_machine(task, target))
        rewrite = Rewrite.plain(task)
        form = _form(rewrite)
        if task.opened is not None:
            form = form.opened(_form(Rewrite.plain(task.opened.twin)), task.opened.fit)
        sizes = [integer(parameters.get(name, 1)) for name in ("vectors", "unroll", "rows", "groups", SHARES)]
        _, unroll, rows, groups, _ = sizes
        if min(sizes) < 1 or form.batch % (groups * rows):
            raise RejectionError(
                f"a batch of {form.batch} does not divide into {groups} groups of {rows} rows at a time"
            )
        if form.hidden % unroll:
            raise RejectionError(f"{form.hidden} rows of a matrix do not divide into {unroll} in an iteration")
        code = StepsKernel(form, len(task.inputs) + len(task.weights), machine.lanes, *sizes)
        for product in form.products:
            index = product.matrix - len(task.inputs)
            if index < 0 or not _is_only_multiplied(rewrite.weights[index], product.matrix, form):
                raise RejectionError("a recurrence matrix is computed or read elsewhere too")
            rewrite.set_packing(index, code.packing(product))
        inputs, outputs = (
            schemas_of(tensors, layouts_of(tensors), target.device) for tensors in (task.inputs, task.results)
        )
        return KernelLayer(task, (rewrite,), inputs, outputs[0], code, code.workspace, flags=code.flags)


def _is_only_multiplied(weight: ir.Value, argument: int, form: Recurrence) -> bool:
    """Whether only products read a weight, which all find it packed."""
    return len(list(weight.uses)) == sum(product.matrix == argument for product in form.products)


def _form(rewrite: Rewrite) -> Recurrence:
    with rewrite.module.context:
        return recurrence_of(rewrite.function)


def _parameters(form: Recurrence, machine: Machine, vectors: int, unroll: int, groups: int) -> Parameters | None:
    """Parameters with these sizes; None if they do not fit the layer or the CPU."""
    gates = max(product.gates for product in form.products)
    fitting = [
        rows
        for rows in range(1, form.batch // groups + 1)
        if form.batch // groups % rows == 0 and rows * gates * vectors <= machine.accumulators
    ]
    unroll = unroll if form.hidden % unroll == 0 else 1
    if not fitting or (vectors - 1) * machine.lanes >= form.hidden:
        return None
    return {"vectors": vectors, "unroll": unroll, "rows": fitting[-1], "groups": groups}


def _scratch_bytes(form: Recurrence, machine: Machine, given: Parameters) -> int:
    """Bytes of the states of rows that are computed together."""
    sizes = (integer(given[name]) for name in ("vectors", "unroll", "rows", "groups"))
    return StepsKernel(form, 0, machine.lanes, *sizes).states_of_run * _FLOAT_BYTES


def _shared(form: Recurrence, machine: Machine, given: Parameters) -> list[Parameters]:
    """The parameters with as many workgroups for each sequence as there are threads left, or half of them; parts are as
    equal as can be."""
    blocks = -(-form.hidden // (integer(given["vectors"]) * machine.lanes))
    most = min(machine.threads // integer(given["groups"]), blocks)
    counts = {-(-blocks // -(-blocks // most_blocks)) for most_blocks in (most, most // 2) if most_blocks > 1}
    return [{**given, SHARES: count} for count in sorted(counts, reverse=True)]
