"""The selection problem that cost tables make of a layer graph."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from sartor.codegen.ir.graph import INPUT_PREFIX, OUTPUT_PREFIX, Childnet, LayerGraph
from sartor.codegen.ir.layer import Layer, TensorType
from sartor.codegen.ir.packing import Beside
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.variants.routine import Variant
from sartor.codegen.linking.adapts import AdaptKind
from sartor.codegen.linking.scratch import aligned
from sartor.errors import InfeasibleError
from sartor.tuning.cost_tables.childnet_choices import asked_for, childnet_choices
from sartor.tuning.cost_tables.fused_choices import is_inside, member_choices
from sartor.tuning.cost_tables.shared_transfers import with_shared_transfers
from sartor.tuning.cost_tables.tables import Tables, adapt_seconds, transfer_seconds
from sartor.tuning.errors.error_sum import squared_error
from sartor.tuning.records.measurement import Measurement
from sartor.tuning.selection.problem.cost import Cost, Objective
from sartor.tuning.selection.problem.limits import Quantity
from sartor.tuning.selection.problem.pin import Pin
from sartor.tuning.selection.problem.problem import Choice, Edge, Node, Problem, Value
from sartor.tuning.selection.problem.trade_offs import worth_keeping
from sartor.tuning.transfers.conversions import Link, links_of


def selection_problem(
    graph: LayerGraph,
    tables: Tables,
    device: str,
    objective: Objective,
    pins: Sequence[Pin] = (),
    quantities: Collection[Quantity] = (),
    may_run: Callable[[Layer, Variant], bool] | None = None,
    keep: int = 1,
) -> Problem:
    """The graph with every usable variant of each layer as a choice.

    Args:
        graph: the network.
        tables: costs.
        device: where all layers run.
        objective: what will be minimised.
        pins: restrictions of layers.
        quantities: what else will be minimised or bounded; a choice that is no better in any of them is left out.
        may_run: which variants are open to which layers, all if None; pins allow no others.
        keep: number of choices with equal schemas that must be as good before one is left out.

    Raises:
        InfeasibleError: if a layer has none, or none that its pins allow.
    """
    wanted = (Quantity(objective.value), *(quantity for quantity in quantities if quantity.value != objective.value))
    return _Builder(graph, tables, device, objective, pins, wanted, may_run, keep).build()


def choice_of(
    layer: Layer, variant: Variant, measurement: Measurement, tables: Tables, uses: Mapping[str, int]
) -> Choice:
    """A variant of a layer as a choice; ``uses`` says how many layers read each weight."""
    key = layer.task.key
    shared = _shared(layer, variant, uses)
    own = measurement.packed_bytes - sum(size for _, size in shared)
    return Choice(
        variant.descriptor,
        variant.implementation.inputs,
        variant.implementation.output,
        Cost(
            latency=tables.seconds(key, variant.descriptor) or 0.0,
            cold=measurement.packed_bytes / tables.loading if tables.loading else 0.0,
            memory=own,
            error=squared_error(tables.error(layer, variant, measurement)),
            starting=tables.starting.get((key, variant.descriptor), 0.0),
            repeated=_repeated(layer, variant),
        ),
        scratch=tables.scratch.get((key, variant.descriptor), 0),
        shared=shared,
    )


def weight_uses(graph: LayerGraph) -> Counter[str]:
    """How many layers read each weight."""
    return Counter(name for layer in graph.layers for name in layer.weights)


def _shared(layer: Layer, variant: Variant, uses: Mapping[str, int]) -> tuple[tuple[str, float], ...]:
    """Weights that are used more than once; those packed alike are in the module once."""
    packings = variant.implementation.packings
    return tuple(
        (f"{name} {packing}", packing.type_of(logical).bytes)
        for name, packing, logical in zip(layer.weights, packings, layer.task.weights, strict=True)
        if uses[name] > 1
    )


def _repeated(layer: Layer, variant: Variant) -> float:
    """Bytes of the weights that a variant reads in two forms, in the smaller of both."""
    return sum(
        min(form.type_of(weight).bytes for form in (step.first, step.second))
        for packing, weight in zip(variant.implementation.packings, layer.task.weights, strict=True)
        for step in packing.steps
        if isinstance(step, Beside)
    )


def _nothing_usable(layer: Layer, tables: Tables, pinned: bool) -> str:
    if pinned:
        names = ", ".join(variant.descriptor for variant in tables.variants[layer.task.key])
        return f"no routine of layer '{layer.name}' fits its pins, it has {names}"
    failures = [
        measurement.message for measurement in tables.measured.get(layer.task.key, {}).values() if measurement.message
    ]
    return f"no routine of layer '{layer.name}' works: {failures[0] if failures else 'none was measured'}"


class _Builder:
    def __init__(
        self,
        graph: LayerGraph,
        tables: Tables,
        device: str,
        objective: Objective,
        pins: Sequence[Pin],
        quantities: Sequence[Quantity],
        may_run: Callable[[Layer, Variant], bool] | None,
        keep: int,
    ) -> None:
        self._pins = pins
        self._may_run = may_run
        self._keep = keep
        self._quantities = quantities
        self._graph = graph
        self._tables = tables
        self._device = device
        self._objective = objective
        self._tasks = {layer.name: layer.task.key for layer in graph.layers}
        self._uses = weight_uses(graph)
        self._adapts: dict[tuple[Edge, Schema, Schema], Cost] = {}
        # Of the results of fused kernels, by the schemas of the values inside.
        self._inside_bytes: dict[Schema, int] = {}
        self._fused = self._fused_choices()

    def build(self) -> Problem:
        graph = self._graph
        given = {output.source.source for output in graph.outputs if output.source}
        nodes = [
            Node(INPUT_PREFIX + value.name, (self._fixed(value.type, 0),), value.type.bytes, kept=True)
            for value in graph.inputs
        ]
        nodes += [
            Node(layer.name, self._choices(layer), _result_bytes(layer, layer.name in given), layer.name in given)
            for layer in graph.layers
        ]
        nodes += [
            Node(OUTPUT_PREFIX + output.name, (self._fixed(output.type, 1),))
            for output in graph.outputs
            if output.source
        ]
        by_name = {node.name: node for node in nodes}
        links = list(links_of(graph))
        for link in links:
            self._add_adapts(link, by_name[link.edge.producer], by_name[link.edge.consumer])
        nodes = self._stored(nodes, links)
        problem = Problem(tuple(nodes), tuple(link.edge for link in links), self._adapts, self._objective)
        return self._sharing_transfers(problem, links) if self._tables.transfers else problem

    def _stored(self, nodes: Sequence[Node], links: Sequence[Link]) -> list[Node]:
        """The nodes with the sizes of their outputs in narrower types, and within fused kernels.

        Of several results a choice tells the schema of the first alone.
        """
        single = {layer.name: layer.task.results[0] for layer in self._graph.layers if len(layer.task.results) == 1}
        single |= {INPUT_PREFIX + value.name: value.type for value in self._graph.inputs}
        choices = {node.name: node.choices for node in nodes}
        schemas = {node.name: {choice.output for choice in node.choices} for node in nodes}
        for edge in (link.edge for link in links):
            schemas[edge.producer] |= {choice.inputs[edge.slot] for choice in choices[edge.consumer]}
        sizes = {
            node.name: _sizes_in(single[node.name], schemas[node.name], node, self._inside_bytes)
            for node in nodes
            if node.name in single
        }
        return [replace(node, stored=sizes.get(node.name, ())) for node in nodes]

    def _sharing_transfers(self, problem: Problem, links: Sequence[Link]) -> Problem:
        carried = {link.edge.value: link for link in links}

        def moved(value: Value, produced: Schema, device: str) -> float:
            link = carried[value]
            sources = self._schemas_of(link, produced)
            return min(transfer_seconds(link.logical, source, device, self._tables) for source in sources)

        return with_shared_transfers(problem, moved)

    def _fixed(self, tensor: TensorType, inputs: int) -> Choice:
        """The only choice of a network input or output: ONNX's layout, at no cost."""
        schema = Schema.plain(tensor, self._device)
        return Choice("outside", (schema,) * inputs, schema, Cost())

    def _choices(self, layer: Layer) -> tuple[Choice, ...]:
        usable = self._usable(layer)
        allowed = [pair for pair in usable if self._allowed(layer, layer.name, pair[0])]
        nets, asked = asked_for(self._graph.childnets_of(layer.name), layer.name, [pin.layers for pin in self._pins])
        allowed = [] if asked else allowed
        fused = (*(() if asked else self._fused[layer.name]), *self._made_of_children(layer, nets))
        if not allowed and not fused:
            raise InfeasibleError(_nothing_usable(layer, self._tables, bool(usable)))
        choices = [self._choice(layer, variant, measurement) for variant, measurement in allowed]
        kept = worth_keeping(choices, self._quantities, self._keep)
        return (*(choice for choice in choices if choice is choices[0] or choice in kept), *fused)

    def _allowed(self, layer: Layer, name: str, variant: Variant) -> bool:
        """Whether a layer may run a variant, and its pins allow the variant under this name."""
        is_open = self._may_run is None or self._may_run(layer, variant)
        return is_open and all(pin.allows(name, variant.descriptor) for pin in self._pins)

    def _made_of_children(self, layer: Layer, nets: Sequence[Childnet]) -> Iterator[Choice]:
        """Choices for the childnets of a layer that have a plan and that its pins allow."""
        for net in nets:
            if not all(pin.allows(layer.name, net.descriptor) for pin in self._pins):
                continue
            try:
                problem = self._inside(net).build()
            except InfeasibleError:
                continue
            ends = [INPUT_PREFIX + value.name for value in net.graph.inputs]
            yield from childnet_choices(net, problem, ends, OUTPUT_PREFIX + layer.name)

    def _inside(self, net: Childnet) -> _Builder:
        """A builder for the problem of a childnet."""
        return _Builder(
            *(net.graph, self._tables, self._device, self._objective),
            *(self._pins, self._quantities, self._may_run, self._keep),
        )

    def _usable(self, layer: Layer) -> list[tuple[Variant, Measurement]]:
        """Variants of a layer that are usable, and whose error leaves finite numbers, with measurements."""
        usable = self._tables.usable(layer.task.key)
        return [pair for pair in usable if math.isfinite(self._tables.error(layer, *pair))]

    def _fused_choices(self) -> dict[str, list[Choice]]:
        """Choices that stand for fused kernels, by member."""
        choices: dict[str, list[Choice]] = {layer.name: [] for layer in self._graph.layers}
        for fusion in self._graph.fusions:
            names = (fusion.layer.name, *fusion.members)
            kernels = [
                self._choice(fusion.layer, variant, measurement)
                for variant, measurement in self._usable(fusion.layer)
                if variant.implementation.kernel is not None
                and all(self._allowed(fusion.layer, name, variant) for name in names)
            ]
            for choice in worth_keeping(kernels, self._quantities, self._keep):
                for member, own in member_choices(fusion, choice).items():
                    choices[member].append(own)
                    if is_inside(own.output):
                        self._inside_bytes[own.output] = _result_bytes(fusion.layer, given=False)
        return choices

    def _choice(self, layer: Layer, variant: Variant, measurement: Measurement) -> Choice:
        return choice_of(layer, variant, measurement, self._tables, self._uses)

    def _add_adapts(self, link: Link, producer: Node, consumer: Node) -> None:
        outputs = {choice.output for choice in producer.choices}
        inputs = {choice.inputs[link.edge.slot] for choice in consumer.choices}
        produced, needed = ({schema for schema in schemas if not is_inside(schema)} for schemas in (outputs, inputs))
        for written in produced:
            sources = self._schemas_of(link, written)
            for target in needed - {written}:
                seconds = min(self._seconds(link.logical, source, target) for source in sources)
                if math.isfinite(seconds):
                    self._adapts[link.edge, written, target] = Cost(latency=seconds)

    def _schemas_of(self, link: Link, written: Schema) -> set[Schema]:
        """The schemas that a value may have if its layer writes its first result in ``written``: a choice is known by
        that one, but others may have another type or layout."""
        key = self._tasks.get(link.ref.source or "")
        if key is None or not link.ref.index:
            return {written}
        results = [variant.implementation.outputs for variant, _ in self._tables.usable(key)]
        return {result[link.ref.index] for result in results if result[0] == written} or {written}

    def _seconds(self, logical: TensorType, source: Schema, target: Schema) -> float:
        kind = AdaptKind.between(logical, source, target)
        return 0.0 if kind is None else adapt_seconds(kind, self._tables)


def _sizes_in(
    tensor: TensorType, schemas: Iterable[Schema], node: Node, inside: Mapping[Schema, int]
) -> tuple[tuple[Schema, float], ...]:
    """Sizes of a tensor in those schemas in which it takes another size than in its own type.

    Within a fused kernel it is never in memory, and stands for the kernel's result, of ``inside`` bytes, which is there
    from the first layer on.
    """
    sizes = {
        schema: min(inside.get(schema, math.inf), node.output_bytes)
        if is_inside(schema)
        else replace(tensor, dtype=schema.dtype).bytes
        for schema in schemas
    }
    rounded = {schema: size if node.kept else aligned(int(size)) for schema, size in sizes.items()}
    return tuple(sorted((schema, float(size)) for schema, size in rounded.items() if size != node.output_bytes))


def _result_bytes(layer: Layer, given: bool) -> int:
    """Bytes of the results: network outputs have separate buffers, others share one aligned buffer."""
    sizes = [result.bytes for result in layer.task.results]
    return sum(sizes if given else map(aligned, sizes))
