"""A model that ONNX Runtime cannot run whole, or is not trusted with whole, as a callable from feeds to outputs."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from onnx import GraphProto, ModelProto, NodeProto

from sartor.errors import ReferenceFailedError, UnsupportedModelError, UsageError
from sartor.onnx_model.graphs.walk import nodes, subgraphs
from sartor.onnx_model.rewrites.structure.inline_functions import inline_functions
from sartor.onnx_model.rewrites.structure.sort_nodes import sort_nodes
from sartor.reference.trusted.oracles.call import Call
from sartor.reference.trusted.oracles.element_types import body_input_types, infer_types
from sartor.reference.trusted.oracles.table import DEVIATIONS, deviates
from sartor.reference.trusted.parts.division import Surroundings, named_types
from sartor.reference.trusted.parts.evaluation import GraphRun
from sartor.runtime.driver.counts import cut_outputs, find_cuts
from sartor.runtime.driver.signature import Array
from sartor.runtime.reference import OnnxRuntimeReference


class PartedModel:
    """Runs what ONNX Runtime has trusted kernels for in it, and single nodes by their definitions.

    Args:
        model: with its weights, or with names of files beside ``folder``; it is changed.
        folder: of the files that hold its weights.
        threads, optimises, layouts, cuts: as for ``OnnxRuntimeReference``.
        refused: names of nodes that ONNX Runtime fails to run.

    Attributes:
        input_names, output_names, cut_names: as of ``OnnxRuntimeReference``.
        own: the nodes that something else than ONNX Runtime computes.
        runs_runtime: whether ONNX Runtime computes any.

    Raises:
        UnsupportedModelError: if nobody is trusted with a node.
    """

    def __init__(
        self,
        model: ModelProto,
        *,
        folder: Path | None = None,
        threads: int | None = None,
        optimises: bool = True,
        layouts: bool = True,
        cuts: bool = True,
        refused: frozenset[str] = frozenset(),
    ) -> None:
        whole = named(model)
        load = partial(
            OnnxRuntimeReference,
            threads=threads,
            optimises=optimises,
            layouts=layouts,
            cuts=False,
            folder=folder,
        )
        versions = versions_of(whole)
        around = Surroundings(versions, whole.ir_version, {}, folder, refused)
        self._run = GraphRun(whole.graph, {}, around, load)
        self.own, self.runs_runtime = self._run.own, self._run.runs_runtime
        self._watch = around.watch
        weights = {tensor.name for tensor in whole.graph.initializer}
        self.input_names = [value.name for value in whole.graph.input if value.name not in weights]
        self._names = [value.name for value in whole.graph.output]
        self._cuts = cuts
        cuts_by_name = find_cuts(self._names) if cuts else {}
        hidden = {cut.counted for cut in cuts_by_name.values()}
        self.output_names = [name for index, name in enumerate(self._names) if index not in hidden]
        self.cut_names = frozenset(self._names[index] for index in cuts_by_name)

    def __call__(self, feeds: Mapping[str, Array], seconds: float = math.inf) -> list[Array]:
        """As of ``OnnxRuntimeReference``; it ends when it is done, and then says that it took too long."""
        end = time.monotonic() + seconds
        missing = [name for name in self.input_names if name not in feeds]
        if missing:
            raise UsageError(f"the reference cannot run the model: the input '{missing[0]}' is missing")
        try:
            outputs = self._run(feeds, {})
        except UnsupportedModelError as error:
            raise UsageError(str(error)) from error
        if time.monotonic() > end:
            raise ReferenceFailedError(f"the reference did not end an inference within {seconds:.3g} s")
        return cut_outputs(self._names, outputs) if self._cuts else outputs

    def calls(self, feeds: Mapping[str, Array]) -> list[tuple[Call, list[Array]]]:
        """What each node of ``own`` reads and computes on some inputs, once for each time that it runs."""
        made: list[tuple[Call, list[Array]]] = []
        self._watch.calls = made
        try:
            self(feeds)
        finally:
            self._watch.calls = None
        return made


def versions_of(model: ModelProto) -> dict[str, int]:
    """The versions of the operator sets that a model imports, by domain."""
    return {"" if opset.domain == "ai.onnx" else opset.domain: opset.version for opset in model.opset_import}


def named(model: ModelProto) -> ModelProto:
    """The model, changed in place: without functions of its own, sorted, and with a name of its own for each node.

    Raises:
        UnsupportedModelError: if a function cannot be inlined, or nodes cannot be sorted.
    """
    inline_functions(model)
    sort_nodes(model)
    used = set[str]()
    for index, node in enumerate(nodes(model.graph)):
        node.domain = "" if node.domain == "ai.onnx" else node.domain
        if not node.name or node.name in used:
            node.name = f"{node.name or node.op_type}.{index}"
        used.add(node.name)
    return model


def has_deviations(model: ModelProto) -> bool:
    """Whether ONNX Runtime is not trusted with a node of a model, though it has a kernel for it; see ``named``."""
    kinds = {("" if node.domain == "ai.onnx" else node.domain, node.op_type) for node in nodes(model)}
    if kinds.isdisjoint(DEVIATIONS):
        return False
    whole = named(model)
    return any(deviates(node, given) for node, given in _typed(whole.graph, {}, versions_of(whole)))


def _typed(
    graph: GraphProto, types: Mapping[str, int], versions: Mapping[str, int]
) -> Iterator[tuple[NodeProto, list[int | None]]]:
    """Nodes of a graph and its bodies with the element types of their inputs."""
    known = dict(types)
    infer_types(graph, known, versions)
    for node in graph.node:
        yield node, [known.get(name) for name in node.input]
        given = body_input_types(node, known)
        for body in subgraphs(node):
            yield from _typed(body, {**known, **named_types(body, given)}, versions)
