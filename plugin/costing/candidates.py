"""The variants of each layer: every routine's implementations, without those that are not eligible or not worth it."""

from __future__ import annotations

from sartor.codegen.routines import FUSED_ROUTINES, LOW_PRECISION, routines_for
from sartor.config import CompileConfig
from sartor.dialect_passes.annotate import Candidates, annotate, annotated_module, never
from sartor.dialect_passes.dump import Dumper
from sartor.frontend.imported_model import ImportedModel
from sartor.precision.eligibility import eligible_candidates, eligible_routines
from sartor.tuning.search.shortlist import is_superfluous


def find_candidates(imported: ImportedModel, config: CompileConfig, *, everything: bool = True) -> Candidates:
    """Ask all routines for implementations of all tasks.

    Args:
        imported: the model.
        config: settings.
        everything: False leaves out variants that no layer may run, which takes half as long.
    """
    skip = never if everything or config.pins else is_superfluous
    routines = routines_for(LOW_PRECISION) if everything else eligible_routines(imported, config.precision)
    candidates = annotate(imported.graph, routines, config.target, FUSED_ROUTINES, skip)
    if not everything:
        candidates = eligible_candidates(candidates, imported, config.precision)
    if config.dump_directory is not None:
        dumper = Dumper(config.dump_directory, count=len(list(config.dump_directory.glob("*.mlir"))))
        dumper.write("annotate", annotated_module(imported.graph, candidates))
    return candidates
