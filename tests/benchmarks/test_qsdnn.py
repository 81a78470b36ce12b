"""QS-DNN's experiments, and shared conversions, on nets of a few layers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.selection import sharing
from benchmarks.selection.network_tables import NetworkTables, TaskTimes
from benchmarks.selection.qsdnn import comparison
from benchmarks.selection.qsdnn.heterogeneous import DEVICE, INTEGRATED, Machine, with_gpu
from benchmarks.selection.qsdnn.primitives import library_of, primitive_of, whole_net
from sartor.codegen.ir.layer import LayerKind, Task, TensorType
from sartor.codegen.ir.schema import Schema
from sartor.tuning.selection import auto
from sartor.tuning.selection.problem.cost import Cost
from sartor.tuning.selection.problem.problem import Choice, Edge, Node, Problem

NCHW, NHWC = (Schema("cpu", "f32", layout) for layout in ("nchw", "nhwc"))
IMAGE = TensorType((1, 64, 56, 56), "f32")
POOLING = f"""util.func public @layer(%image: {IMAGE}) -> {IMAGE} {{
  %zero = arith.constant 0.0 : f32
  %window = tensor.empty() : tensor<1x1xf32>
  %empty = tensor.empty() : {IMAGE}
  %start = linalg.fill ins(%zero : f32) outs(%empty : {IMAGE}) -> {IMAGE}
  %sum = linalg.pooling_nchw_sum {{dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>}}
      ins(%image, %window : {IMAGE}, tensor<1x1xf32>) outs(%start : {IMAGE}) -> {IMAGE}
  util.return %sum : {IMAGE}
}}"""


def choice(name: str, inputs: int, schema: Schema, milliseconds: float) -> Choice:
    return Choice(name, (schema,) * inputs, schema, Cost(latency=1e-3 * milliseconds))


def layer(name: str, stock: float, direct: float | None) -> Node:
    """A layer with candidate 0 in one layout and a kernel in another, in milliseconds."""
    kernel = [] if direct is None else [choice("cpu:f32/conv2d.direct{unroll=2}", 1, NHWC, direct)]
    return Node(name, (choice("cpu:f32/conv2d.stock", 1, NCHW, stock), *kernel))


@pytest.fixture
def tables() -> NetworkTables:
    """input -> a -> b and c -> outputs; conversions take 2 ms. ``b`` and ``c`` are faster in the other layout."""
    task = Task("t", LayerKind.POOLING, POOLING, (IMAGE,), (), (IMAGE,))
    nodes = (
        Node("input:x", (choice("outside", 0, NCHW, 0.0),)),
        layer("a", 5.0, None),
        layer("b", 4.5, 3.0),
        layer("c", 4.5, 3.0),
    )
    edges = (Edge("input:x", "a", 0, 0), Edge("a", "b", 0, 0), Edge("a", "c", 0, 0))
    adapts = {(edge, *pair): Cost(latency=2e-3) for edge in edges for pair in ((NCHW, NHWC), (NHWC, NCHW))}
    tasks = {name: TaskTimes(task, ()) for name in ("a", "b", "c")}
    return NetworkTables("tiny", "machine", "versions", 1, Problem(nodes, edges, adapts), tasks, 0, 0)


def test_a_conversion_charged_once_lets_two_readers_take_the_faster_kernel(tables: NetworkTables) -> None:
    (row,) = sharing.run([tables])
    assert (row.shared, row.changed, row.proven) == (1, 2, True)
    assert row.per_edge == row.per_edge_built == pytest.approx(14)
    assert row.per_value == pytest.approx(5 + 2 + 3 + 3)
    assert row.gain == pytest.approx(100 * (14 / 13 - 1))


def test_one_primitive_is_used_wherever_it_applies_and_the_base_elsewhere(tables: NetworkTables) -> None:
    rows = {row.primitive: row for row in comparison.run_alone([tables])}
    assert rows["stock"].milliseconds == pytest.approx(14)
    assert rows["direct"].milliseconds == pytest.approx(13)
    assert (rows["direct"].layers, rows["stock"].layers) == (2, 3)
    dearer = replace(tables.problem, adapts={key: Cost(latency=9e-3) for key in tables.problem.adapts})
    assert whole_net(dearer, ["direct"]) == pytest.approx(20e-3)


def test_choices_name_their_primitives_and_these_their_libraries() -> None:
    fused = choice("a+b: cpu:f32/fused.separable_blocked{unroll=2}", 1, NHWC, 1.0)
    assert primitive_of(fused) == "separable_blocked"
    assert primitive_of(choice("outside", 0, NCHW, 0.0)) is None
    assert library_of("stock") == library_of("tiled") == "IREE"
    assert (library_of("direct"), library_of("direct_blocked")) == ("vector", "vector, blocks")
    assert library_of("cudnn") == "cudnn"


def test_a_gpu_is_used_where_it_gains_more_than_transfers_take(tables: NetworkTables) -> None:
    best = auto.select(with_gpu(tables, INTEGRATED))
    assert all(best.choices[name].output.device == DEVICE for name in "abc")
    # A transfer of the image over a slow bus takes longer than all layers on the CPU.
    slow = auto.select(with_gpu(tables, Machine(bus=1e6)))
    assert not any(each.output.device == DEVICE for each in slow.choices.values())
    assert slow.cost == pytest.approx(auto.select(tables.problem).cost)


def test_both_modes_are_compared(tables: NetworkTables) -> None:
    cpu, gpgpu = comparison.run([tables], episodes=40, seeds=1)
    assert (cpu.mode, gpgpu.mode, cpu.on_gpu) == ("CPU", "GPGPU", 0)
    assert cpu.base == pytest.approx(14)
    assert cpu.optimum == pytest.approx(14 / 13)
    assert (gpgpu.library, gpgpu.on_gpu) == ("cudnn", 3)
    for row in (cpu, gpgpu):
        assert row.optimum >= max(row.qlearning, row.random, row.by_library, row.by_primitive)
