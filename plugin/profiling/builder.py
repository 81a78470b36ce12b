"""Compiles recipes to modules of whole networks, side by side in workers."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from shutil import copyfile

from sartor.codegen.ir.states import StatePair
from sartor.codegen.ir.target import Target
from sartor.codegen.linking.functions.stateful_calls import StatefulCalls
from sartor.codegen.source_digest import is_as_begun
from sartor.errors import CompileError, DisturbedError, LateError
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.kept_import import HashedImport, hashed_import, keep_import
from sartor.frontend.states import cache_pairs, state_pairs
from sartor.planning.recipe import Recipe
from sartor.policies import ModuleHeader
from sartor.profiling.file_digests import FileDigests
from sartor.progress import Progress
from sartor.tuning.kept.code import KeptCode
from sartor.tuning.kept.modules import Hashed, KeptModules
from sartor.tuning.kept.values import KeptValues
from sartor.tuning.networks.build_job import NetFiles, SplitNetwork, UnsplitNetwork, build_net, planned_memory
from sartor.tuning.networks.module_key import module_beginning
from sartor.tuning.networks.profile_job import NetRun
from sartor.tuning.networks.replaced_manifest import replace_manifest
from sartor.tuning.records.measurement import Status
from sartor.tuning.workers.beside.ahead import Ahead
from sartor.tuning.workers.calls import begin, call, call_each
from sartor.tuning.workers.entry_points import entry_point
from sartor.tuning.workers.pool import JobStatus, WorkerPool

_BUILD = entry_point(build_net)
_TIMEOUT = 900.0
_LATE = NetRun(Status.STARVED, message="there was no time to compile it")
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Build:
    """A recipe with the files of its compiled module."""

    recipe: Recipe
    files: NetFiles

    @property
    def digest(self) -> str:
        """The recipe's digest."""
        return self.recipe.digest


@dataclass(frozen=True)
class Keepable:
    """What is kept of a compilation once its file is right.

    Attributes:
        key: of the module; None if it is not kept.
        module: None if it is kept already, or not to be.
        imported: the imported model; None if that is not to be kept.
    """

    key: str | None
    module: Hashed | None
    imported: HashedImport | None


@dataclass
class Builder:
    """Compiles recipes of one model, each once.

    Attributes:
        imported: the imported model.
        pool: workers.
        directory: where modules are written.
        header: properties of modules that do not depend on the recipe.
        progress: told about every module.
        kept: modules of earlier compilations; None if none are to be used.
        code: translated code of earlier compilations, as workers use it; None if it is never to be removed.
        imports: imported models of earlier compilations; None if this one is not to be kept.
    """

    imported: ImportedModel
    pool: WorkerPool
    directory: Path
    header: ModuleHeader
    progress: Progress
    kept: KeptModules | None = None
    code: KeptCode | None = None
    imports: KeptValues | None = None
    _done: dict[str, Build] = field(default_factory=dict)
    _failed: dict[str, NetRun] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _seconds: list[float] = field(default_factory=list)
    _restored: set[str] = field(default_factory=set)
    _has_forgotten: bool = False
    _deadline: float = math.inf
    _ahead: dict[str, tuple[Build, Ahead[int]]] = field(default_factory=dict)

    @contextmanager
    def until(self, deadline: float) -> Iterator[None]:
        """What is not compiled by ``deadline``, by ``time.monotonic()``, fails meanwhile as if it was disturbed."""
        self._deadline = deadline
        try:
            yield
        finally:
            self._deadline = math.inf

    def for_target(self, target: Target) -> Builder:
        """A builder of the model for another target, whose files lie in the same folder."""
        others = self.pool, self.directory, replace(self.header, target=target), self.progress
        return Builder(self.imported, *others, self.kept, self.code, self.imports, _numbers=self._numbers)

    def begin(self, recipe: Recipe) -> None:
        """Begin to compile a recipe beside what the pool does, as it will be built later; its failure is told then."""
        build = self._numbered(recipe)
        ahead = begin(self.pool, build_net, self._job(recipe, build.files), "compiling a plan")
        if ahead is not None:
            self._ahead[recipe.digest] = (build, ahead)

    def build(self, recipes: Sequence[Recipe]) -> list[Build]:
        """Compile recipes that were not compiled before; returns those that compile, without duplicates, in order.

        Raises:
            CompileError: if none compiles.
            LateError: if there was no time for any.
            DisturbedError: if something outside the workers may have ended them.
        """
        wanted = {recipe.digest: recipe for recipe in recipes}
        self._compile([recipe for key, recipe in wanted.items() if key not in self._done])
        builds = [self._done[key] for key in wanted if key in self._done]
        if not builds:
            failures = [self.failure(recipe) for recipe in recipes]
            if all(failure is _LATE for failure in failures):
                raise LateError(_LATE.message)
            if any(failure.status.is_transient for failure in failures):
                raise DisturbedError(f"compiling was disturbed: {failures[0].message}; try again")
            raise CompileError(f"no plan compiles: {failures[0].message}")
        return builds

    @staticmethod
    def build_each(pairs: Sequence[tuple[Builder, Recipe]], step: str) -> list[Build]:
        """Compile a recipe of each builder, which have the same workers, side by side; returns them in order.

        Raises:
            CompileError: if one does not compile.
            DisturbedError: if something outside the workers may have ended them.
        """
        builds = [builder._numbered(recipe) for builder, recipe in pairs]
        jobs = [builder._job(recipe, build.files) for (builder, recipe), build in zip(pairs, builds, strict=True)]
        sizes = call_each(pairs[0][0].pool, build_net, jobs, step) if pairs else []
        return [
            replace(build, files=replace(build.files, weight_bytes=size))
            for build, size in zip(builds, sizes, strict=True)
        ]

    @property
    def seconds(self) -> float | None:
        """Seconds of the longest build so far; None if there was none."""
        return max(self._seconds, default=None)

    def failure(self, recipe: Recipe) -> NetRun:
        """The failed run of a recipe that did not compile, with the reason."""
        return self._failed.get(recipe.digest) or NetRun(Status.COMPILE_FAILED, message="it was not compiled")

    def hashed(self, build: Build) -> Keepable:
        """What keeping a build and its model takes time for; nothing is kept if Sartor's source changed meanwhile."""
        if not is_as_begun():
            return Keepable(None, None, None)
        key, module = self._key(build.recipe), None
        if self.kept is not None and key is not None and build.digest not in self._restored:
            module = self.kept.hashed(build.files.module)
        return Keepable(key, module, self.hashed_import())

    def keep(self, build: Build, hashed: Keepable) -> None:
        """Keep a build for later compilations: a published one, as others are not needed again."""
        if self.kept is not None and hashed.key is not None and hashed.module is not None:
            self.kept.keep(hashed.key, hashed.module, build.files.weight_bytes)

    def hashed_import(self) -> HashedImport | None:
        """What keeping the imported model takes time for; None if it is not to be kept."""
        if self.imports is None or not is_as_begun():
            return None
        return hashed_import(self.imported, self.imports, self._digests.of)

    def keep_import(self, hashed: HashedImport) -> None:
        """Keep the imported model for later compilations, as a file of it is right."""
        if self.imports is not None:
            keep_import(self.imported, self.imports, hashed)

    def forget(self, recipe: Recipe) -> bool:
        """Compile a recipe anew when it is next built, if what is wrong may be what earlier compilations kept: its
        module, or else the code of its kernels; returns whether it may."""
        key = self._key(recipe)
        if self.kept is not None and key is not None and recipe.digest in self._restored:
            _LOG.warning("a kept module is wrong, and compiled again")
            self.kept.remove(key)
            self._restored.remove(recipe.digest)
        elif recipe.plan.unsplit or self._has_forgotten or self.code is None or not self.code.forget():
            return False
        else:
            _LOG.warning("a module is wrong, and compiled again without the code that is kept")
            self._has_forgotten = True
        self._done = {key: build for key, build in self._done.items() if not recipe.differs_in_times_only(build.recipe)}
        return True

    def planned_memory(self, recipe: Recipe) -> int | None:
        """The bytes that IREE plans for a recipe, found before it is compiled; None if that is not possible."""
        net = SplitNetwork(recipe.graph, recipe.variants, self.imported.ranges)
        arguments = {"net": net, "target": self.header.target}
        try:
            return call(self.pool, planned_memory, arguments, "planning the memory of a network")
        except CompileError as error:
            _LOG.warning("%s; its memory by the tables counts", error)
            return None

    def _rewrite(self, recipe: Recipe) -> bool:
        """Copy a module of the same code, and give it this recipe's manifest; returns whether there is one that takes
        it."""
        built = next((build for build in self._done.values() if recipe.differs_in_times_only(build.recipe)), None)
        if built is None:
            return False
        files = self._files(f"plan{next(self._numbers)}")
        files = replace(files, devices=recipe.devices, weight_bytes=built.files.weight_bytes)
        old, new = (made.manifest(self.imported, self.header) for made in (built.recipe, recipe))
        try:
            copyfile(built.files.module, files.module)
            if not replace_manifest(files.module, old, new):
                return False
            if built.files.weights is not None and files.weights is not None:
                copyfile(built.files.weights, files.weights)
        except OSError as error:
            _LOG.info("a module is compiled again, as it cannot be copied: %s", error)
            return False
        self._done[recipe.digest] = Build(recipe, files)
        return True

    def _restore(self, recipe: Recipe) -> bool:
        """Use the module that an earlier compilation kept; returns whether there is one."""
        key = self._key(recipe, sought=True)
        if self.kept is None or key is None:
            return False
        files = replace(self._files(f"plan{next(self._numbers)}"), devices=recipe.devices)
        weight_bytes = self.kept.restore(key, files.module)
        if weight_bytes is None:
            return False
        self._restored.add(recipe.digest)
        self._done[recipe.digest] = Build(recipe, replace(files, weight_bytes=weight_bytes))
        return True

    def _key(self, recipe: Recipe, *, sought: bool = False) -> str | None:
        """The key under which a recipe's module is kept; None if none is, as its weights lie outside it, or if it is
        ``sought`` and surely not there."""
        if self.kept is None or self.header.external_weights is not None:
            return None
        manifest = recipe.manifest(self.imported, self.header)
        beginning = module_beginning(self._net(recipe), self.header.target, manifest)
        return f"{beginning}{self._digests.weights}" if not sought or self.kept.may_have(beginning) else None

    @cached_property
    def _digests(self) -> FileDigests:
        return FileDigests(self.imported)

    def _compile(self, recipes: Sequence[Recipe]) -> None:
        """Compile recipes side by side, except those whose module is kept, or that differ from an earlier one in
        predicted times only."""
        self._take_ahead()
        recipes = [recipe for recipe in recipes if not (self._rewrite(recipe) or self._restore(recipe))]
        builds = {f"plan{next(self._numbers)}": recipe for recipe in recipes}
        files = {name: replace(self._files(name), devices=recipe.devices) for name, recipe in builds.items()}
        # The unsplit model takes longest to compile, so it starts first.
        jobs = [(name, self._job(builds[name], files[name])) for name in reversed(builds)]
        self._failed |= {recipe.digest: _LATE for recipe in recipes}
        results = self.pool.map_unordered(_BUILD, jobs, _TIMEOUT, deadline=self._deadline)
        for done, result in enumerate(results, 1):
            self.progress("compiling plans", done, len(jobs))
            self._seconds.append(result.seconds)
            recipe = builds[result.job_id]
            if result.status is JobStatus.OK:
                del self._failed[recipe.digest]
                self._done[recipe.digest] = Build(recipe, replace(files[result.job_id], weight_bytes=result.value))
            else:
                status = Status(result.status.value) if result.status.is_transient else Status.COMPILE_FAILED
                self._failed[recipe.digest] = NetRun(status, message=result.message)

    def _take_ahead(self) -> None:
        """Wait for the recipes that are compiled already. Those that failed are compiled again where that is told."""
        while self._ahead:
            digest, (build, ahead) = self._ahead.popitem()
            weight_bytes = ahead.value()
            if weight_bytes is not None:
                self._seconds.append(ahead.result().seconds)
                self._done[digest] = replace(build, files=replace(build.files, weight_bytes=weight_bytes))

    def _numbered(self, recipe: Recipe) -> Build:
        """Where a recipe's module will be written."""
        return Build(recipe, replace(self._files(f"plan{next(self._numbers)}"), devices=recipe.devices))

    def _files(self, name: str) -> NetFiles:
        external = self.header.external_weights is not None
        return NetFiles(self.directory / f"{name}.vmfb", self.directory / f"{name}.irpa" if external else None)

    def _job(self, recipe: Recipe, files: NetFiles) -> dict[str, object]:
        return {
            "net": self._net(recipe),
            "weights": self.imported.weights,
            "target": self.header.target,
            "manifest": recipe.manifest(self.imported, self.header),
            "files": files,
        }

    def _net(self, recipe: Recipe) -> SplitNetwork | UnsplitNetwork:
        states = state_pairs(self.imported)
        if recipe.plan.unsplit:
            return UnsplitNetwork(self.imported.unsplit, self._stateful(states) if states else None)
        caches = cache_pairs(self.imported)
        return SplitNetwork(recipe.graph, recipe.variants, self.imported.ranges, states, caches, self.imported.computed)

    def _stateful(self, states: tuple[StatePair, ...]) -> StatefulCalls:
        inputs = {value.name: value.type for value in self.imported.graph.inputs}
        return StatefulCalls(inputs, len(self.imported.graph.outputs), states)
