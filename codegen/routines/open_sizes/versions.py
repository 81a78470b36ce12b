"""Convolutions over images of any size on a CPU, by one of two kernels, which is chosen by the size when it runs.

Winograd's method with large tiles multiplies least, but its filters take several times the bytes of others, which a
small image reads for a few tiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from sartor.codegen.analysis.sized_task import facts_at
from sartor.codegen.analysis.task_bounds import kind_and_sizes
from sartor.codegen.ir.layer import OpenedTask, Task
from sartor.codegen.ir.packing import Beside, Packing
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.sizes.dims import count_of
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected, integer, required
from sartor.codegen.ir.variants.traits import Sizes, Traits
from sartor.codegen.kernels.layers.kernel_layer import KernelLayer, build_kernel
from sartor.codegen.kernels.open_sizes.costs import FEW, LEAST, MANY, OpenVersionsCost, own_parameters, places_of
from sartor.codegen.kernels.open_sizes.versions import Part, SizedVersions, Version
from sartor.codegen.mlir.kernel_machine import kernel_machine
from sartor.codegen.mlir.machine import Machine
from sartor.codegen.routines.open_sizes.convolution import OpenConvolutionKernel
from sartor.codegen.routines.open_sizes.winograd import OpenWinogradKernel

# Parts of the range's octaves at which both versions are compared by their models.
_PARTS = 16
# How many times as fast the version for few places has to be with the least sizes, and of the bytes of the other
# version's weights those that its own may add.
_LEAST_GAIN, _MOST_ADDED = 1.1, 0.5
_COMPILE_COST = 4.0


@dataclass(frozen=True)
class OpenVersions:
    """Two kernels, of which the number of places chooses.

    Parameters: those of both, and from how many places on the second runs.

    Attributes:
        name: the algorithm in descriptors.
        few: computes few places.
        many: computes others.
    """

    name: str
    few: OpenConvolutionKernel | OpenWinogradKernel
    many: OpenWinogradKernel = field(default_factory=OpenWinogradKernel)

    @property
    def traits(self) -> Traits:
        costs = [version.traits.estimate for version in (self.few, self.many)]
        assert costs[0] is not None
        assert costs[1] is not None
        estimate = OpenVersionsCost(costs[0], costs[1])
        return Traits(
            fuses=True, opens=True, transforms=True, estimate=estimate, compile_cost=_COMPILE_COST, threshold=LEAST
        )

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        """Parameter sets worth trying, best guess first, or why the routine does not apply."""
        machine = required(kernel_machine(task, target))
        few, many = (required(version.parameters(task, target)) for version in (self.few, self.many))
        if task.opened is None or not few:
            return Rejected("its sizes are known")
        costs = _Costs(self, [*_sizes(task, task.opened)], machine)
        one = min(few, key=lambda tiling: costs.few(tiling)[0])
        thresholds = [(other, costs.least(one, other)) for other in many]
        listed = [_joined(one, other, least) for other, least in thresholds if least]
        return listed or Rejected("one version is the faster by the models with all sizes")

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        """The implementation for one parameter set, or why there is none."""
        return build_kernel(self, task, parameters, target)

    def layer(self, task: Task, parameters: Parameters, target: Target) -> KernelLayer:
        """The kernel for one parameter set.

        Raises:
            RejectionError: if there is no kernel for the layer.
        """
        few = self.few.layer(task, own_parameters(parameters, FEW), target)
        many = self.many.layer(task, own_parameters(parameters, MANY), target)
        if (few.inputs, few.output) != (many.inputs, many.output) or few.flags or many.flags:
            raise RejectionError("the versions do not read and write the same")
        packings = _packings(task, few, many)
        dims = task.results[0].dims or task.results[0].shape
        code = SizedVersions(
            few=_version(task, few, packings, 0),
            many=_version(task, many, packings, 1),
            places=count_of(dims[:-1]),
            least=integer(parameters[LEAST]),
        )
        spaces = [layer.workspace for layer in (few, many) if layer.workspace]
        space = max(spaces, key=lambda tensor: tensor.elements, default=None)
        given = iter(packings)
        rewrites = [replace(rewrite, packings=[next(given) for _ in rewrite.packings]) for rewrite in many.rewrites]
        # They own the ops that the other version's code refers to.
        rewrites += [replace(rewrite, packings=[]) for rewrite in few.rewrites]
        return replace(many, code=code, rewrites=tuple(rewrites), workspace=space)


def _packings(task: Task, few: KernelLayer, many: KernelLayer) -> list[Packing]:
    """The packing of each weight: that of both versions, or one of each.

    Raises:
        RejectionError: if weights of both take more than is worth it.
    """
    pairs = [*zip(few.packings, many.packings, strict=True)]
    added, own = 0, 0
    for weight, (one, other) in zip(task.weights, pairs, strict=True):
        added += 0 if one == other else one.type_of(weight).bytes
        own += other.type_of(weight).bytes
    if added > _MOST_ADDED * own:
        raise RejectionError(f"{added} bytes of weights for few places beside {own} for others are too many")
    return [other if one == other else Packing((Beside(one, other),)) for one, other in pairs]


def _version(task: Task, layer: KernelLayer, packings: Sequence[Packing], number: int) -> Version:
    """The first or the second version."""
    parts = []
    for index, (weight, packing) in enumerate(zip(task.weights, packings, strict=True)):
        if packing != layer.packings[index]:
            (beside,) = packing.steps
            assert isinstance(beside, Beside)
            sizes = [own.type_of(weight).elements for own in (beside.first, beside.second)]
            parts.append((len(task.inputs) + index, Part(number * sizes[0], sizes[number])))
    buffers = len(task.inputs) + len(task.weights) + 1 + (layer.workspace is not None)
    return Version(layer.code, tuple(parts), buffers)


class _Costs:
    """Predicted cycles of both versions from the least to the largest sizes."""

    def __init__(self, of: OpenVersions, facts: Sequence[Sizes], machine: Machine) -> None:
        self._of = of
        self._facts = facts
        self._machine = machine

    def few(self, parameters: Parameters) -> list[float]:
        """Cycles of the version for few places."""
        return self._cycles(self._of.few.traits, parameters)

    def least(self, few: Parameters, many: Parameters) -> int | None:
        """The number of places from which on the second version is the faster; None if both are not worth it."""
        one, other = self.few(few), self._cycles(self._of.many.traits, many)
        if one[0] * _LEAST_GAIN > other[0]:
            return None
        faster = [places_of(facts) for facts, cycles, own in zip(self._facts, one, other, strict=True) if own <= cycles]
        return min(faster, default=None)

    def _cycles(self, traits: Traits, parameters: Parameters) -> list[float]:
        numbers = {name: integer(value) for name, value in parameters.items()}
        assert traits.estimate is not None
        return [traits.estimate.cycles(facts, numbers, self._machine.core) for facts in self._facts]


def _sizes(task: Task, opened: OpenedTask) -> Iterator[Sizes]:
    """Numbers of the task from the least to the largest sizes by octaves, which all symbols have together."""
    for part in range(_PARTS + 1):
        sizes = {symbol.name: symbol.at_part(part / _PARTS) for symbol in opened.symbols}
        yield kind_and_sizes(facts_at(task, sizes))[1]


def _joined(few: Parameters, many: Parameters, least: int) -> Parameters:
    """The parameters of both versions."""
    own = {f"{prefix}{name}": value for prefix, given in ((FEW, few), (MANY, many)) for name, value in given.items()}
    return {**own, LEAST: least}
