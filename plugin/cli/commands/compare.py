"""``sartor compare``: whether a module computes what the model means."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sartor.cli.options.common import (
    DeviceOption,
    JsonOption,
    ModuleArgument,
    SignatureOption,
    ThreadsOption,
    existing_file,
)
from sartor.cli.options.comparing import (
    AllowedErrorOption,
    ArraysOption,
    BisectOption,
    ComparedModelOption,
    LayersOption,
    RewritesOption,
    read_bisection,
)
from sartor.cli.options.plan_choice import PlanShapesOption, read_choice
from sartor.cli.options.sizes import SizeOption, read_sizes, sized_inputs
from sartor.cli.output.terminal import tuning_progress
from sartor.cli.tables.comparison_table import Inside, comparison_json, show_comparison
from sartor.comparison.compare_job import Answer, Question, ask
from sartor.comparison.followed_rewrites import follow_rewrites
from sartor.comparison.layer_errors import LayerComparison
from sartor.comparison.model_comparison import layered_manifest, open_comparison, usual_error
from sartor.comparison.output_errors import OutputErrors
from sartor.config_values import SETTINGS
from sartor.errors import SartorError
from sartor.onnx_model.rewrites.number_types.widen_halves import widens_halves
from sartor.policies import DEFAULT_MAX_ERROR
from sartor.runtime.driver.counts import shown_outputs
from sartor.runtime.driver.signature import Array, Signature
from sartor.runtime.manifest import Manifest
from sartor.runtime.module_facts import (
    bound_inputs,
    check_passes_all,
    inference_functions,
    module_manifest,
    module_signature,
    noise_inputs,
)
from sartor.runtime.output_error import count_not_finite
from sartor.runtime.session import Session
from sartor.runtime.several.choice import PlanChoice
from sartor.samples.feeds import make_feeds, read_archive
from sartor.samples.passed_caches import passed_feeds, passed_inputs
from sartor.tuning.workers.calls import open_pool

_LOG = logging.getLogger(__name__)


class DifferentResultError(SartorError):
    """The module's outputs are further from the reference's than allowed."""


def compare(
    module: ModuleArgument,
    vs: ComparedModelOption,
    inputs: ArraysOption = None,
    max_error: AllowedErrorOption = None,
    layers: LayersOption = False,
    bisect: BisectOption = None,
    rewrites: RewritesOption = False,
    shape: PlanShapesOption = None,
    size: SizeOption = None,
    threads: ThreadsOption = None,
    device: DeviceOption = None,
    signature: SignatureOption = None,
    json: JsonOption = False,
) -> None:
    """Compare a module's outputs with the reference's; exit code 1 if they differ too much."""
    choice = read_choice(shape, device, archive=inputs)
    usual = usual_error(module, choice)
    if layers or bisect is not None:
        check_passes_all(module)
        layered_manifest(module, choice)
    bound = None if max_error is None else SETTINGS["max_error"].asked(max_error)
    known, model = module_signature(module, signature, choice), existing_file(vs)
    if (keeping := _keeping_caches(module)) is not None:
        (known, *_) = keeping.passing_signatures
    feeds = _feeds(module, known, inputs, size)
    # The reference's model is prepared for the sizes that are compared, of which a signature for any size has none.
    known = known._replace(inputs=tuple(replace(spec, shape=feeds[spec.name].shape) for spec in known.inputs))
    compared = _Compared(module, model, choice, threads, known, feeds)
    question = _question(compared, usual, bound)
    with open_pool(1) as (pool, _):
        right = ask(pool, question)
        followed = follow_rewrites(pool, question, right) if rewrites else None
    # The module takes what the reference took.
    compared = replace(compared, feeds={**feeds, **right.rounded})
    outputs = _outputs(compared)
    _warn(right.unchecked)
    _warn_of_what_is_not_finite(compared.feeds, right)
    errors = OutputErrors(outputs, right)
    inside = replace(_look_inside(compared, errors, layers, bisect), rewrites=followed)
    if json:
        comparison_json(errors, inside)
    else:
        show_comparison(module, errors, inside)
    if errors.is_wrong and not (inside.verdict is not None and inside.verdict.is_right):
        reason = "" if inside.verdict is None else f"; {inside.verdict.sentence}"
        raise DifferentResultError(errors.sentence + errors.culprit + reason)


@dataclass(frozen=True)
class _Compared:
    """A module that is compared with its model.

    Attributes:
        module: its file.
        model: the ONNX file.
        choice: of a file with several plans, the one that is compared.
        threads: as for ``Session``.
        signature: the function, with what it takes and gives.
        feeds: one array per input.
    """

    module: Path
    model: Path
    choice: PlanChoice
    threads: int | None
    signature: Signature
    feeds: Mapping[str, Array]


def _keeping_caches(module: Path) -> Manifest | None:
    """The manifest of a module that keeps caches which grow, and takes them where callers pass them."""
    manifest = module_manifest(module)
    return manifest if manifest is not None and manifest.caches else None


def _feeds(module: Path, signature: Signature, archive: Path | None, size: Sequence[str] | None) -> Mapping[str, Array]:
    if archive is None and (keeping := _keeping_caches(module)) is not None:
        return passed_feeds(keeping, passed_inputs(keeping, read_sizes(size)))
    specs = sized_inputs(module, signature.inputs, size, fills=archive is None)
    return make_feeds(specs, {}, noise=noise_inputs(module)) if archive is None else read_archive(archive, specs)


def _outputs(compared: _Compared) -> list[dict[str, Array]]:
    """The outputs by name, of each plan that inferences run."""
    names = [spec.name for spec in shown_outputs(compared.signature.outputs)]
    manifest, device = module_manifest(compared.module, compared.choice), compared.choice.device
    if _keeping_caches(compared.module) is not None:
        with Session(compared.module, device=device, threads=compared.threads, keep_states=False) as session:
            return [dict(zip(names, session.run(None, compared.feeds), strict=True))]
    outputs: list[dict[str, Array]] = []
    # Which plan an inference runs depends on time and memory, unless the session is told the function.
    for function in inference_functions(manifest, compared.signature):
        with Session(compared.module, device=device, threads=compared.threads, signature=function) as session:
            outputs.append(dict(zip(names, session.run(None, compared.feeds), strict=True)))
    return outputs


def _question(compared: _Compared, usual: float, bound: float | None) -> Question:
    """What the reference is asked; ``usual`` is the error that is allowed by default, ``bound`` the user's."""
    manifest = module_manifest(compared.module, compared.choice)
    return Question(
        model=compared.model,
        signature=compared.signature,
        feeds=compared.feeds,
        usual=usual,
        max_error=bound,
        narrow=usual > DEFAULT_MAX_ERROR,
        bound=bound_inputs(compared.module),
        widens=manifest is not None and widens_halves(manifest.devices),
        caches=() if manifest is None else tuple(cache.input for cache in manifest.caches),
    )


def _look_inside(compared: _Compared, errors: OutputErrors, layers: bool, bisect: float | None) -> Inside:
    """What is asked about layers, and their verdict where the outputs alone do not tell whether the module is right."""
    right = errors.right
    may_be_right = errors.is_wrong and not errors.missing and right.amplifies and len(errors.by_plan) == 1
    judges = may_be_right and _has_layers(compared)
    if not (layers or bisect is not None or judges):
        return Inside()
    with (
        tuning_progress() as progress,
        open_comparison(
            compared.module,
            compared.model,
            compared.feeds,
            right.shapes,
            choice=compared.choice,
            # Of a file with two plans, the one that is further off is of interest.
            later=errors.is_later_worse,
            threads=compared.threads,
            progress=progress,
        ) as comparison,
    ):
        inside = _inside(comparison, layers, read_bisection(bisect, right.allowed))
        verdict = comparison.verdict(compared.module) if judges else None
        return replace(inside, plan=errors.worst_plan, verdict=verdict)


def _inside(comparison: LayerComparison, layers: bool, bound: float | None) -> Inside:
    """The errors of all ``layers``, and the first beyond a bound if there is one."""
    table = comparison.table() if layers else None
    return Inside(table) if bound is None else Inside(table, bound, comparison.bisect(bound))


def _has_layers(compared: _Compared) -> bool:
    """Whether a file has one plan, which is of layers that callers' inputs are read by."""
    manifest = module_manifest(compared.module, compared.choice)
    is_plain = manifest is not None and not manifest.alternatives and not manifest.caches
    return is_plain and manifest is not None and not manifest.plan.get("unsplit", True)


def _warn(unchecked: Sequence[str]) -> None:
    for name in unchecked:
        _LOG.warning(
            "output '%s' is not checked: on these inputs it is constant, saturated or no number; "
            "give inputs of what the network will see with --inputs",
            name,
        )


def _warn_of_what_is_not_finite(feeds: Mapping[str, Array], right: Answer) -> None:
    for name, array in feeds.items():
        if count := count_not_finite(array):
            _LOG.warning("input '%s' holds NaN or infinities, %d of %d elements", name, count, array.size)
    for name, array in zip(right.names, right.outputs, strict=True):
        if count := count_not_finite(array):
            _LOG.warning(
                "output '%s' holds NaN or infinities, %d of %d elements: of these it is only compared that the module "
                "has the same",
                name,
                count,
                array.size,
            )
