"""Make one task of two, the second of which reads the result of the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sartor.codegen.ir.layer import LayerKind, Stage, Task, TensorType, task_key
from sartor.codegen.mlir.iree_compiler import ir, shared_context
from sartor.codegen.mlir.operations import body_of, remap


def task_of(
    kind: LayerKind,
    text: str,
    inputs: tuple[TensorType, ...],
    weights: tuple[TensorType, ...],
    results: tuple[TensorType, ...],
) -> Task:
    """The task of one ``util.func public @layer`` over activations, then weights; its key hashes the code alone."""
    with shared_context():
        module = ir.Module.parse(text)
        body = str(module.body.operations[0].operation.get_asm(use_local_scope=True))
    return Task(task_key(body), kind, body, inputs, weights, results)


def follow(first: Task, second: Task) -> Task:
    """A task that computes ``first``, then ``second``, whose activation 0 is the only result of ``first``.

    Activations are those of ``first``, then the others of ``second``; weights likewise. The task has the kind of
    ``first`` and no stages, so routines for ``first`` apply to it if they can fuse what follows.
    """
    return replace(fuse(first, second, 0), kind=first.kind, stages=())


def fuse(first: Task, second: Task, slot: int) -> Task:
    """A fused task that computes ``first``, then ``second``, whose activation ``slot`` is the only result of ``first``.

    Activations are those of ``first``, then the others of ``second``; weights likewise.
    """
    return chain((first, second), (slot,))


def chain(tasks: Sequence[Task], slots: Sequence[int]) -> Task:
    """A fused task that computes tasks one after the other, as ``fuse`` does two.

    Args:
        tasks: in order; each but the last has a single result.
        slots: for each but the first, the activation that is the result of the one before.
    """
    types = list(tasks[0].inputs)
    stages = [Stage(tasks[0], tuple(range(len(types))))]
    for task, slot in zip(tasks[1:], slots, strict=True):
        positions: list[int | None] = []
        for index, tensor in enumerate(task.inputs):
            positions.append(None if index == slot else len(types))
            types += [] if index == slot else [tensor]
        stages.append(Stage(task, tuple(positions)))
    weights = tuple(weight for task in tasks for weight in task.weights)
    body = _body(stages, types, weights, tasks[-1].results)
    return Task(
        key=task_key(body, *_differences(*tasks)),
        kind=LayerKind.FUSED,
        body=body,
        inputs=tuple(types),
        weights=weights,
        results=tasks[-1].results,
        stages=tuple(stages),
    )


def _differences(*tasks: Task) -> tuple[str, ...]:
    """Keys of those tasks that their code alone does not identify."""
    return tuple(task.key for task in tasks if task.key != task_key(task.body))


def _body(
    stages: Sequence[Stage],
    inputs: Sequence[TensorType],
    weights: Sequence[TensorType],
    results: Sequence[TensorType],
) -> str:
    """One function in which the ops of all follow each other."""
    with shared_context() as context, ir.Location.unknown(context):
        arguments = ", ".join(f"%arg{index}: {tensor}" for index, tensor in enumerate((*inputs, *weights)))
        types = ", ".join(map(str, results))
        shell = ir.Module.parse(f"util.func public @layer({arguments}) -> ({types}) {{ util.unreachable }}")
        function = shell.body.operations[0].operation
        block = body_of(function)
        terminator = block.operations[0].operation
        point, given = ir.InsertionPoint(terminator), list(block.arguments)
        activations, parameters = given[: len(inputs)], iter(given[len(inputs) :])
        returned: list[ir.Value] = []
        for stage in stages:
            read = [returned[0] if input_ is None else activations[input_] for input_ in stage.inputs]
            own = [next(parameters) for _ in stage.task.weights]
            returned = _inline(stage.task, [*read, *own], point)
        ir.Operation.create("util.return", operands=returned, ip=point)
        terminator.erase()
        return str(function.get_asm(use_local_scope=True))


def _inline(task: Task, arguments: Sequence[ir.Value], point: ir.InsertionPoint) -> list[ir.Value]:
    """Clone the ops of a task at ``point`` with the given arguments; returns the results."""
    module = ir.Module.parse(task.body)
    block = body_of(module.body.operations[0].operation)
    mapping: dict[ir.Value, ir.Value] = dict(zip(block.arguments, arguments, strict=True))
    *ops, last = (view.operation for view in block.operations)
    for op in ops:
        clone = op.clone(ip=point)
        remap(clone, mapping)
        mapping.update(zip(op.results, clone.results, strict=True))
    return [mapping[value] for value in last.operands]
