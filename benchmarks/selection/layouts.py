"""NeoCPU's Table 3: the gain by layouts, in four steps.

1. Baseline: every layer is stock IREE over ONNX's layout.
2. Layout: every convolution runs alone in blocks of channels, converting its input and its output.
3. Transform elimination: layers pass that layout on, and conversions are left only where it is not possible.
4. Global search: every layer may take any layout.

All times are sums of the tables; ``layout_run`` compiles and times the networks. The first step differs from the
paper's: it also replaces IREE's code generation by kernels, because only kernels compute in blocks of channels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.selection.network_tables import NetworkTables, TaskTimes
from benchmarks.selection.results import Axes, plot_bars
from sartor.codegen.ir.layer import LayerKind
from sartor.errors import InfeasibleError
from sartor.tuning.selection import auto
from sartor.tuning.selection.problem.problem import Choice, Edge, Node, Problem
from sartor.tuning.selection.problem.selection import Assignment, evaluate

BLOCKED = "nchw16c"
CHANNELS_LAST = "nhwc"
CONVOLUTIONS = (LayerKind.CONVOLUTION, LayerKind.DEPTHWISE)


@dataclass(frozen=True)
class Steps:
    """Milliseconds of a network after each step; None where a step has no plan.

    Attributes:
        network: name.
        baseline: stock code in ONNX's layout.
        layout: convolutions in blocks, each between conversions.
        elimination: all possible layers in blocks of channels.
        channels_last: all possible layers with channels last, which NeoCPU does not try.
        global_search: the optimum.
        speedup: baseline divided by optimum.
    """

    network: str
    baseline: float
    layout: float | None
    elimination: float | None
    channels_last: float | None
    global_search: float
    speedup: float


def run(tables: Sequence[NetworkTables]) -> list[Steps]:
    """Compute the steps of all networks that have convolutions."""
    return [_steps(table) for table in tables if any(map(_is_convolution, table.tasks.values()))]


def plot(rows: Sequence[Steps], path: Path) -> Path:
    """Plot the speed-up of every step over the baseline."""
    steps: dict[str, Callable[[Steps], float | None]] = {
        "layout": lambda row: row.layout,
        "transform elimination": lambda row: row.elimination,
        "global search": lambda row: row.global_search,
    }
    bars = {
        name: [row.baseline / taken if (taken := pick(row)) else 0.0 for row in rows] for name, pick in steps.items()
    }
    axes = Axes("predicted speed-up over stock code in NCHW (NeoCPU, Table 3)", "", "times faster")
    return plot_bars(axes, [row.network for row in rows], bars, path)


def _steps(tables: NetworkTables) -> Steps:
    problem = tables.problem
    stock = evaluate(problem, Assignment({node.name: node.choices[0] for node in problem.nodes}))
    if stock is None:
        raise InfeasibleError(f"network '{tables.network}': candidate 0 of some layers cannot be joined")
    best = auto.select(problem).cost
    return Steps(
        network=tables.network,
        baseline=stock.latency * 1e3,
        layout=_milliseconds(alone_in_blocks(tables)),
        elimination=_milliseconds(in_layout(problem, BLOCKED)),
        channels_last=_milliseconds(in_layout(problem, CHANNELS_LAST)),
        global_search=best * 1e3,
        speedup=stock.latency / best,
    )


def _is_convolution(times: TaskTimes) -> bool:
    return times.task.kind in CONVOLUTIONS


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def alone_in_blocks(tables: NetworkTables) -> float | None:
    """Seconds if every convolution that can writes blocks, other layers are stock, and all edges are in ONNX's layout.

    None if a conversion does not exist.
    """
    problem = tables.problem
    around: dict[str, list[Edge]] = {node.name: [] for node in problem.nodes}
    for edge in problem.edges:
        around[edge.consumer].append(edge)
        around[edge.producer].append(edge)
    plain = {node.name: node.choices[0] for node in problem.nodes}
    total = 0.0
    for node in problem.nodes:
        blocked = [choice for choice in node.choices if choice.output.layout == BLOCKED]
        if node.name not in tables.tasks or not _is_convolution(tables.tasks[node.name]) or not blocked:
            total += node.choices[0].cost.latency
            continue
        costs = [_with_seams(problem, node.name, choice, around[node.name], plain) for choice in blocked]
        possible = [cost for cost in costs if cost is not None]
        if not possible:
            return None
        total += min(possible)
    return total


def _with_seams(
    problem: Problem, layer: str, choice: Choice, around: Sequence[Edge], plain: dict[str, Choice]
) -> float | None:
    """A choice with the conversions of its inputs, and one conversion of its output for all readers."""
    total = choice.cost.latency
    outgoing: dict[object, float] = {}
    for edge in around:
        if edge.consumer == layer:
            cost = problem.adapt(edge, plain[edge.producer].output, choice.inputs[edge.slot])
        else:
            needed = plain[edge.consumer].inputs[edge.slot]
            cost = problem.adapt(edge, choice.output, needed)
        if cost is None:
            return None
        if edge.consumer == layer:
            total += cost.latency
        else:
            outgoing[needed] = cost.latency
    return total + sum(outgoing.values())


def in_layout(problem: Problem, layout: str) -> float | None:
    """Seconds of the best plan in which every layer that can writes ``layout``; None if there is no such plan."""
    nodes = tuple(_restricted(node, layout) for node in problem.nodes)
    try:
        return auto.select(replace(problem, nodes=nodes)).cost
    except InfeasibleError:
        return None


def _restricted(node: Node, layout: str) -> Node:
    """The choices that write the layout and, if there are any of these, also read it throughout."""
    writing = tuple(choice for choice in node.choices if choice.output.layout == layout)
    through = tuple(each for each in writing if all(schema.layout == layout for schema in each.inputs))
    return replace(node, choices=through or writing or node.choices)
