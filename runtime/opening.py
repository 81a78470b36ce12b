"""Opens a .vmfb on a device: the module, its weights, its signature, and the plan or plans that run there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sartor.devices import CPU, is_cpu
from sartor.errors import DeviceError, UsageError
from sartor.runtime.driver.amx import unusable
from sartor.runtime.driver.cores import allowed_cpus, find_cores
from sartor.runtime.driver.device import open_device
from sartor.runtime.driver.native_device import NativeDevice
from sartor.runtime.driver.program import Program, Weights
from sartor.runtime.driver.signature import Signature
from sartor.runtime.foreign import read_signature
from sartor.runtime.manifest import ASYNC_SUFFIX, Manifest, find_manifest
from sartor.runtime.mapping.mapped_file import MappedFile
from sartor.runtime.mapping.overlap import Overlap, Takeover
from sartor.runtime.module import Module, beside, has_huge_pages, load_module, load_weights

if TYPE_CHECKING:
    from sartor.runtime.files.open_sizes import OpenSize
    from sartor.runtime.runs.kept_caches import KeptCaches
    from sartor.runtime.runs.kept_states import KeptStates
    from sartor.runtime.runs.passed_caches import PassingProgram
    from sartor.runtime.segments.program import SegmentedProgram
    from sartor.runtime.several.record import Alternative


NO_STATES = (
    "the model keeps no states between calls; name them when it is compiled, with --state OUTPUT=INPUT, or open its "
    "file without keep_states=False"
)

ONLY_KEPT = (
    "the module keeps its caches itself, and takes none here; in Python, a Session takes and gives them that is opened "
    "with keep_states=False, and a file that is compiled with --no-state has no others"
)


class Place(NamedTuple):
    """Where a model runs: a device's name or an open device, its threads, and how long idle ones spin, in
    microseconds; None as for ``Session``."""

    device: str | NativeDevice | None
    threads: int | None
    spin_us: int


class Opened(NamedTuple):
    """A model that can run.

    Attributes:
        manifest: None if another program compiled the module.
        device: where it runs.
        level: the target level of its code, of a module that has several.
        signature: of its first plan.
        signatures: one for each of the shapes that it has a plan for.
        functions: what the module exports.
        has_async_entry: whether the first plan has an entry that does not wait.
        takeover: what chooses between the plans for the first inference and for later ones, if it has both.
        overlap: reads its files ahead.
        program: the loaded module, or those of its segments.
        states: what the module keeps between calls; None if its caller passes all that it reads.
        sizes: those that callers choose.
    """

    manifest: Manifest | None
    device: NativeDevice
    level: str | None
    signature: Signature
    signatures: tuple[Signature, ...]
    functions: frozenset[str]
    has_async_entry: bool
    takeover: Takeover | None
    overlap: Overlap
    program: Program | SegmentedProgram | PassingProgram
    states: KeptStates | KeptCaches | None
    sizes: tuple[OpenSize, ...]

    def fork(self) -> Opened:
        """The same model with states of its own, which begin.

        Raises:
            DeviceError: if the device has no memory left.
            UsageError: if it has no states.
        """
        if self.states is None or not isinstance(self.program, Program):
            raise UsageError(NO_STATES)
        program = self.program.fork()
        return self._replace(program=program, states=self.states.of(program), overlap=self.overlap.shared())

    def inline(self) -> Opened:
        """The same model on the thread that calls.

        Raises:
            DeviceError: if the device has no memory left.
            UsageError: if it has several modules.
        """
        if not isinstance(self.program, Program):
            raise UsageError("a model of several modules runs where these are")
        device = open_device(CPU, 1)
        program = self.program.on(device)
        return self._replace(device=device, program=program, overlap=self.overlap.shared())


def open_model(
    source: Path | bytes,
    place: Place,
    *,
    huge_pages: bool,
    parameters: Mapping[str, Path],
    signature: Signature | None,
    entry: str | None,
    keep_states: bool,
) -> Opened:
    """Open a model; arguments and errors are those of ``Session``."""
    module = load_module(source, huge_pages=huge_pages)
    manifest = find_manifest(module, whole=False)
    device = _choose_device(place, manifest)
    plans = _plans_of(manifest, device, module.label)
    known = module.checksums if manifest is not None and manifest.parameters else {}
    if plans and plans[0].part:
        module = module.part(plans[0].part)
    own = _find_signature(module, manifest, signature, entry)
    has_states = manifest is not None and signature is None and bool(manifest.states or manifest.caches)
    passes = manifest is not None and has_states and bool(manifest.caches) and not keep_states
    is_stateful = has_states and (keep_states or passes)
    further: Sequence[Signature] = ()
    if manifest is not None and is_stateful:
        own, further = _stateful(module, manifest), manifest.prompt_signatures
        own, *further = manifest.passing_signatures if passes else (own, *further)
    takeover = _takeover(module, manifest) if signature is None else None
    _check_features(module.label, manifest.features if manifest else (), device)
    files = _find_parameters(source, manifest, parameters)
    loaded = {scope: load_weights(Path(file), scope, known, huge_pages=huge_pages) for scope, file in files.items()}
    mapped = [file for file in (module.mapped, *(file for _, file in loaded.values())) if file is not None]
    overlap = _overlap(mapped, device, huge_pages, takeover)
    weights = {scope: (Path(files[scope]), loaded[scope][0]) for scope in files}
    with ExitStack() as undone:
        undone.callback(overlap.stop)
        program = _load(module, manifest, device, weights, plans)
        level = _chosen_level(program, plans, own.entry if manifest is None else manifest.entry)
        _check_features(module.label, _needed(plans, level), device)
        undone.pop_all()
    states = _states(program, manifest) if is_stateful else None
    passing = _passing(program, states, manifest) if passes and manifest is not None else None
    is_segmented = manifest is not None and bool(manifest.segments)
    return Opened(
        manifest,
        device,
        level,
        own,
        _signatures(plans, own) if signature is None and not is_stateful else (own, *further),
        frozenset(module.functions),
        not is_segmented and own.entry + ASYNC_SUFFIX in module.functions,
        takeover,
        overlap,
        program if passing is None else passing,
        states if passing is None else None,
        _sizes(manifest, has_caches=has_states) if manifest is not None and signature is None else (),
    )


def _stateful(module: Module, manifest: Manifest) -> Signature:
    """The function that keeps states.

    Raises:
        UsageError: if the module lacks one of those that states need.
    """
    from sartor.runtime.driver.state import RESET_SUFFIX, RESTORE_SUFFIX, STATES_SUFFIX

    signature = manifest.stateful_signature
    needed = [signature.entry, *(manifest.entry + suffix for suffix in (RESET_SUFFIX, STATES_SUFFIX, RESTORE_SUFFIX))]
    if prompts := manifest.prompt_signatures:
        from sartor.runtime.driver.cache import TRUNCATE_SUFFIX

        lasts = manifest.last_signatures.values()
        needed += [*(prompt.entry for prompt in (*prompts, *lasts)), manifest.entry + TRUNCATE_SUFFIX]
    if missing := [name for name in needed if name not in module.functions]:
        raise UsageError(f"{module.label} exports no function '{missing[0]}'")
    return signature


def _sizes(manifest: Manifest, *, has_caches: bool) -> tuple[OpenSize, ...]:
    return manifest.stateful_sizes if has_caches and manifest.caches else manifest.sizes


def _passing(
    program: Program | SegmentedProgram, states: KeptStates | KeptCaches | None, manifest: Manifest
) -> PassingProgram:
    """The program whose caches callers pass.

    Raises:
        UsageError: if it is for several devices.
    """
    from sartor.runtime.runs.kept_caches import KeptCaches
    from sartor.runtime.runs.passed_caches import PassingProgram

    if not isinstance(program, Program) or not isinstance(states, KeptCaches):
        raise UsageError(ONLY_KEPT)
    return PassingProgram(program, states, manifest)


def _states(program: Program | SegmentedProgram, manifest: Manifest | None) -> KeptStates | KeptCaches | None:
    if manifest is None or not isinstance(program, Program):
        return None
    if manifest.caches:
        from sartor.runtime.runs.kept_caches import KeptCaches

        axes = [cache.axis for cache in manifest.caches]
        return KeptCaches(program, manifest.entry, manifest.state_specs, axes, manifest.most_positions)
    from sartor.runtime.runs.kept_states import KeptStates

    return KeptStates(program, manifest.entry, manifest.state_specs)


def _find_signature(module: Module, manifest: Manifest | None, given: Signature | None, entry: str | None) -> Signature:
    """The signature of an exported function: the caller's, or else the manifest's, or else IREE's record."""
    signature = given
    if signature is None:
        if manifest is not None and entry not in (None, manifest.entry):
            raise UsageError(f"{module.label} runs its function '{manifest.entry}' only; leave entry='{entry}' out")
        signature = manifest.signature if manifest else read_signature(module, entry)
    if signature.entry not in module.functions and not (manifest and manifest.segments):
        raise UsageError(f"{module.label} exports no function '{signature.entry}'")
    return signature


def _load(
    module: Module,
    manifest: Manifest | None,
    device: NativeDevice,
    weights: Mapping[str, Weights],
    plans: Sequence[Alternative],
) -> Program | SegmentedProgram:
    """Load a module on its device, or the modules of its segments on theirs; ``plans`` are those of the device."""
    if plans:
        from sartor.runtime.several.loading import load

        return load(module.native, module.label, device, weights, plans)
    if manifest is None or not manifest.segments:
        return Program(module.native, module.label, device, weights)
    from sartor.runtime.segments.program import SegmentedProgram

    programs: dict[tuple[str, str], Program] = {}
    for segment in manifest.segments:
        part = module.part(segment.part) if segment.part else module
        if segment.entry not in part.functions:
            raise UsageError(f"{part.label} exports no function '{segment.entry}'")
        if (segment.part, segment.device) not in programs:
            where = device if segment.device == manifest.devices[0] else open_device(segment.device)
            programs[segment.part, segment.device] = Program(part.native, part.label, where, weights)
    return SegmentedProgram(manifest.segments, programs, device, manifest.signature)


def _overlap(
    mapped: Sequence[MappedFile], device: NativeDevice, huge_pages: bool, takeover: Takeover | None
) -> Overlap:
    """Begin to bring what is mapped into memory; a GPU reads it once, from wherever it is."""
    wanted = huge_pages and device.host_memory and has_huge_pages()
    if takeover is not None:
        takeover.order(mapped)
    return Overlap(mapped, huge_pages=wanted, prepare=None if takeover is None else takeover.prepare)


def _takeover(module: Module, manifest: Manifest | None) -> Takeover | None:
    """What chooses between the plans for the first inference and for later ones, of a file that has both.

    Raises:
        UsageError: if the module lacks the function of the latter.
    """
    later = None if manifest is None else manifest.successor
    if manifest is None or later is None:
        return None
    entry = later["entry"]
    if entry not in module.functions:
        raise UsageError(f"{module.label} exports no function '{entry}'")
    return Takeover(module.label, manifest.entry, entry, later["weight_bytes"])


def _choose_device(place: Place, manifest: Manifest | None) -> NativeDevice:
    device, threads, spin_us = place.device, place.threads, place.spin_us
    if isinstance(device, NativeDevice):
        if threads is not None or spin_us:
            raise UsageError("threads and spinning are settled when a device is opened; pass them there")
        return device
    if device is None:
        device = manifest.devices[0] if manifest and manifest.devices else CPU
    if threads is None and is_cpu(device) and manifest is not None and manifest.workers is not None:
        # Found where it was compiled, which may not be this container.
        threads = min(manifest.workers, find_cores(allowed_cpus()).processes)
    return open_device(device, threads, spin_us)


# Few files have several plans, and what chooses among them takes as long to import as a small layer to run.
def _plans_of(manifest: Manifest | None, device: NativeDevice, label: str) -> tuple[Alternative, ...]:
    """The plans for a device, of a file that has several."""
    if manifest is None or not manifest.alternatives:
        return ()
    from sartor.runtime.several.choice import of_device

    kind = CPU if device.host_memory else device.label.partition(":")[0]
    return of_device(manifest.alternatives, kind, label)


def _signatures(plans: Sequence[Alternative], own: Signature) -> tuple[Signature, ...]:
    """What the plans take and give, or ``own`` if there are none."""
    if not plans:
        return (own,)
    from sartor.runtime.several.choice import signatures_of

    return signatures_of(plans, own.entry)


def _chosen_level(program: Program | SegmentedProgram, plans: Sequence[Alternative], entry: str) -> str | None:
    """The level that the module chose; None if it has not several."""
    if not plans or not isinstance(program, Program):
        return None
    from sartor.runtime.several.loading import chosen_level

    return chosen_level(program, plans, entry)


def _needed(plans: Sequence[Alternative], level: str | None) -> set[str]:
    """CPU extensions that an operating system may withhold and the plans of a level need."""
    return {feature for plan in plans if level in (None, plan.level) for feature in plan.features}


def _check_features(label: str, features: Iterable[str], device: NativeDevice) -> None:
    """Refuse code that needs extensions which this CPU lacks: the first run would end the process."""
    missing = unusable(features) if device.host_memory else ()
    if missing:
        raise DeviceError(
            f"{label} needs {', '.join(missing)}, which this CPU lacks or its operating system withholds; "
            "compile it here"
        )


def _find_parameters(model: Path | bytes, manifest: Manifest | None, given: Mapping[str, Path]) -> dict[str, Path]:
    known = manifest.parameters if manifest else {}
    if known and (unknown := sorted(set(given) - set(known))):
        there = ", ".join(f"'{scope}'" for scope in sorted(known))
        raise UsageError(
            f"the module needs no weights of the scope '{unknown[0]}' that parameters name; it has {there}"
        )
    paths = dict(given)
    for scope, file_name in known.items():
        if scope not in paths:
            if isinstance(model, bytes):
                raise UsageError(f"the model needs the weights '{file_name}'; pass parameters for '{scope}'")
            paths[scope] = beside(model, file_name)
    for scope, file in paths.items():
        if not Path(file).is_file():
            own = None
            if manifest and scope in manifest.parameters and not isinstance(model, bytes):
                own = beside(model, manifest.parameters[scope])
            raise UsageError(_no_weights(scope, Path(file), own))
    return paths


def _no_weights(scope: str, file: Path, own: Path | None) -> str:
    """What to do about weights that are missing; ``own`` is where the module has them, if they have such a place."""
    what = f"the weights '{file}' are {'no file' if file.exists() else 'missing'}"
    return f"{what}; put them beside the module" if file == own else f"{what}; pass parameters={{'{scope}': path}}"
