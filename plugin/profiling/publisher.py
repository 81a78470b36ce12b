"""The last step: checks the user's files beside ONNX Runtime before they get their final names.

Earlier checks of a plan ran other files: built by an earlier compilation, or by code that has changed since.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from sartor.errors import CompileError, DisturbedError
from sartor.planning.recipe import Recipe
from sartor.profiling.builder import Builder
from sartor.profiling.network_runner import NetRunner
from sartor.profiling.verdicts import judged
from sartor.publishing import StagedFile, publish_together, staged
from sartor.tuning.networks.net_files import NetFiles
from sartor.tuning.networks.profile_job import NetRun
from sartor.tuning.records.measurement import Status


@dataclass(frozen=True)
class Publisher:
    """Builds networks and publishes one whose outputs are right.

    Attributes:
        builder: compiles them.
        runner: runs them beside ONNX Runtime.
        output: where the module goes.
    """

    builder: Builder
    runner: NetRunner
    output: Path

    def publish(self, recipe: Recipe) -> NetRun:
        """Build a recipe, and publish it if its files are right.

        Returns:
            The judged run of the files. They are published if its ``status`` is OK; else ``output`` is unchanged.

        Raises:
            UsageError: if the files cannot be written, or the user's samples or measure fail.
            DisturbedError: if something outside the worker disturbed it, so that the result is unknown.
        """
        try:
            run = self._publish(recipe)
            if run.status is not Status.OK and self.builder.forget(recipe):
                run = self._publish(recipe)
        except DisturbedError:
            raise
        except CompileError as error:
            return NetRun(Status.COMPILE_FAILED, message=str(error))
        return run

    def _publish(self, recipe: Recipe) -> NetRun:
        (build,) = self.builder.build([recipe])
        with staged_files(build.files, self.output, self.builder.header.external_weights) as (files, copies):
            run = judged(self.runner.verify(replace(build, files=files)), self.runner.budget)
            if run.status is Status.OK:
                publish_together(copies)
                self.builder.keep(build)
        return run


def publish_unchecked(recipe: Recipe, builder: Builder, output: Path) -> None:
    """Build and publish a network for a target that this machine cannot run.

    Raises:
        CompileError: if it does not compile.
        UsageError: if the files cannot be written.
    """
    (build,) = builder.build([recipe])
    with staged_files(build.files, output, builder.header.external_weights) as (_, copies):
        publish_together(copies)


@contextmanager
def staged_files(
    files: NetFiles, output: Path, external: Path | None
) -> Iterator[tuple[NetFiles, tuple[StagedFile, ...]]]:
    """Copies of a network's files in the output folder; weights come first, so that a module always has its weights."""
    with staged(files.module, output) as module:
        if files.weights is None or external is None:
            yield replace(files, module=module.path), (module,)
            return
        with staged(files.weights, external) as weights:
            yield replace(files, module=module.path, weights=weights.path), (weights, module)
