"""How large a file with several plans is, beside its parts: ``python -m benchmarks.one_file NET.onnx PLANS.json ...``.

Each pair is a model and the plans of it that ``compile-to-vmfb --save-plan`` wrote. The file is built twice, with its
weights inside and beside it: the latter holds each distinct packed weight once, whatever devices, levels and shapes
read it, and leaves the code. Prints a table as in docs/records/one-file.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from sartor.config import CompileConfig
from sartor.errors import SartorError, UsageError
from sartor.several.compilation import compile_several
from sartor.several.settings import SeveralConfig, settings_of
from sartor.tuning.records.plan_set import PlanSet, load_plans

LIMIT = 1.3
"""Most of the ratio of a file and its distinct weights and code."""
_MIB = 2.0**20


@dataclass(frozen=True)
class Sizes:
    """Bytes of a file with several plans, and of its distinct packed weights and its code."""

    plans: int
    file: int
    weights: int
    code: int

    @property
    def ratio(self) -> float:
        """The file relative to its parts."""
        return self.file / (self.weights + self.code)


def sizes(model: Path, plans: PlanSet, folder: Path) -> Sizes:
    """Build a file of saved plans both ways.

    Args:
        model: ONNX file.
        plans: of the model.
        folder: for the files.

    Raises:
        SartorError: if the plans cannot be built.
    """
    targets, shapes = settings_of(plans)
    threads = plans.plans[0].plan.threads
    several = SeveralConfig(CompileConfig(threads=threads, database=folder / "tuning.db"), targets, shapes)
    inside = compile_several(model, folder / "inside.vmfb", several, plans=plans)
    weights = folder / "beside.irpa"
    several = replace(several, base=replace(several.base, external_weights=weights))
    beside = compile_several(model, folder / "beside.vmfb", several, plans=plans)
    return Sizes(len(plans.plans), inside.size, weights.stat().st_size, beside.size)


def main() -> int:
    """Print the sizes of each pair; 1 if a file is too large."""
    parser = argparse.ArgumentParser(description="Measure files with several plans.")
    parser.add_argument("files", nargs="+", metavar="NET.onnx PLANS.json", type=Path)
    files: list[Path] = parser.parse_args().files
    print("| network | plans | file, MiB | distinct packed weights, MiB | code, MiB | file / both |")
    print("|---|---|---|---|---|---|")
    is_small = True
    try:
        if len(files) % 2:
            raise UsageError("each model needs its plans behind it")
        for model, saved in zip(files[::2], files[1::2], strict=True):
            plans = load_plans(saved)
            if not isinstance(plans, PlanSet):
                raise UsageError(f"'{saved}' is one plan; save those of a file with several")
            with tempfile.TemporaryDirectory() as folder:
                found = sizes(model, plans, Path(folder))
            parts = " | ".join(f"{each / _MIB:.2f}" for each in (found.file, found.weights, found.code))
            print(f"| {model.stem} | {found.plans} | {parts} | {found.ratio:.2f} |", flush=True)
            is_small = is_small and found.ratio < LIMIT
    except SartorError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0 if is_small else 1


if __name__ == "__main__":
    sys.exit(main())
