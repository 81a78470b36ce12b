"""A routine for fused pairs whose kernels fail on the device. Workers import what is planted by name."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.packing import Packing
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.routines.iree.stock import Stock
from tests.tuning.measuring.device_faults import DeviceFault


@dataclass(frozen=True)
class FailingFusion:
    """Stock code for a fused pair that fails when it is given its weights.

    Attributes:
        fault: what happens to the device.
        name: the algorithm in descriptors.
    """

    fault: DeviceFault
    name: str = "failing"

    @property
    def traits(self) -> Traits:
        return Traits(fuses=True)

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        return [{}]

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        built = Stock().build(task, parameters, target)
        if isinstance(built, Rejected):
            return built
        failing = tuple(Packing((*packing.steps, self.fault)) for packing in built.packings)
        return replace(built, packings=failing)
