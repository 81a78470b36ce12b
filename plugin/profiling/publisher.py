"""The last step: the very files that the user gets run beside ONNX Runtime before they get their names.

Whatever is known of a plan was found out about another file: one that an earlier compilation built, or by code that has
changed since.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from sartor.artifact import StagedFile, staged
from sartor.errors import CompileError, DisturbedError
from sartor.planning.recipe import Recipe
from sartor.profiling.builder import Builder
from sartor.profiling.network_runner import NetRunner
from sartor.tuning.networks.build_job import NetFiles
from sartor.tuning.networks.profile_job import NetRun
from sartor.tuning.records.measurement import Status


@dataclass(frozen=True)
class Publisher:
    """Builds networks and puts one that is right where the user wants it.

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
            How the files ran, judged: published if ``status`` is OK. Else ``output`` is as it was.

        Raises:
            UsageError: if the files cannot be written, or the user's samples or measure fail.
            DisturbedError: if a worker was disturbed, so that nothing is known.
        """
        try:
            (build,) = self.builder.build([recipe])
        except DisturbedError:
            raise
        except CompileError as error:
            return NetRun(Status.COMPILE_FAILED, message=str(error))
        with _staged(build.files, self.output, self.builder.config.external_weights) as (files, copies):
            run = self.runner.bound.judged(self.runner.verify(replace(build, files=files)))
            if run.status is Status.OK:
                _publish(copies)
        return run


def publish_unchecked(recipe: Recipe, builder: Builder, output: Path) -> None:
    """Build and publish what this machine cannot run.

    Raises:
        CompileError: if it does not compile.
        UsageError: if the files cannot be written.
    """
    (build,) = builder.build([recipe])
    with _staged(build.files, output, builder.config.external_weights) as (_, copies):
        _publish(copies)


@contextmanager
def _staged(files: NetFiles, output: Path, external: Path | None) -> Iterator[tuple[NetFiles, tuple[StagedFile, ...]]]:
    """Copies of a network's files where they belong; weights come first, a module is never there without them."""
    with staged(files.module, output) as module:
        if files.weights is None or external is None:
            yield replace(files, module=module.path), (module,)
            return
        with staged(files.weights, external) as weights:
            yield replace(files, module=module.path, weights=weights.path), (weights, module)


def _publish(copies: tuple[StagedFile, ...]) -> None:
    for each in copies:
        each.publish()
