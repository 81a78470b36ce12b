"""What the user asks of a compilation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from platformdirs import user_cache_path

from sartor.codegen.target import Target
from sartor.tuning.cost import Objective
from sartor.tuning.tables import Pin
from sartor.tuning.tuner import default_threads

DEFAULT_MAX_ERROR = 1e-3


def default_database() -> Path:
    """The user's tuning database."""
    return user_cache_path("sartor") / "tuning.db"


@dataclass(frozen=True)
class CompileConfig:
    """Settings of one compilation.

    Attributes:
        target: device and architecture.
        threads: CPU workers to tune for.
        max_error: relative error of the largest output that is allowed against ONNX Runtime.
        objective: what the plan minimises.
        selector: which solver chooses.
        plans: how many of the best plans are compiled whole and measured, before layers were timed in place.
        shapes: input name to the shape that binds its dynamic dimensions.
        pins: restrictions of layers to routines.
        database: file of the tuning database.
        external_weights: where to write the weights if not into the module.
        dump_directory: where to write the module after every pass, or None.
        jobs: worker processes for compiling.
    """

    target: Target = field(default_factory=lambda: Target.create("cpu"))
    threads: int = field(default_factory=default_threads)
    max_error: float = DEFAULT_MAX_ERROR
    objective: Objective = Objective.LATENCY
    selector: str = "dprs"
    plans: int = 1
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    pins: tuple[Pin, ...] = ()
    database: Path = field(default_factory=default_database)
    external_weights: Path | None = None
    dump_directory: Path | None = None
    jobs: int = field(default_factory=default_threads)

    def __post_init__(self) -> None:
        """Code is generated for the threads that it is tuned for."""
        object.__setattr__(self, "target", replace(self.target, threads=self.threads))
