"""Integrated profiling: the best plans and the stock model run whole, and the fastest correct one wins.

What was measured is kept in the store like the layers' times, so that a second run need not compile or run them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sartor.building import Builder
from sartor.errors import CompileError
from sartor.net_runner import ALLOW_MORE, NetRunner
from sartor.recipe import Recipe
from sartor.tuning.hardware import host
from sartor.tuning.in_place import InPlace, Symbols
from sartor.tuning.measurement import Measurement, MeasurementKey, Status, runtime_key
from sartor.tuning.store import Store
from sartor.tuning.unit import digest, source_hash
from sartor.tuning.whole_net import NetRun

_UNSPLIT = "unsplit"


@dataclass(frozen=True)
class Profiled:
    """The recipe that won.

    Attributes:
        recipe: what to ship.
        seconds: typical time of one inference.
        error: relative error of the largest output against ONNX Runtime.
        baseline: the unsplit model's time in the same run; None if it was not among the recipes, or wrong.
    """

    recipe: Recipe
    seconds: float
    error: float | None
    baseline: float | None


class Profiler:
    """Measures whole networks, and remembers.

    Args:
        store: where runs are kept.
        builder: compiles recipes.
    """

    def __init__(self, store: Store, builder: Builder) -> None:
        self._store = store
        self._builder = builder
        self._front = builder.front
        self._config = builder.config
        self._runner = NetRunner(builder)

    def profile(self, recipes: Sequence[Recipe]) -> Profiled:
        """The fastest recipe whose outputs are ONNX Runtime's.

        Raises:
            CompileError: if none is right.
        """
        keys = [self._key(recipe) for recipe in recipes]
        known = self._store.get_many(keys)
        if not all(key in known for key in keys):
            self._measure(recipes)
            known = self._store.get_many(keys)
        return self._best(recipes, {id(recipe): known.get(key) for recipe, key in zip(recipes, keys, strict=True)})

    def in_place(self, recipe: Recipe, seconds: float) -> InPlace:
        """What the layers of a split network take in it, each alone among IREE's dispatches.

        Args:
            recipe: of the network.
            seconds: of one inference.

        Raises:
            CompileError: if the network does not compile.
            DeviceError: if it does not run.
        """
        symbols = Symbols.of(self._front.graph, recipe.variants, self._config.target.device)
        key = self._key(recipe)
        key = replace(key, variant=f"{key.variant}:in-place")
        known = self._store.get_many([key]).get(key)
        if known is None:
            (built,) = self._builder.build([recipe])
            known = Measurement(key, Status.OK, symbols.seconds(self._runner.dispatches(built, seconds)))
            self._store.put(known)
        return symbols.in_place(known.samples)

    def _key(self, recipe: Recipe) -> MeasurementKey:
        """Under what a whole network is stored: its code, and what it was checked by."""
        codes = [source_hash(each.implementation) for _, each in sorted(recipe.variants.items())]
        codes = codes or [hashlib.sha256(self._front.whole).hexdigest()]
        name = _UNSPLIT if recipe.plan.unsplit else f"plan:{digest(*codes)}"
        return MeasurementKey(
            task=f"net:{self._front.sha256[:16]}",
            variant=name,
            source=digest(*codes, self._runner.criterion),
            hardware=host().key,
            threads=self._config.threads,
            runtime=runtime_key(),
            backend=self._config.target.key,
        )

    def _measure(self, recipes: Sequence[Recipe]) -> None:
        """Run all of them in one interleaved run: times of different runs do not compare."""
        builds = self._builder.build(recipes)
        runs = self._runner.profile(builds)
        for recipe in recipes:
            built = next((each for each in builds if each.recipe is recipe), None)
            run = runs[id(built)] if built else NetRun(Status.COMPILE_FAILED, message=self._builder.failure(recipe))
            self._store.put(
                Measurement(self._key(recipe), run.status, run.samples, error=run.error, message=run.message)
            )

    def _best(self, recipes: Sequence[Recipe], runs: Mapping[int, Measurement | None]) -> Profiled:
        correct = [
            (recipe, run) for recipe in recipes if (run := runs[id(recipe)]) is not None and run.status is Status.OK
        ]
        if not correct:
            messages = [run.message for run in runs.values() if run is not None]
            raise CompileError(f"no plan is right: {messages[0]}; {ALLOW_MORE}")
        best, measured = min(correct, key=lambda pair: pair[1].time)
        baseline = next((run.time for recipe, run in correct if recipe.plan.unsplit), None)
        return Profiled(best, measured.time, measured.error, baseline)
