"""The plans of the zoo's networks whose first inferences ``benchmarks/cold.py`` times, and what they take."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import sartor
from benchmarks.zoo import write
from sartor.errors import UsageError
from sartor.first_inference.cold_bench import Rival
from sartor.runtime.manifest import read_manifest
from sartor.tuning.records.network import Network
from sartor.tuning.selection.problem.cost import Objective

NAMES = {Objective.LATENCY: "latency", Objective.COLD: "K", Objective.COLD_LATENCY: "both"}
"""Plans by what they are for; K is NNV12's choice of kernels."""
OVERLAPPED = " + P"
_TIMES = "seconds.csv"


@dataclass(frozen=True)
class Size:
    """What a plan takes on the disk, and to make (NNV12, table 4).

    Attributes:
        network: name.
        plan: its objective.
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


def plan_file(network: str, directory: Path, objective: Objective) -> Path:
    """The module of a plan, which need not be there yet."""
    return directory / f"{network}.{objective}.vmfb"


def make_plan(network: str, directory: Path, objective: Objective, threads: int) -> None:
    """Compile a network for an objective if that was not done, and record what that took.

    Raises:
        SartorError: if it does not compile.
    """
    model, module = write(network, directory), plan_file(network, directory, objective)
    if module.exists():
        return
    begin = time.perf_counter()
    config = sartor.CompileConfig(threads=threads, objective=objective, database=directory / "tuning.db")
    sartor.compile(model, config, output=module)
    with (directory / _TIMES).open("a") as record:
        record.write(f"{module.name},{time.perf_counter() - begin:.1f}\n")


def check_plan(network: str, directory: Path, objective: Objective) -> None:
    """Make sure that a network and its plan are there.

    Raises:
        UsageError: if they are not.
    """
    for file in (directory / f"{network}.onnx", plan_file(network, directory, objective)):
        if not file.exists():
            raise UsageError(f"'{file}' is not there; make it with --only prepare")


def size_of(network: str, directory: Path, objective: Objective) -> Size:
    """What a plan that was made takes."""
    model, module = directory / f"{network}.onnx", plan_file(network, directory, objective)
    manifest = read_manifest(module)
    layers = Network.from_json(manifest.network, f"the network in '{module}'").layers if manifest.network else ()
    added = 0 if manifest.successor is None else manifest.successor["weight_bytes"]
    weights = sum(each.bytes for layer in layers for each in layer.weights) + added
    of_model, of_module = (each.stat().st_size / 2**20 for each in (model, module))
    seconds = _recorded(directory).get(module.name, 0.0)
    return Size(network, str(objective), of_model, of_module, weights / 2**20, added / 2**20, seconds)


def _recorded(directory: Path) -> dict[str, float]:
    """Seconds that modules took to make, by file name, of the last time."""
    record = directory / _TIMES
    lines = record.read_text().splitlines() if record.exists() else []
    return {name: float(seconds) for name, _, seconds in (line.rpartition(",") for line in lines)}


def rivals_of(network: str, directory: Path, plans: tuple[Objective, ...]) -> dict[str, Rival]:
    """The ways to run a network's plans beside the first one overlapped: each with all of the file brought into place
    before the first layer runs, and overlapped (P). Both plans in one file are only overlapped."""
    found = {}
    for objective in plans:
        module, name = plan_file(network, directory, objective), NAMES[objective]
        if objective is not Objective.COLD_LATENCY:
            found[f"{name}, settled"] = Rival(module, settled=True)
        found[overlapped(objective)] = Rival(module)
    del found[overlapped(plans[0])]
    return found


def overlapped(objective: Objective) -> str:
    """The name of a plan that reads while it runs."""
    name = NAMES[objective]
    return name if objective is Objective.COLD_LATENCY else f"{name}{OVERLAPPED}"
