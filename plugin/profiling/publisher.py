"""The last step: checks the user's files beside ONNX Runtime where they will get their final names.

Earlier checks of a plan ran other files: built by an earlier compilation, or by code that has changed since.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from sartor.errors import CompileError, DisturbedError
from sartor.frontend.kept_import import HashedImport
from sartor.planning.recipe import Recipe
from sartor.profiling.builder import Build, Builder, Keepable
from sartor.profiling.verdicts import is_rounded
from sartor.publishing import Publication
from sartor.tuning.errors.error_budget import ErrorBudget
from sartor.tuning.networks.net_files import NetFiles
from sartor.tuning.networks.profile_job import NetRun
from sartor.tuning.records.measurement import Status


class Verifier(Protocol):
    """Runs built networks beside ONNX Runtime."""

    @property
    def budget(self) -> ErrorBudget:
        """The bound on the error."""

    def judged(self, build: Build) -> NetRun:
        """Measure the error of the outputs, and judge the run."""

    def keep(self, hashed: HashedImport) -> None:
        """Keep the imported model and ONNX Runtime's outputs for later compilations."""


@dataclass(frozen=True)
class Publisher:
    """Builds networks and adds one whose outputs are right to what is published.

    Attributes:
        builder: compiles them.
        runner: runs them beside ONNX Runtime.
        output: where the module goes.
        publication: what is published.
    """

    builder: Builder
    runner: Verifier
    output: Path
    publication: Publication

    def publish(self, recipe: Recipe) -> NetRun:
        """Build a recipe, and add its files to the publication if they are right.

        Returns:
            The judged run of the files. They are added if its ``status`` is OK.

        Raises:
            UsageError: if the files cannot be written, or the user's samples or measure fail.
            DisturbedError: if something outside the worker disturbed it, so that the result is unknown.
        """
        try:
            run = self._publish(recipe)
            is_defect = run.status is not Status.OK and not is_rounded(run, self.runner.budget)
            if is_defect and self.builder.forget(recipe):
                run = self._publish(recipe)
        except DisturbedError:
            raise
        except CompileError as error:
            return NetRun(Status.COMPILE_FAILED, message=str(error))
        return run

    def _publish(self, recipe: Recipe) -> NetRun:
        (build,) = self.builder.build([recipe])
        external = self.builder.header.external_weights
        with ExitStack() as dropping:
            dropping.callback(self.publication.drop, self.output, *([external] if external else []))
            with ThreadPoolExecutor(1) as beside:
                hashing = beside.submit(self.builder.hashed, build)
                files = stage_files(build.files, self.output, external, self.publication)
                run = self.runner.judged(replace(build, files=files))
            if run.status is Status.OK:
                self._keep(build, hashing.result())
                dropping.pop_all()
        return run

    def _keep(self, build: Build, hashed: Keepable) -> None:
        """Keep for later compilations what is right."""
        self.builder.keep(build, hashed)
        if hashed.imported is not None:
            self.runner.keep(hashed.imported)


def stage_unchecked(recipe: Recipe, builder: Builder, output: Path, publication: Publication) -> None:
    """Build a network for a target that this machine cannot run, and add its files to the publication.

    Raises:
        CompileError: if it does not compile.
        UsageError: if the files cannot be written.
    """
    (build,) = builder.build([recipe])
    stage_files(build.files, output, builder.header.external_weights, publication)


def stage_files(files: NetFiles, output: Path, external: Path | None, publication: Publication) -> NetFiles:
    """Copy a network's files to the output folder; weights come first, so that a module always has its weights."""
    weights = files.weights
    if weights is not None and external is not None:
        weights = publication.stage(weights, external)
    return replace(files, module=publication.stage(files.module, output), weights=weights)
