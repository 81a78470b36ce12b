"""Results of a compilation, and publishing files atomically: no incomplete file gets the final name."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sartor.errors import UsageError
from sartor.tuning.errors.error_measures import RELATIVE, ErrorMeasure
from sartor.tuning.records.plan import Plan
from sartor.tuning.selection.problem.limits import Amounts, Quantity
from sartor.workspace import partial_file


@dataclass(frozen=True)
class ParetoPoint:
    """A plan on a Pareto front.

    Attributes:
        plan: the plan.
        needed: predicted amount of each quantity: seconds, bytes, sum of squared errors.
        error: of the outputs by the user's measure, simulated; None if no layer may be narrower than the model.
    """

    plan: Plan
    needed: Amounts
    error: float | None = None


@dataclass(frozen=True)
class ParetoFront:
    """The Pareto front of two quantities: plans between the best for one and the best for the other.

    Attributes:
        first: the quantity that the points are sorted by, the least first.
        second: the quantity that is traded for it.
        points: none is better than another in one of the two and no worse in the other.
        complete: whether there are no other points.
    """

    first: Quantity
    second: Quantity
    points: tuple[ParetoPoint, ...]
    complete: bool


@dataclass(frozen=True)
class Artifact:
    """A finished module.

    Attributes:
        path: the .vmfb.
        plan: the plan from which it was built, with measured times if it was tuned in this run.
        error: of the outputs against ONNX Runtime; None if it was not run.
        size: bytes of the .vmfb.
        weights: the .irpa beside it, if the weights are not inside.
        pareto: the front, if one was asked for.
        measure: of the error.
        samples: number of samples on which the error was measured.
        unchecked: outputs that are constant or arbitrary on these samples, so their error means nothing.
    """

    path: Path
    plan: Plan
    error: float | None
    size: int
    weights: Path | None = None
    pareto: ParetoFront | None = None
    measure: ErrorMeasure = RELATIVE
    samples: int = 1
    unchecked: tuple[str, ...] = ()


def check_writable(path: Path) -> None:
    """Check, before the compilation, that its result can be written.

    Raises:
        UsageError: if it cannot.
    """
    if path.is_dir():
        raise UsageError(f"'{path}' is a directory, name a file for the output")
    try:
        with partial_file(path.parent):
            pass
    except OSError as error:
        raise UsageError(f"'{path}' cannot be written: {error.strerror}") from None


def publish(source: Path, target: Path) -> None:
    """Copy a finished file to the user's path, completely or not at all.

    Raises:
        UsageError: if it cannot be written; an existing file is then unchanged.
    """
    with staged(source, target) as copy:
        copy.publish()


@dataclass(frozen=True)
class StagedFile:
    """A finished file in the output folder under a temporary name.

    Attributes:
        path: the temporary name.
        target: the final name.
    """

    path: Path
    target: Path

    def publish(self) -> None:
        """Rename it to its final name.

        Raises:
            UsageError: if that is not possible; an existing file is then unchanged.
        """
        with _writing(self.target):
            os.replace(self.path, self.target)


@contextmanager
def staged(source: Path, target: Path) -> Iterator[StagedFile]:
    """A copy of a file beside ``target``, which is removed at the end unless it was published.

    Publishing only renames the copy, so checks of the copy are valid for the published file.

    Raises:
        UsageError: if it cannot be written.
    """
    with ExitStack() as stack:
        with _writing(target):
            path = stack.enter_context(partial_file(target.parent, target.suffix))
            shutil.copyfile(source, path)
            os.chmod(path, 0o666 & ~_umask())
        yield StagedFile(path, target)


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"'{target}' cannot be written: {error.strerror}") from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
