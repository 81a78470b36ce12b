"""The manifest inside a .vmfb: its model, signature, targets, weight files and plan.

It is JSON in the entry function's reflection attributes (``iree.reflection`` in MLIR). IREE's tools ignore and keep
these, and they can be read without a device.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sartor.devices import is_cpu
from sartor.errors import UsageError
from sartor.runtime.driver.counts import check_counts
from sartor.runtime.driver.signature import Signature, TensorSpec
from sartor.runtime.files.json_fields import FieldError, Fields, checked, listed, named, record, text, whole
from sartor.runtime.manifest_records import (
    read_alternatives,
    read_bound,
    read_caches,
    read_given,
    read_noise,
    read_prompt,
    read_prompts,
    read_segments,
    read_sizes,
    read_states,
    read_successor,
)
from sartor.runtime.module import Module, open_module

if TYPE_CHECKING:
    from sartor.runtime.driver.bound_input import BoundInput
    from sartor.runtime.driver.cache import Cache, Prompt
    from sartor.runtime.driver.noise import Noise
    from sartor.runtime.driver.state import State
    from sartor.runtime.files.open_sizes import GivenSize, OpenSize
    from sartor.runtime.segments.record import Segment
    from sartor.runtime.several.record import Alternative

MANIFEST_KEY = "sartor.manifest"
SUMS_FORMAT = 16
"""The newest format, of manifests with inputs whose sizes are sums of those that callers choose: versions that do not
know it refuse it."""
PARTS_FORMAT = 15
"""The format of manifests with functions for parts of prompts of any numbers of tokens."""
GIVEN_FORMAT = 14
"""The format of manifests with sizes of outputs that follow from those that callers choose."""
LAST_FORMAT = 13
"""The format of manifests with a function for what is behind the last token of a prompt."""
SHIFTED_FORMAT = 12
"""The format of manifests with inputs whose sizes are those that callers choose with an offset."""
COUNTED_FORMAT = 11
"""The format of manifests with an input that the module fills with the number of positions before a call."""
PROMPTS_FORMAT = 10
"""The format of manifests with a function for prompts."""
CACHES_FORMAT = 9
"""The format of manifests with caches that grow."""
STATES_FORMAT = 8
"""The format of manifests with states."""
NOISE_FORMAT = 7
"""The format of manifests with noise that sessions draw."""
OPEN_FORMAT = 6
"""The format of manifests with sizes that callers choose."""
SWITCHING_FORMAT = 5
"""The format of manifests with a plan for later inferences."""
SEVERAL_FORMAT = 4
"""The format of manifests with several plans."""
MANIFEST_FORMAT = 3
"""The format of manifests with a network."""
SEGMENTS_FORMAT = 2
ONE_DEVICE_FORMAT = 1
ASYNC_SUFFIX = "$async"
BOUND_SUFFIX = "$bound"

_SHOWN_DIGITS = 40
# Without them, older versions read the modules that need none.
_LATER_FIELDS = ("segments", "alternatives", "successor", "sizes", "given", "noise", "states", "caches", "prompts")
_SHA256_DIGITS, _HEXADECIMAL = 64, frozenset("0123456789abcdef")


def _check_file_name(name: str) -> None:
    # The file is read from the .vmfb's folder. A manifest must not name a file elsewhere.
    if not name or name in {".", ".."} or any(separator in name for separator in "/\\\0"):
        raise ValueError(f"'{name}' is not a plain file name")


def _check_names(specs: Sequence[TensorSpec]) -> None:
    if len({spec.name for spec in specs}) != len(specs):
        raise ValueError("two tensors have the same name")


def _check_sha256(digest: str) -> None:
    # Without a regular expression, whose first use takes as long as all else that is read here.
    if len(digest) != _SHA256_DIGITS or not set(digest) <= _HEXADECIMAL:
        raise ValueError("a SHA-256 has 64 hexadecimal digits")


_SPECS = checked(listed(TensorSpec.read), _check_names)


@dataclass(frozen=True)
class Manifest:
    """The description of a module.

    ``entry`` is the exported function; ``devices`` are kinds such as ``cpu`` or ``vulkan``; ``levels`` are the target
    levels of the code; ``features`` are CPU extensions that the code needs and an operating system may withhold;
    ``parameters`` maps a scope to the name of its weight file beside the .vmfb; ``plan`` is the plan as JSON data,
    which is not checked here;
    ``bound`` are the model's inputs with a fixed value, which the module does not take;
    ``segments`` are the parts that run one after another on several devices, in which case no function is called
    ``entry``. Callers' arrays are on the first of ``devices``. ``format`` is then ``SEGMENTS_FORMAT`` or newer;
    ``network`` are the layers with what they read and write as JSON data, which is not checked here, and empty in
    modules of earlier versions, and in manifests that were not read ``whole``. ``format`` is then ``MANIFEST_FORMAT``.
    ``alternatives`` are the plans of a file with several, of which each device runs one; ``format`` is then
    ``SEVERAL_FORMAT``, and ``inputs`` and ``plan`` are those of the first;
    ``successor`` is the plan for later inferences, of a file whose ``entry`` and ``plan`` are for the first one;
    it has an ``entry`` of its own, which takes and gives the same, ``weight_bytes`` that only it reads, and a ``plan``.
    ``format`` is then ``SWITCHING_FORMAT``;
    ``sizes`` are those that callers choose, which ``inputs`` and ``outputs`` have as None; ``format`` is then
    ``OPEN_FORMAT``, or ``SHIFTED_FORMAT`` if one is a size of an input but for an offset;
    ``given`` are the sizes of ``outputs`` that follow from these; ``format`` is then ``GIVEN_FORMAT``;
    ``noise`` are those of ``inputs`` that stand for random operators, which sessions draw where callers give none;
    ``format`` is then ``NOISE_FORMAT``;
    ``states`` are pairs of ``outputs`` and ``inputs`` that the module can keep between calls, for which it has further
    functions. ``format`` is then ``STATES_FORMAT``;
    ``caches`` are inputs and outputs that the module keeps as caches that grow; there are no ``states`` then, and
    ``format`` is ``CACHES_FORMAT``, or ``COUNTED_FORMAT`` if an input is the number of positions before a call, which
    the function that keeps caches does not take;
    ``prompts`` are the functions for parts of a prompt, of more and more tokens, which append to the same caches;
    ``format`` is then ``PARTS_FORMAT``, or, of older files with one of them, ``PROMPTS_FORMAT`` or ``LAST_FORMAT``.
    """

    model: str
    model_sha256: str
    entry: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    devices: tuple[str, ...]
    levels: tuple[str, ...]
    sartor_version: str
    iree_version: str
    plan: dict[str, Any]
    parameters: dict[str, str] = field(default_factory=dict)
    features: tuple[str, ...] = ()
    bound: tuple[BoundInput, ...] = ()
    segments: tuple[Segment, ...] = ()
    network: dict[str, Any] = field(default_factory=dict)
    alternatives: tuple[Alternative, ...] = ()
    successor: dict[str, Any] | None = None
    sizes: tuple[OpenSize, ...] = ()
    given: tuple[GivenSize, ...] = ()
    noise: tuple[Noise, ...] = ()
    states: tuple[State, ...] = ()
    caches: tuple[Cache, ...] = ()
    prompts: tuple[Prompt, ...] = ()
    format: int = ONE_DEVICE_FORMAT

    def __post_init__(self) -> None:
        """Check what fields say together.

        Raises:
            ValueError: if they contradict each other.
        """
        check_counts(self.outputs)
        if not self.devices:
            raise ValueError("it is for no device")
        self._check_inputs()
        self._check_states()
        if self.segments:
            from sartor.runtime.segments.record import check_order

            if unknown := sorted({segment.device for segment in self.segments} - {*self.devices}):
                raise ValueError(f"a segment is for the device '{unknown[0]}', which is not among the module's devices")
            check_order(self.segments, *((spec.name for spec in specs) for specs in (self.inputs, self.outputs)))
        if self.alternatives:
            from sartor.runtime.several.record import check_alternatives

            check_alternatives(self.alternatives, self.inputs, self.outputs, self.devices)

    def _check_inputs(self) -> None:
        """Check that open sizes, and noise, are those of inputs, and that sizes of outputs follow from them."""
        ranks = {spec.name: len(spec.shape) for spec in self.inputs}
        for size in self.sizes:
            places = [place for named in size.places for place in (named, *named.besides)]
            if not places or any(place.axis >= ranks.get(place.input, 0) for place in places):
                raise ValueError(f"no input has the size '{size.name}'")
            if size.multiple < 1:
                raise ValueError(f"the size '{size.name}' is a multiple of {size.multiple}")
        ranks, names = {spec.name: len(spec.shape) for spec in self.outputs}, {size.name for size in self.sizes}
        for given in self.given:
            if given.axis >= ranks.get(given.output, 0) or not names.issuperset(given.sizes):
                raise ValueError(
                    f"a size of the output '{given.output}' does not follow from those that callers choose"
                )
        if unknown := sorted({noise.name for noise in self.noise} - {spec.name for spec in self.inputs}):
            raise ValueError(f"no input '{unknown[0]}' takes the noise of that name")

    def _check_states(self) -> None:
        """Check that states, caches and the function that fills them are made of inputs and outputs."""
        if self.states:
            from sartor.runtime.driver.state import check_states

            check_states(self.states, self.inputs, self.outputs)
        if self.caches:
            from sartor.runtime.driver.cache import check_caches

            check_caches(self.caches, self.inputs, self.outputs)
            if self.states or self._length is None:
                raise ValueError("a module with caches has no other states, and a size that is their length")
        if self.prompts:
            from sartor.runtime.driver.cache import check_prompts

            check_prompts(self.prompts, self.stateful_signature)

    @property
    def signature(self) -> Signature:
        """The entry function with its inputs and outputs."""
        return Signature(self.entry, self.inputs, self.outputs)

    @property
    def stateful_signature(self) -> Signature:
        """The function that keeps states between calls: its inputs and outputs are those that are no states."""
        from sartor.runtime.driver.cache import BEFORE
        from sartor.runtime.driver.state import STATEFUL_SUFFIX

        kept: tuple[State | Cache, ...] = (*self.states, *self.caches)
        read, written = {state.input for state in kept}, {state.output for state in kept}
        read |= {BEFORE} if self.caches else set()
        return Signature(
            self.entry + STATEFUL_SUFFIX,
            tuple(spec for spec in self.inputs if spec.name not in read),
            tuple(spec for spec in self.outputs if spec.name not in written),
        )

    @property
    def prompt_signatures(self) -> tuple[Signature, ...]:
        """The functions for parts of a prompt, without caches."""
        from sartor.runtime.driver.state import STATEFUL_SUFFIX

        return tuple(
            Signature(f"{self.entry}{prompt.suffix}{STATEFUL_SUFFIX}", prompt.inputs, prompt.outputs)
            for prompt in self.prompts
        )

    @property
    def last_signatures(self) -> dict[int, Signature]:
        """The functions for parts of a prompt that give what is behind one of their tokens, by their numbers of
        tokens."""
        from sartor.runtime.driver.cache import LAST_SUFFIX
        from sartor.runtime.driver.state import STATEFUL_SUFFIX

        outputs = self.stateful_signature.outputs if self.prompts else ()
        return {
            prompt.tokens: Signature(
                f"{self.entry}{prompt.suffix}{LAST_SUFFIX}{STATEFUL_SUFFIX}", prompt.inputs, outputs
            )
            for prompt in self.prompts
            if prompt.gives_last
        }

    @property
    def passing_signatures(self) -> tuple[Signature, ...]:
        """The functions that keep caches which grow as callers see them who pass the caches: for one token, and for
        several if there are such."""
        caches = dict(zip((cache.input for cache in self.caches), self.state_specs, strict=True))
        grown = {cache.output: replace(caches[cache.input], name=cache.output) for cache in self.caches}

        return tuple(
            Signature(
                own.entry,
                _in_order(self.inputs, own.inputs, caches),
                _in_order(self.outputs, own.outputs, grown),
            )
            for own in (self.stateful_signature, *self.prompt_signatures)
        )

    @property
    def state_specs(self) -> tuple[TensorSpec, ...]:
        """Name, element type and shape of each state, as of its input, or of each cache as callers have it."""
        specs = {spec.name: spec for spec in self.inputs}
        caches = (cache.spec(specs[cache.input]) for cache in self.caches)
        return (*(specs[state.input] for state in self.states), *caches)

    @property
    def described_states(self) -> list[str]:
        """The states in words, one line each."""
        specs = {spec.name: spec for spec in self.inputs}
        states = [state.described(specs[state.input]) for state in self.states]
        return states + [cache.described(specs[cache.input], self.most_positions) for cache in self.caches]

    @property
    def _length(self) -> OpenSize | None:
        """The size that all caches have along their first axis."""
        first = {cache.input for cache in self.caches}
        lengths = ({place.input for place in size.places if not place.axis} for size in self.sizes)
        return next((size for size, held in zip(self.sizes, lengths, strict=True) if first <= held), None)

    @property
    def most_positions(self) -> int:
        """Positions that there is room for in caches; 0 without such."""
        length = self._length if self.caches else None
        return 0 if length is None else length.most

    @property
    def stateful_sizes(self) -> tuple[OpenSize, ...]:
        """The sizes that callers choose of a module with caches: all but their length."""
        return tuple(size for size in self.sizes if size is not self._length)

    @property
    def rows(self) -> dict[str, int]:
        """Inputs all of whose elements are rows of tables, with the number of rows of the shortest one."""
        rows = self.plan.get("rows")
        known = rows.items() if isinstance(rows, dict) else ()
        return {name: count for name, count in known if isinstance(count, int) and count > 0}

    @property
    def workers(self) -> int | None:
        """Number of CPU threads with which the module runs fastest; None if nothing, or no such number, is known.

        Of several plans, which share threads, that of the one which needs most.
        """
        plans = [alternative.plan or self.plan for alternative in self.alternatives if is_cpu(alternative.device)]
        counts = [plan.get("workers") for plan in plans or [self._later]]
        known = [count for count in counts if isinstance(count, int) and not isinstance(count, bool) and count >= 1]
        return max(known) if known and len(known) == len(counts) else None

    @property
    def _later(self) -> dict[str, Any]:
        return self.plan if self.successor is None else dict(self.successor["plan"])

    def to_json(self) -> str:
        """The manifest as JSON in ASCII with sorted keys, so equal ones give equal bytes; the network in a second line.

        Raises:
            ValueError: if the plan has a number that JSON cannot represent.
        """
        content = asdict(self)
        # In a line of its own, which no session parses: that would take a tenth of the time to load a small network.
        network = content.pop("network")
        for size, own in zip(content["sizes"], self.sizes, strict=True):
            size["places"] = [place.to_json() for place in own.places]
        for name in _LATER_FIELDS:
            if not content[name]:
                del content[name]
        lines = [content, network] if network else [content]
        return "\n".join(json.dumps(line, sort_keys=True, separators=(",", ":"), allow_nan=False) for line in lines)

    @staticmethod
    def from_json(text: str, *, whole: bool = True) -> Manifest:
        """Parse the result of ``to_json``, or only what is needed to run the module, without the network.

        Raises:
            UsageError: if it is not a manifest, or has a newer format than this version reads.
        """
        try:
            first, _, network = text.partition("\n")
            content = json.loads(first, parse_constant=_finite, parse_float=_finite)
            if whole and network and isinstance(content, dict):
                content["network"] = json.loads(network, parse_constant=_finite, parse_float=_finite)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"the manifest is not JSON: {error}") from None
        _refuse_newer_format(content)
        try:
            return _read(content)
        except ValueError as error:
            where = error.where if isinstance(error, FieldError) else ""
            raise UsageError(f"the manifest is not valid at {where or 'top level'}: {error}") from None


def _in_order(
    all: Sequence[TensorSpec], own: Sequence[TensorSpec], kept: dict[str, TensorSpec]
) -> tuple[TensorSpec, ...]:
    """A function's own inputs or outputs, and those that it keeps, in the order of the module's."""
    known = {**{spec.name: spec for spec in own}, **kept}
    return tuple(known[spec.name] for spec in all if spec.name in known)


def _read(content: object) -> Manifest:
    """The manifest in JSON data.

    Raises:
        ValueError: if it is none; a ``FieldError`` says where.
    """
    fields = Fields(content)
    names = listed(text)
    manifest = Manifest(
        model=fields.take("model", text),
        model_sha256=fields.take("model_sha256", checked(text, _check_sha256)),
        entry=fields.take("entry", text),
        inputs=fields.take("inputs", _SPECS),
        outputs=fields.take("outputs", _SPECS),
        devices=fields.take("devices", names),
        levels=fields.take("levels", names),
        sartor_version=fields.take("sartor_version", text),
        iree_version=fields.take("iree_version", text),
        plan=fields.take("plan", record),
        parameters=fields.take("parameters", named(checked(text, _check_file_name)), {}),
        features=fields.take("features", names, ()),
        bound=fields.take("bound", read_bound, ()),
        segments=fields.take("segments", read_segments, ()),
        network=fields.take("network", record, {}),
        alternatives=fields.take("alternatives", read_alternatives, ()),
        successor=fields.take("successor", read_successor, None),
        sizes=fields.take("sizes", read_sizes, ()),
        given=fields.take("given", read_given, ()),
        noise=fields.take("noise", read_noise, ()),
        states=fields.take("states", read_states, ()),
        caches=fields.take("caches", read_caches, ()),
        # Of older files, which have one.
        prompts=fields.take("prompts", read_prompts, ()) or fields.take("prompt", read_prompt, ()),
        format=fields.take("format", whole, ONE_DEVICE_FORMAT),
    )
    fields.end()
    return manifest


def _finite(text: str) -> float:
    """A number as JSON has it; Python also takes NaN, Infinity and what is too large."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"'{text[:_SHOWN_DIGITS]}' is not a number in JSON")
    return number


def _refuse_newer_format(content: object) -> None:
    number = content.get("format") if isinstance(content, dict) else None
    if isinstance(number, int) and number > SUMS_FORMAT:
        raise UsageError(f"the manifest has format {number}, this version reads up to {SUMS_FORMAT}; update sartor")


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of a .vmfb, without opening a device or reading weights.

    Raises:
        UsageError: if the file is missing, is not an IREE module, or has no valid manifest.
    """
    manifest = find_manifest(open_module(path))
    if manifest is None:
        raise UsageError(f"'{path}' has no manifest: it was not compiled by sartor")
    return manifest


def find_manifest(module: Module, *, whole: bool = True) -> Manifest | None:
    """The manifest of an opened module, or None if no function has one; without the network if not ``whole``."""
    for function in module.functions:
        text = module.reflection(function).get(MANIFEST_KEY)
        if text is not None:
            return Manifest.from_json(text, whole=whole)
    return None
