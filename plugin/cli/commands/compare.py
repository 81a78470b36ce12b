"""``sartor compare``: whether a module computes what the model means."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from sartor.cli.options.common import (
    DeviceOption,
    JsonOption,
    ModuleArgument,
    SignatureOption,
    ThreadsOption,
    check_error_bound,
    existing_file,
)
from sartor.cli.options.plan_choice import PlanShapesOption, read_choice
from sartor.cli.options.sizes import SizeOption, sized_inputs
from sartor.cli.output.terminal import show_facts, show_json, show_table, tuning_progress
from sartor.cli.tables.layer_error_table import first_json, layer_errors_json, show_first, show_layer_errors
from sartor.cli.tables.rewrite_table import rewrites_json, show_rewrites
from sartor.comparison.compare_job import Answer, Question, ask
from sartor.comparison.followed_rewrites import FollowedRewrite, follow_rewrites
from sartor.comparison.layer_errors import FirstBeyond, LayerComparison, LayerError
from sartor.comparison.model_comparison import layered_manifest, open_comparison, usual_error
from sartor.errors import SartorError, UsageError
from sartor.onnx_model.rewrites.number_types.widen_halves import widens_halves
from sartor.policies import DEFAULT_MAX_ERROR
from sartor.profiling.layerwise.verdict import LayerVerdict
from sartor.runtime.driver.counts import shown_outputs
from sartor.runtime.driver.signature import Array
from sartor.runtime.module_facts import (
    bound_inputs,
    check_passes_all,
    inference_functions,
    module_manifest,
    module_signature,
    noise_inputs,
)
from sartor.runtime.output_error import count_not_finite, output_error
from sartor.runtime.session import Session
from sartor.runtime.several.choice import PlanChoice
from sartor.samples.feeds import make_feeds, read_archive
from sartor.tuning.workers.calls import open_pool

_LOG = logging.getLogger(__name__)
_BISECT = "--bisect"
# The bound that stands for what is allowed of the outputs.
_ALLOWED = "inf"


class BisectsByDefault(TyperCommand):
    """``--bisect`` may stand without a number, which options of typer cannot."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        following = [*args[1:], ""]
        pairs = zip(args, following, strict=True)
        filled = [[each] if each != _BISECT or _is_number(after) else [each, _ALLOWED] for each, after in pairs]
        return super().parse_args(ctx, [*itertools.chain.from_iterable(filled)])


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


class DifferentResultError(SartorError):
    """The module's outputs are further from the reference's than allowed."""


def compare(
    module: ModuleArgument,
    vs: Annotated[Path, typer.Option(metavar="MODEL.onnx", help="The model it was compiled from.")],
    inputs: Annotated[
        Path | None, typer.Option(metavar="FILE.npz", help="One array per input. (default: random values)")
    ] = None,
    max_error: Annotated[
        float | None,
        typer.Option(
            help="Relative error allowed. (default: 0.01 for a module in lower precision, else 0.001; more if the "
            "model's own types round off more)"
        ),
    ] = None,
    layers: Annotated[
        bool, typer.Option("--layers", help="Show how far every layer is off, in the network and alone.")
    ] = False,
    bisect: Annotated[
        float | None,
        typer.Option(
            metavar="[BOUND]",
            min=0.0,
            help="Find the first layer whose error exceeds this; without a number, what is allowed of the outputs.",
        ),
    ] = None,
    rewrites: Annotated[
        bool,
        typer.Option(
            "--rewrites",
            help="Run the model behind each rewrite before its import, and find the first behind which outputs differ.",
        ),
    ] = False,
    shape: PlanShapesOption = None,
    size: SizeOption = None,
    threads: ThreadsOption = None,
    device: DeviceOption = None,
    signature: SignatureOption = None,
    json: JsonOption = False,
) -> None:
    """Compare a module's outputs with the reference's; exit code 1 if they differ too much."""
    check_passes_all(module)
    choice = read_choice(shape, device, archive=inputs)
    usual = usual_error(module, choice)
    if layers or bisect is not None:
        layered_manifest(module, choice)
    bound = None if max_error is None else check_error_bound(max_error)
    known, file = module_signature(module, signature, choice), existing_file(vs)
    noise, sized = noise_inputs(module), sized_inputs(module, known.inputs, size)
    feeds = make_feeds(sized, {}, noise=noise) if inputs is None else read_archive(inputs, sized)
    names = [spec.name for spec in shown_outputs(known.outputs)]
    results: list[dict[str, Array]] = []
    # Which plan an inference runs depends on time and memory, unless the session is told the function.
    for function in inference_functions(module_manifest(module, choice), known):
        with Session(module, device=device, threads=threads, signature=function) as session:
            results.append(dict(zip(names, session.run(None, feeds), strict=True)))
    with open_pool(1) as (pool, _):
        manifest = module_manifest(module, choice)
        widens = manifest is not None and widens_halves(manifest.devices)
        question = Question(file, known, feeds, usual, bound, usual > DEFAULT_MAX_ERROR, bound_inputs(module), widens)
        right = ask(pool, question)
        followed = follow_rewrites(pool, question, right) if rewrites else None
    _warn(right.unchecked)
    _warn_of_what_is_not_finite(feeds, right)
    found, inside = [_output_errors(each, right) for each in results], _Inside()
    errors = {name: max(each[name] for each in found) for name in found[0]}
    # Of a file with two plans, the one that is further off is of interest.
    later = max(found[-1].values(), default=0.0) > max(found[0].values(), default=0.0)
    missing = {*results[0]} ^ {*right.names}
    worst = max(errors, key=lambda name: (name in missing, errors[name]), default=None)
    is_wrong = worst is not None and (worst in missing or errors[worst] > right.allowed)
    judges = is_wrong and not missing and right.amplifies and len(results) == 1 and _has_layers(module, choice)
    if layers or bisect is not None or judges:
        with (
            tuning_progress() as progress,
            open_comparison(
                module, file, feeds, right.shapes, choice=choice, later=later, threads=threads, progress=progress
            ) as comparison,
        ):
            inside = _look_inside(comparison, layers, _bound(bisect, right.allowed))
            inside = replace(inside, verdict=comparison.verdict(module) if judges else None)
        inside = replace(inside, plan=_plan_names(len(found))[later])
    inside = replace(inside, rewrites=followed)
    if json:
        _show_json(errors, right, inside)
    else:
        _show_tables(module, errors, right, inside)
    if worst is not None and is_wrong and not (inside.verdict is not None and inside.verdict.is_right):
        where = _which_plan([each[worst] for each in found]) if len(found) > 1 else ""
        told = "" if inside.verdict is None else f"; {inside.verdict.sentence}"
        raise DifferentResultError(_difference(worst, errors[worst], right, results[0]) + where + told)


def _has_layers(module: Path, choice: PlanChoice) -> bool:
    """Whether a file has one plan, which is of layers."""
    manifest = module_manifest(module, choice)
    return manifest is not None and not manifest.alternatives and not manifest.plan.get("unsplit", True)


def _plan_names(count: int) -> Sequence[str]:
    """What the plans of a file are for: one for all inferences, or one for the first and one for later ones."""
    return ("the first inference", "later inferences") if count > 1 else ("", "")


def _which_plan(errors: Sequence[float]) -> str:
    """Of a file with a plan for the first inference and one for later ones, which is further off."""
    first, later = errors
    return "" if first == later else f", by the plan for {_plan_names(len(errors))[later > first]}"


def _difference(name: str, error: float, right: Answer, outputs: Mapping[str, Array]) -> str:
    if name not in outputs:
        return f"the module lacks the output '{name}' of the model"
    if name not in right.names:
        return f"the model lacks the output '{name}' of the module"
    return f"output '{name}' has the relative error {error:.2g}, {right.allowed:g} is allowed for this model"


def _bound(asked: float | None, allowed: float) -> float | None:
    """What ``--bisect`` asks for.

    Raises:
        UsageError: for NaN, which some versions of typer take for a number within limits.
    """
    if asked is not None and math.isnan(asked):
        raise UsageError("--bisect is no number; give the error that a layer may have")
    return allowed if asked is not None and math.isinf(asked) else asked


def _warn(unchecked: Sequence[str]) -> None:
    for name in unchecked:
        _LOG.warning(
            "output '%s' is not checked: on these inputs it is constant, saturated or no number; "
            "give inputs of what the network will see with --inputs",
            name,
        )


def _warn_of_what_is_not_finite(feeds: Mapping[str, Array], right: Answer) -> None:
    for name, array in feeds.items():
        if found := count_not_finite(array):
            _LOG.warning("input '%s' holds NaN or infinities, %d of %d elements", name, found, array.size)
    for name, array in zip(right.names, right.outputs, strict=True):
        if found := count_not_finite(array):
            _LOG.warning(
                "output '%s' holds NaN or infinities, %d of %d elements: of these it is only compared that the module "
                "has the same",
                name,
                found,
                array.size,
            )


@dataclass(frozen=True)
class _Inside:
    """Results about the module's layers; None for those that were not requested.

    ``plan`` says which inferences the plan is for that has them, of a file with two. ``verdict`` is that of the layers
    where the outputs are further off than is allowed. ``rewrites`` are those of the model before its import.
    """

    layers: list[LayerError] | None = None
    bound: float = 0.0
    first: FirstBeyond | None = None
    plan: str = ""
    verdict: LayerVerdict | None = None
    rewrites: Sequence[FollowedRewrite] | None = None


def _look_inside(comparison: LayerComparison, layers: bool, bound: float | None) -> _Inside:
    table = comparison.table() if layers else None
    return _Inside(table) if bound is None else _Inside(table, bound, comparison.bisect(bound))


def _output_errors(outputs: Mapping[str, Array], right: Answer) -> dict[str, float]:
    """Errors by output name; infinite for an output that only the module or only the model has."""
    expected = dict(zip(right.names, zip(right.outputs, right.scales, strict=True), strict=True))
    errors = {
        name: output_error(output, expected[name][0], scale=expected[name][1]) if name in expected else math.inf
        for name, output in outputs.items()
    }
    return errors | {name: math.inf for name in expected if name not in outputs}


def _show_json(errors: Mapping[str, float], right: Answer, inside: _Inside) -> None:
    """Print the result as JSON, with null for infinite errors, and for the verdict on outputs without any number."""
    unknown = _without_numbers(errors, right)
    listed = [
        {
            "name": name,
            "relative_error": _finite(error),
            "within": None if name in unknown else error <= right.allowed,
        }
        for name, error in errors.items()
    ]
    data: dict[str, Any] = {
        "max_error": _finite(right.allowed),
        "outputs": listed,
        "unchecked_outputs": list(right.unchecked),
        "reference": right.reference,
    }
    if inside.plan:
        data["plan_for"] = inside.plan
    if inside.verdict is not None:
        data["layers_compared"] = inside.verdict.sentence
        data["layers_right"] = inside.verdict.is_right
    if inside.layers is not None:
        data["layers"] = layer_errors_json(inside.layers)
    if inside.first is not None:
        data["bisection"] = first_json(inside.first, inside.bound)
    if inside.rewrites is not None:
        data["rewrites"] = rewrites_json(inside.rewrites, right.allowed)
    show_json(data)


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _without_numbers(errors: Mapping[str, float], right: Answer) -> set[str]:
    """Outputs that are not wrong, but have no finite number either, so that nothing was compared."""
    outputs = zip(right.names, right.outputs, strict=True)
    nothing = {name for name, array in outputs if array.size and count_not_finite(array) == array.size}
    return {name for name in nothing if errors.get(name) == 0.0}


def _show_tables(module: Path, errors: Mapping[str, float], right: Answer, inside: _Inside) -> None:
    verdicts = {name: "yes" if error <= right.allowed else "NO" for name, error in errors.items()}
    verdicts |= dict.fromkeys(_without_numbers(errors, right), "not checked")
    rows = [[name, f"{error:.2g}", verdicts[name]] for name, error in errors.items()]
    show_table(
        str(module), ("output", f"relative error to {right.reference}", f"within {right.allowed:g}"), rows, right=(1,)
    )
    if inside.verdict is not None:
        show_facts("layers one by one", [("verdict", inside.verdict.sentence)])
    if inside.layers is not None:
        show_layer_errors(inside.layers, f"layers of the plan for {inside.plan}" if inside.plan else "layers")
    if inside.first is not None:
        show_first(inside.first, inside.bound)
    if inside.rewrites is not None:
        show_rewrites(inside.rewrites, right.allowed)
