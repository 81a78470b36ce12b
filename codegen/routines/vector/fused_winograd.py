"""Winograd's minimal filtering by a single kernel of our own (Lavin and Gray, 2016)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sartor.codegen.analysis.convolution import Convolution
from sartor.codegen.analysis.winograd_tiles import PRODUCTS_PER_LOAD, applicable, promising_tiles
from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.machines.core import WIDE, Core
from sartor.codegen.ir.schema import QUANTISED
from sartor.codegen.ir.variants.routine import Parameters, Rejected
from sartor.codegen.ir.variants.traits import Sizes, Traits
from sartor.codegen.ir.winograd import (
    MOST_POINTS,
    MOST_POINTS_IN_INVOCATIONS,
    MOST_POINTS_OF_EXACT,
    MOST_POINTS_OF_INTEGERS,
    MOST_POINTS_OF_ROUNDED,
)
from sartor.codegen.kernels.isa.multipliers import DotElement
from sartor.codegen.kernels.isa.pairs import refused_pairs
from sartor.codegen.kernels.isa.word_pairs import WORD_PAIRS, WordPairElement
from sartor.codegen.kernels.layers.analytic_costs import WinogradCost
from sartor.codegen.kernels.layers.dot_choice import has_amx
from sartor.codegen.kernels.layers.image_layer import ImageLayer
from sartor.codegen.kernels.layers.image_routine import ImageRoutine
from sartor.codegen.kernels.layers.kernel_layer import KernelParts
from sartor.codegen.kernels.winograd.convolution import winograd_convolution, winograd_tilings, workspace_type
from sartor.codegen.kernels.winograd.emitter import WinogradCode
from sartor.codegen.kernels.winograd.geometry import WinogradTiling
from sartor.codegen.mlir.machine import Machine
from sartor.devices import VULKAN

_MOST_CHOICES = 2
_COMPILE_COST = 3.0
# Of invocations, where nothing is measured: no model tells what a buffer that a subgroup shares costs.
_UNMEASURED_SLOWDOWN = 8.0
# Products of pairs in the time of one in f32; their numbers have half the bytes.
_PAIRS_RATE = 1.5
_MASKS_NARROW = "avx512bw"


@dataclass(frozen=True)
class FusedWinograd(ImageRoutine[Convolution]):
    """Winograd's method in the cache: one dispatch encodes, multiplies and decodes blocks of tiles.

    Parameters: those of ``WinogradTiling``.

    Attributes:
        element: instruction that multiplies encoded tiles and filters, which are rounded to its type; None for f32. By
            one for integers, tiles are encoded in integers.
        transforms_filters: whether filters, in f32, are stored as in the model and transformed in each call. That reads
            a fraction of the bytes, and takes time in each inference: it is for the first one.
    """

    name: str = "fused_winograd"
    element: DotElement | None = None
    transforms_filters: bool = False

    @property
    def traits(self) -> Traits:
        return replace(
            super().traits,
            family="fused_winograd",
            instruction=self.element,
            transforms=True,
            transforms_filters=self.transforms_filters,
            rounds_between=self.element is not None,
            cost=WinogradCost(1 if self.element is None else self.element.group),
            sizes=WinogradTiling.names(),
            compile_cost=_COMPILE_COST,
        )

    def match(self, task: Task) -> Convolution | Rejected:
        return applicable(task)

    def channels(self, match: Convolution) -> tuple[int, ...]:
        return match.filter.shape[:2]

    def tilings(self, match: Convolution, machine: Machine) -> list[WinogradTiling] | Rejected:
        refusal = self._refusal(machine)
        if refusal is not None:
            return refusal
        refusal = refused_pairs(machine, self.element, self.storage, match.filter.shape[1])
        if machine.in_subgroups and refusal is not None:
            return refusal
        most = MOST_POINTS_IN_INVOCATIONS if machine.in_subgroups else self._most_points
        tiles = promising_tiles(match, most, self._products_per_load)
        if isinstance(tiles, Rejected):
            return tiles
        group = 1 if self.element is None else self.element.group
        offered = [
            winograd_tiling
            for rank, tile in enumerate(tiles[: None if machine.in_subgroups else _MOST_CHOICES])
            for winograd_tiling in winograd_tilings(match, tile, machine, is_best=rank == 0, group=group)
        ]
        return offered or Rejected("too few tiles for all subgroups of a GPU")

    @property
    def _products_per_load(self) -> float:
        """Multiply-adds that take as long as reading a number from memory."""
        return PRODUCTS_PER_LOAD

    @property
    def _most_points(self) -> int:
        if self.element is None:
            return MOST_POINTS
        return MOST_POINTS_OF_INTEGERS if self.element.is_quantised else MOST_POINTS_OF_ROUNDED

    def _refusal(self, machine: Machine) -> Rejected | None:
        """Why the routine is not offered for a CPU; None if it is."""
        if self.storage is not None and has_amx(machine):
            return Rejected("AMX gains more than this saves")
        refused = None if self.element is None else self.element.refusal(machine)
        rounds = self.element is not None and not self.element.is_quantised
        if refused is not None or self.storage is None or rounds:
            return refused
        # Without this feature LLVM loads narrow pixels at the edge of an image one by one.
        return machine.refusal(_MASKS_NARROW)

    def parts(self, images: ImageLayer, match: Convolution, parameters: Parameters) -> KernelParts:
        convolution = winograd_convolution(
            *(images, match, WinogradTiling.of(parameters), self.element), transforms_filters=self.transforms_filters
        )
        factor = convolution.memories[0] if convolution.is_exact else None
        return KernelParts(WinogradCode(convolution), workspace_type(convolution), factor)


@dataclass(frozen=True)
class WordPairWinograd(FusedWinograd):
    """The same in exact integers, for CPUs of x86 without VNNI: results have the bits of direct convolution."""

    name: str = "winograd_word_pairs"
    storage: str | None = QUANTISED
    element: WordPairElement = WORD_PAIRS

    @property
    def traits(self) -> Traits:
        cost = WordPairCost(self.element.group, self.element)
        return replace(super().traits, transforms=False, rounds_between=False, cost=cost)

    def tilings(self, match: Convolution, machine: Machine) -> list[WinogradTiling] | Rejected:
        # A product has a register of its own before it is added.
        free, core = machine.accumulators - self.element.operands, self.element.core(machine.core)
        return super().tilings(match, replace(machine, accumulators=free, core=core))

    @property
    def _most_points(self) -> int:
        return MOST_POINTS_OF_EXACT

    @property
    def _products_per_load(self) -> float:
        return _PAIRS_RATE * PRODUCTS_PER_LOAD / self.element.group

    def _refusal(self, machine: Machine) -> Rejected | None:
        return self.element.refusal(machine)


@dataclass(frozen=True)
class WordPairCost(WinogradCost):
    """The cost by products of pairs.

    Attributes:
        element: the instruction.
    """

    element: WordPairElement

    def cycles(self, sizes: Sizes, parameters: Mapping[str, int], core: Core = WIDE) -> float:
        return super().cycles(sizes, parameters, self.element.core(core))


@dataclass(frozen=True)
class SubgroupWinograd(FusedWinograd):
    """The same for Vulkan, whose subgroups share encoded tiles in a buffer.

    It is chosen only where it was measured, and so compared with candidate 0: without a barrier that a driver respects
    for buffers it would be wrong.
    """

    name: str = "subgroup_winograd"

    @property
    def traits(self) -> Traits:
        return replace(super().traits, cost=None, slowdown=_UNMEASURED_SLOWDOWN)

    @property
    def devices(self) -> tuple[str, ...]:
        return (VULKAN,)
