"""The plans of the zoo's networks whose first inferences ``benchmarks/cold.py`` times, and what they take."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import sartor
from benchmarks.zoo import write
from sartor.errors import UsageError
from sartor.first_inference.cold_bench import Rival
from sartor.policies import Precision
from sartor.runtime.manifest import read_manifest
from sartor.tuning.records.network import Network
from sartor.tuning.selection.problem.cost import Objective

OVERLAPPED = "P"
_TIMES = "seconds.csv"


class ColdPlan(StrEnum):
    """A plan of the ablation. Modules are called after it."""

    LATENCY = "latency"
    KERNELS = "cold"
    WEIGHTS = "cold-weights"
    BOTH = "cold+latency"

    @property
    def knobs(self) -> str:
        """NNV12's letters for what was chosen for the first inference: K kernels, C the form of their weights."""
        return _KNOBS[self]

    def settings(self, threads: int, database: Path) -> sartor.CompileConfig:
        """What it is compiled with."""
        return sartor.CompileConfig(threads=threads, database=database, **_SETTINGS[self])


_KNOBS = {ColdPlan.LATENCY: "latency", ColdPlan.KERNELS: "K", ColdPlan.WEIGHTS: "KC", ColdPlan.BOTH: "both"}
NARROW_ERROR = 0.05
"""Allowed error of outputs where filters may be stored in 8 bits."""
_SETTINGS: Mapping[ColdPlan, Mapping[str, Any]] = {
    ColdPlan.LATENCY: {"objective": Objective.LATENCY},
    ColdPlan.KERNELS: {"objective": Objective.COLD},
    ColdPlan.WEIGHTS: {
        "objective": Objective.COLD,
        "precision": Precision.INT8_WEIGHTS,
        "max_error": NARROW_ERROR,
    },
    ColdPlan.BOTH: {"objective": Objective.COLD_LATENCY},
}


@dataclass(frozen=True)
class Size:
    """What a plan takes on the disk, and to make (NNV12, table 4).

    Attributes:
        network: name.
        plan: which one.
        model_mib: of the ONNX file.
        module_mib: of the module.
        weights_mib: of the weights in it.
        added_mib: of those that only the second of two plans reads.
        seconds: to make the plan and the module, by its folder's record; 0 if that is not known.
    """

    network: str
    plan: str
    model_mib: float
    module_mib: float
    weights_mib: float
    added_mib: float
    seconds: float


def plan_file(network: str, directory: Path, plan: ColdPlan) -> Path:
    """The module of a plan, which need not be there yet."""
    return directory / f"{network}.{plan}.vmfb"


def make_plan(network: str, directory: Path, plan: ColdPlan, threads: int) -> None:
    """Compile a plan of a network if that was not done, and record what that took.

    Raises:
        SartorError: if it does not compile.
    """
    model, module = write(network, directory), plan_file(network, directory, plan)
    if module.exists():
        return
    begin = time.perf_counter()
    sartor.compile(model, plan.settings(threads, directory / "tuning.db"), output=module)
    with (directory / _TIMES).open("a") as record:
        record.write(f"{module.name},{time.perf_counter() - begin:.1f}\n")


def check_plan(network: str, directory: Path, plan: ColdPlan) -> None:
    """Make sure that a network and its plan are there.

    Raises:
        UsageError: if they are not.
    """
    for file in (directory / f"{network}.onnx", plan_file(network, directory, plan)):
        if not file.exists():
            raise UsageError(f"'{file}' is not there; make it with --only prepare")


def size_of(network: str, directory: Path, plan: ColdPlan) -> Size:
    """What a plan that was made takes."""
    model, module = directory / f"{network}.onnx", plan_file(network, directory, plan)
    manifest = read_manifest(module)
    layers = Network.from_json(manifest.network, f"the network in '{module}'").layers if manifest.network else ()
    added = 0 if manifest.successor is None else manifest.successor["weight_bytes"]
    weights = sum(weight.bytes for layer in layers for weight in layer.weights) + added
    of_model, of_module = (each.stat().st_size / 2**20 for each in (model, module))
    seconds = _recorded(directory).get(module.name, 0.0)
    return Size(network, str(plan), of_model, of_module, weights / 2**20, added / 2**20, seconds)


def _recorded(directory: Path) -> dict[str, float]:
    """Seconds that modules took to make, by file name, of the last time."""
    record = directory / _TIMES
    lines = record.read_text().splitlines() if record.exists() else []
    return {name: float(seconds) for name, _, seconds in (line.rpartition(",") for line in lines)}


def rivals_of(network: str, directory: Path, plans: tuple[ColdPlan, ...], *, settles: bool = True) -> dict[str, Rival]:
    """The ways to run a network's plans beside the first one overlapped: overlapped (P), and if it ``settles``, with
    all of the file brought into place before the first layer runs. Both plans in one file are only overlapped."""
    found = {}
    for plan in plans:
        module = plan_file(network, directory, plan)
        if settles and plan is not ColdPlan.BOTH:
            found[plan.knobs] = Rival(module, settled=True)
        found[overlapped(plan)] = Rival(module)
    del found[overlapped(plans[0])]
    return found


def overlapped(plan: ColdPlan) -> str:
    """The name of a plan that reads while it runs."""
    if plan is ColdPlan.BOTH:
        return plan.knobs
    return f"{plan.knobs} + {OVERLAPPED}" if plan is ColdPlan.LATENCY else f"{plan.knobs}{OVERLAPPED}"
