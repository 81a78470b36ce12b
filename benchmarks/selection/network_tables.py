"""The data of experiments: a network's selection problem and the times of all its candidates, as one JSON file.

Reading them from a tuning database requires importing the network. With the file an experiment starts at once, and runs
on every machine with the measurements of one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sartor.codegen.ir.layer import LayerKind, Task, TensorType
from sartor.codegen.ir.schema import Schema
from sartor.errors import UsageError
from sartor.tuning.selection.problem.cost import Cost
from sartor.tuning.selection.problem.problem import Choice, Edge, Node, Problem


@dataclass(frozen=True)
class TimedVariant:
    """A candidate that works, with its seconds."""

    descriptor: str
    seconds: float


@dataclass(frozen=True)
class TaskTimes:
    """A task and its candidates, candidate 0 first."""

    task: Task
    variants: tuple[TimedVariant, ...]


@dataclass(frozen=True, eq=False)
class NetworkTables:
    """A network with its measurements.

    Attributes:
        network: its name.
        machine: on which it was measured.
        runtime: versions with which it was measured.
        threads: number of threads.
        problem: the selection problem.
        tasks: of the layers that compute, by layer name.
        measured_adapts: number of measured conversions (pairs of schemas of a tensor).
        estimated_adapts: number of conversions that are estimated from others.
    """

    network: str
    machine: str
    runtime: str
    threads: int
    problem: Problem
    tasks: Mapping[str, TaskTimes]
    measured_adapts: int
    estimated_adapts: int


def save(tables: NetworkTables, directory: Path) -> Path:
    """Write ``NETWORK.json``; returns its path.

    Raises:
        UsageError: if the directory cannot be written.
    """
    path = directory / f"{tables.network}.json"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(_to_json(tables), separators=(",", ":")), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write '{path}': {error.strerror}; choose a directory that can be written") from error
    return path


def load(path: Path) -> NetworkTables:
    """Read what ``save`` wrote.

    Raises:
        UsageError: if the file cannot be read or has another format.
    """
    try:
        return _from_json(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise UsageError(f"cannot read '{path}': {error.strerror}; name a file that 'tables' wrote") from error
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise UsageError(f"'{path}' holds no tables of a network ({error}); write it anew with 'tables'") from error


def load_all(directory: Path) -> list[NetworkTables]:
    """All tables of a directory, sorted by the networks' names.

    Raises:
        UsageError: if there are none, or one cannot be read.
    """
    found = [load(path) for path in sorted(directory.glob("*.json"))]
    if not found:
        raise UsageError(f"there are no tables in '{directory}'; write some with 'tables --db FILE -o {directory}'")
    return found


def _to_json(tables: NetworkTables) -> dict[str, Any]:
    schemas = sorted({schema for node in tables.problem.nodes for schema in _schemas(node)})
    number = {schema: index for index, schema in enumerate(schemas)}
    position = {node.name: index for index, node in enumerate(tables.problem.nodes)}
    adapts: dict[Edge, list[tuple[int, int, float]]] = {edge: [] for edge in tables.problem.edges}
    for (edge, produced, needed), cost in tables.problem.adapts.items():
        adapts[edge].append((number[produced], number[needed], cost.latency))
    return {
        "network": tables.network,
        "machine": tables.machine,
        "runtime": tables.runtime,
        "threads": tables.threads,
        "measured_adapts": tables.measured_adapts,
        "estimated_adapts": tables.estimated_adapts,
        "schemas": [[schema.device, schema.dtype, schema.layout] for schema in schemas],
        "nodes": [
            {
                "name": node.name,
                "task": tables.tasks[node.name].task.key if node.name in tables.tasks else None,
                "choices": [
                    [
                        choice.name,
                        [number[schema] for schema in choice.inputs],
                        number[choice.output],
                        choice.cost.latency,
                    ]
                    for choice in node.choices
                ],
            }
            for node in tables.problem.nodes
        ],
        "edges": [
            [
                *(position[edge.producer], position[edge.consumer], edge.slot, costs),
                *([] if edge.result is None else [edge.result]),
            ]
            for edge, costs in adapts.items()
        ],
        "tasks": {task.task.key: _task_to_json(task) for task in tables.tasks.values()},
    }


def _schemas(node: Node) -> Iterator[Schema]:
    for choice in node.choices:
        yield from (*choice.inputs, choice.output)


def _task_to_json(times: TaskTimes) -> dict[str, Any]:
    task = times.task
    return {
        "kind": task.kind.value,
        "body": task.body,
        "inputs": list(map(str, task.inputs)),
        "weights": list(map(str, task.weights)),
        "results": list(map(str, task.results)),
        "variants": [[variant.descriptor, variant.seconds] for variant in times.variants],
    }


def _from_json(data: dict[str, Any]) -> NetworkTables:
    schemas = [Schema(*parts) for parts in data["schemas"]]
    tasks = {key: _task_from_json(key, each) for key, each in data["tasks"].items()}
    nodes = tuple(Node(node["name"], tuple(_choices(node["choices"], schemas))) for node in data["nodes"])
    adapts: dict[tuple[Edge, Schema, Schema], Cost] = {}
    edges = []
    for producer, consumer, slot, costs, *result in data["edges"]:
        edges.append(Edge(nodes[producer].name, nodes[consumer].name, slot, *result))
        adapts.update({(edges[-1], schemas[p], schemas[n]): Cost(latency=seconds) for p, n, seconds in costs})
    return NetworkTables(
        data["network"],
        data["machine"],
        data["runtime"],
        data["threads"],
        Problem(nodes, tuple(edges), adapts),
        {node["name"]: tasks[node["task"]] for node in data["nodes"] if node["task"] is not None},
        data["measured_adapts"],
        data["estimated_adapts"],
    )


def _choices(listed: list[Any], schemas: list[Schema]) -> Iterator[Choice]:
    for name, inputs, output, seconds in listed:
        yield Choice(name, tuple(schemas[index] for index in inputs), schemas[output], Cost(latency=seconds))


def _task_from_json(key: str, data: dict[str, Any]) -> TaskTimes:
    inputs, weights, results = (tuple(map(TensorType.parse, data[name])) for name in ("inputs", "weights", "results"))
    task = Task(key, LayerKind(data["kind"]), data["body"], inputs, weights, results)
    return TaskTimes(task, tuple(TimedVariant(descriptor, seconds) for descriptor, seconds in data["variants"]))
