"""Prints what a module and its plan are: facts by name, layers, conversions and segments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from sartor.cli.output.terminal import gflops, milliseconds, optional, show_table
from sartor.cli.tables.compile_summary import UNSPLIT_MODEL, proof
from sartor.runtime.driver.counts import find_cuts, shown_outputs
from sartor.runtime.driver.signature import TensorSpec
from sartor.runtime.manifest import Manifest
from sartor.tuning.records.network import Network
from sartor.tuning.records.plan import AdaptChoice, LayerChoice, Plan


def show_choices(plan: Plan) -> None:
    """Print the layers of a plan, and its conversions."""
    if not plan.unsplit:
        _show_layers(plan)
    _show_adapts("transfers", [adapt for adapt in plan.adapts if adapt.is_transfer])
    _show_adapts("adapts", [adapt for adapt in plan.adapts if not adapt.is_transfer])


def module_rows(manifest: Manifest, plan: Plan) -> list[tuple[str, str]]:
    """What holds for a module with one plan, by name."""
    facts = [
        ("model", manifest.model),
        ("prepared model's SHA-256", manifest.model_sha256),
        ("inputs", "\n".join(map(_spec, manifest.inputs))),
        ("bound inputs", "\n".join(f"{_spec(value.spec)} = {value.text}" for value in manifest.bound)),
        ("outputs", "\n".join(_outputs(manifest.outputs))),
        ("any size", "\n".join(map(str, manifest.sizes))),
        ("other code from", "\n".join(changes_of(manifest))),
        ("entry", manifest.entry),
        ("states", "\n".join(manifest.described_states)),
        ("entry that keeps states", manifest.stateful_signature.entry if manifest.states else ""),
        ("needs of the CPU", ", ".join(manifest.features)),
        ("versions", f"sartor {manifest.sartor_version}, IREE {manifest.iree_version}"),
        ("weights", "\n".join(str(Path(name)) for name in manifest.parameters.values())),
        *_successor_facts(manifest),
        *plan_rows(plan),
    ]
    return [fact for fact in facts if fact[1]]


def _successor_facts(manifest: Manifest) -> list[tuple[str, str]]:
    """The plan for later inferences, of a file with one for the first, whose layers follow."""
    if manifest.successor is None:
        return []
    plan = Plan.from_json(manifest.successor["plan"], "the plan for later inferences")
    layers = {layer.layer: layer.variant for layer in plan.layers}
    own = Plan.from_json(manifest.plan, "the plan for the first inference")
    others = sum(layers.get(layer.layer) != layer.variant for layer in own.layers)
    return [
        ("later inferences", f"{manifest.successor['entry']}, predicted {milliseconds(plan.predicted)} ms"),
        ("layers that they compute otherwise", str(others)),
        ("weights that only they read", f"{manifest.successor['weight_bytes'] / 2**20:.2f} MiB"),
    ]


def changes_of(manifest: Manifest) -> list[str]:
    """The sizes from which on layers run other code, each with the number of these layers."""
    network = Network.from_json(manifest.network, "the network in the manifest") if manifest.network else None
    counts = Counter(layer.changes for layer in network.layers if layer.changes) if network else {}
    return [f"{sizes} ({count} {'layers' if count > 1 else 'layer'})" for sizes, count in counts.items()]


def file_rows(manifest: Manifest) -> list[tuple[str, str]]:
    """What holds for all plans of a file."""
    facts = [
        ("model", manifest.model),
        ("devices", ", ".join(manifest.devices)),
        ("levels, the best first", ", ".join(manifest.levels)),
        ("any size", "\n".join(map(str, manifest.sizes))),
        ("entry", manifest.entry),
        ("versions", f"sartor {manifest.sartor_version}, IREE {manifest.iree_version}"),
    ]
    return [fact for fact in facts if fact[1]]


def plan_rows(plan: Plan) -> list[tuple[str, str]]:
    """What a plan is for, and what it was selected by."""
    return [
        ("target", plan.target),
        ("tuned for threads", str(plan.threads)),
        ("fastest with threads", "" if plan.workers is None else str(plan.workers)),
        ("plan", UNSPLIT_MODEL if plan.unsplit else _counts(plan)),
        ("objective", plan.objective),
        ("solver", proof(plan)),
        ("predicted ms", milliseconds(plan.predicted)),
        ("times", plan.basis),
        ("peak GFLOP/s", gflops(plan.peak)),
    ]


def _outputs(specs: Sequence[TensorSpec]) -> Iterator[str]:
    """The outputs as sessions give them; of those whose size depends on data the largest size and the count."""
    cuts = find_cuts([spec.name for spec in specs])
    shown = {spec.name: spec for spec in shown_outputs(specs)}
    for index, spec in enumerate(specs):
        if index in cuts:
            cut = cuts[index]
            yield f"{_spec(shown[spec.name])}, at most {spec.shape[cut.axis]}, counted by {specs[cut.counted].name}"
        elif spec.name in shown:
            yield _spec(spec)


def _counts(plan: Plan) -> str:
    transfers = sum(adapt.is_transfer for adapt in plan.adapts)
    also = f", {transfers} transfers" if transfers else ""
    return f"{len(plan.layers)} layers, {len(plan.adapts) - transfers} adapts{also}"


def _spec(spec: TensorSpec) -> str:
    return f"{spec.name}: {spec}"


def _show_layers(plan: Plan) -> None:
    columns = ["layer", "ONNX nodes", "routine", "predicted ms", "GFLOP/s", "of peak"]
    # These columns are empty for networks that compute in the model's own types.
    rounded = any(layer.error is not None or layer.saved is not None for layer in plan.layers)
    columns += ["type", "error", "saves ms"] if rounded else []
    rows = [
        [
            layer.layer,
            ", ".join(layer.nodes),
            layer.variant,
            milliseconds(layer.seconds),
            gflops(layer.rate),
            optional(_share(layer.rate, plan.peak), "{:.0%}".format),
            *(_rounding(layer) if rounded else ()),
        ]
        for layer in plan.layers
    ]
    show_table("layers", columns, rows, right=[3, 4, 5, *([7, 8] if rounded else [])])


def _rounding(layer: LayerChoice) -> tuple[str, str, str]:
    return layer.dtype, optional(layer.error, "{:.2g}".format), milliseconds(layer.saved)


def _share(rate: float | None, peak: float | None) -> float | None:
    return rate / peak if rate and peak else None


def show_segments(manifest: Manifest) -> None:
    """Print the functions of a module for several devices."""
    rows = [
        [segment.entry, segment.device, ", ".join(segment.inputs), "\n".join(map(_spec, segment.outputs))]
        for segment in manifest.segments
    ]
    show_table("segments", ("function", "device", "takes", "gives"), rows)


def _show_adapts(title: str, adapts: Sequence[AdaptChoice]) -> None:
    rows = [
        [adapt.producer, adapt.consumer, f"{adapt.source} -> {adapt.target}", milliseconds(adapt.seconds)]
        for adapt in adapts
    ]
    if rows:
        show_table(title, ("from", "to", "conversion", "predicted ms"), rows, right=(3,))
