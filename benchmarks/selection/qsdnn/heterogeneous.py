"""A simulated GPU beside the CPU, as in QS-DNN's "GPGPU" mode: a CPU thread and a GPU share the network.

Times of the CPU are those of the tables. The GPU has two libraries: like cuDNN, which computes all but products, and
like cuBLAS, which computes products alone. A launch has a fixed time, and the rest is bounded by arithmetic or memory,
at a fraction of the peak that measured libraries reach. A tensor crosses the bus in ONNX's layout; in another it is
converted on the CPU first. So whatever a CPU gains on small layers, and a bus takes, is in the tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from benchmarks.selection.network_tables import NetworkTables, TaskTimes
from sartor.codegen.analysis.operation_count import operation_count
from sartor.codegen.ir.layer import LayerKind
from sartor.codegen.ir.schema import Schema
from sartor.tuning.selection.problem.cost import Cost
from sartor.tuning.selection.problem.problem import Choice, Edge, Node, Problem

DEVICE = "gpu"
_LIBRARIES = {
    LayerKind.CONVOLUTION: "cudnn",
    LayerKind.DEPTHWISE: "cudnn",
    LayerKind.POOLING: "cudnn",
    LayerKind.TOLERANT: "cudnn",
    LayerKind.CONTRACTION: "cublas",
}


@dataclass(frozen=True)
class Machine:
    """What is simulated.

    Attributes:
        launch: seconds of a kernel without work.
        operations: f32 operations per second that kernels reach.
        bandwidth: bytes per second that kernels read and write.
        latency: seconds of a transfer without bytes.
        bus: bytes per second of a transfer.
    """

    launch: float = 8e-6
    operations: float = 1.5e12
    bandwidth: float = 150e9
    latency: float = 10e-6
    bus: float = 8e9


INTEGRATED = Machine()
"""Ten to twenty times a core of the CPU of the tables in arithmetic and bandwidth, behind a bus."""


def with_gpu(tables: NetworkTables, machine: Machine = INTEGRATED) -> Problem:
    """The problem of a network with choices on the simulated GPU, and transfers."""
    problem = tables.problem
    nodes = tuple(_with_choice(node, tables.tasks, machine) for node in problem.nodes)
    by_name = {node.name: node for node in nodes}
    adapts = dict(problem.adapts)
    for edge in problem.edges:
        adapts |= _transfers(problem, edge, by_name, _bytes(tables, edge), machine)
    return replace(problem, nodes=nodes, adapts=adapts)


def _with_choice(node: Node, tasks: Mapping[str, TaskTimes], machine: Machine) -> Node:
    task = tasks[node.name].task if node.name in tasks else None
    library = None if task is None else _LIBRARIES.get(task.kind)
    if task is None or library is None:
        return node
    moved = sum(each.bytes for each in (*task.inputs, *task.weights, *task.results))
    seconds = machine.launch + max(operation_count(task) / machine.operations, moved / machine.bandwidth)
    first = node.choices[0]
    inputs = tuple(replace(each, device=DEVICE) for each in first.inputs)
    output = replace(first.output, device=DEVICE)
    name = f"{DEVICE}:f32/layer.{library}"
    return replace(node, choices=(*node.choices, Choice(name, inputs, output, Cost(latency=seconds))))


def _bytes(tables: NetworkTables, edge: Edge) -> int:
    if edge.producer in tables.tasks:
        return tables.tasks[edge.producer].task.results[edge.result or 0].bytes
    return tables.tasks[edge.consumer].task.inputs[edge.slot].bytes if edge.consumer in tables.tasks else 0


def _transfers(
    problem: Problem, edge: Edge, nodes: Mapping[str, Node], size: int, machine: Machine
) -> dict[tuple[Edge, Schema, Schema], Cost]:
    """Conversions on an edge that cross the bus."""
    seconds = machine.latency + size / machine.bus
    written = {choice.output for choice in nodes[edge.producer].choices}
    read = {choice.inputs[edge.slot] for choice in nodes[edge.consumer].choices}
    return {
        (edge, produced, needed): Cost(latency=seconds + converting)
        for produced in written
        for needed in read
        if (produced.device == DEVICE) != (needed.device == DEVICE)
        and (converting := _converting(problem, edge, produced, needed)) is not None
    }


def _converting(problem: Problem, edge: Edge, produced: Schema, needed: Schema) -> float | None:
    """Seconds that the CPU converts before or after the transfer; None if it cannot."""
    device = produced.device if needed.device == DEVICE else needed.device
    found = problem.adapt(edge, replace(produced, device=device), replace(needed, device=device))
    return None if found is None else found.latency
