"""Plans that nothing was measured for: each layer's first guess."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.frontend.loading import import_network, open_workers
from sartor.planning.guessed_recipe import guessed_recipe
from sartor.profiling.builder import Builder
from sartor.progress import silent


def compile_untuned(model: Path, output: Path, config: CompileConfig) -> None:
    """Compile a model in f32, every layer by the routine that is taken for likely to be fast.

    Raises:
        SartorError: of the kind that says what went wrong.
    """
    with open_workers(config.target, config.jobs) as pool, tempfile.TemporaryDirectory() as directory:
        imported = import_network(model, config.importing, pool, silent, Path(directory))
        recipe = guessed_recipe(
            imported, find_candidates(imported, config.planning, everything=False).variants, config.planning
        )
        (built,) = Builder(imported, pool, Path(directory), config.header, silent).build([recipe])
        shutil.copyfile(built.files.module, output)
