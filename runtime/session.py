"""Runs a .vmfb through an interface like that of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from sartor.errors import DeviceError, UsageError
from sartor.runtime.driver.device_array import DeviceArray, upload
from sartor.runtime.driver.native_device import NativeDevice
from sartor.runtime.driver.signature import (
    SESSION_TYPES,
    Array,
    Signature,
    merged,
    plain_array,
)
from sartor.runtime.execution import Execution
from sartor.runtime.kept_memory import KeptMemory
from sartor.runtime.manifest import Manifest
from sartor.runtime.mapping.reading import Step
from sartor.runtime.opening import Opened, Place, open_model
from sartor.runtime.runs.bound import BoundRun, bound_outputs, check_apart
from sartor.runtime.runs.given_arguments import check_session
from sartor.runtime.runs.interface import Feeds, Interface, NodeArg
from sartor.runtime.runs.owned_outputs import are_arrays, owned, shared_inputs
from sartor.runtime.runs.pending import PendingRun, limited_seconds
from sartor.runtime.runs.row_limits import RowLimits
from sartor.runtime.runs.short_calls import ShortCalls, are_plain
from sartor.runtime.runs.state_access import NO_PROMPTS, StateAccess
from sartor.runtime.runs.token_parts import TokenParts

if TYPE_CHECKING:
    from sartor.runtime.driver.noise import NoiseSource
    from sartor.runtime.runs.kept_caches import KeptCaches
    from sartor.runtime.runs.kept_states import KeptStates


class Session(StateAccess):
    """A compiled model on a device, with the methods of an ``onnxruntime.InferenceSession``.

    Threads may share a session; their runs are executed one after another. A model that was compiled with states keeps
    them between runs, for one sequence of inputs; ``fork`` gives a session for another one.
    """

    def __init__(
        self,
        model: str | PathLike[str] | bytes,
        *,
        device: str | NativeDevice | None = None,
        threads: int | None = None,
        spin_us: int = 0,
        huge_pages: bool = True,
        parameters: Mapping[str, Path] | None = None,
        signature: Signature | None = None,
        entry: str | None = None,
        seed: int | None = None,
        keep_states: bool = True,
    ) -> None:
        """Load a model.

        Args:
            model: path or content of a .vmfb.
            device: name as for ``open_device``, or an open device; by default the manifest's first, or else cpu. A
                model with segments opens its further devices itself, the first of each kind.
            threads: number of CPU workers, by default the one with which the module was found to run fastest, else
                one per performance core of a NUMA node, within the quota of a container.
            spin_us: microseconds an idle worker spins before it sleeps.
            huge_pages: whether a large file becomes memory of the process in huge pages, from which weights are read
                faster. It is mapped, and read ahead while the first inference runs; huge pages are filled behind that.
                Otherwise, or if the system has none or too little memory, it stays mapped, which shares memory between
                processes.
            parameters: weight files by scope, if they are not beside the .vmfb under the manifest's names.
            signature: inputs and outputs of a model without manifest, if IREE did not record them. Its function, and
                no other, runs.
            entry: the function to run in a model without manifest that exports several.
            seed: of the numbers that take the place of a model's random operators, for each of which the compiled model
                has an input. They are drawn anew for each run that does not give them. None for the seeds that the
                model gives, and else for others in each session.
            keep_states: whether the session keeps the states of a model that was compiled with some, so that runs take
                and give the others alone; else they are inputs and outputs like others.

        Raises:
            UsageError: if the file is not a module, its weights are missing, its signature is not known, or an argument
                is of another type.
            DeviceError: if there is no such device, or it cannot run the model.
        """
        others = {"device": device, "signature": signature, "entry": entry}
        flags = {"huge_pages": huge_pages, "keep_states": keep_states}
        check_session(model, parameters, seed, {**others, **flags})
        source = model if isinstance(model, bytes) else Path(model)
        opened = open_model(
            source,
            Place(device, threads, spin_us),
            huge_pages=huge_pages,
            parameters=parameters or {},
            signature=signature,
            entry=entry,
            keep_states=keep_states,
        )
        self._begin(opened, seed)

    def _begin(self, opened: Opened, seed: int | None) -> None:
        """Take over what was opened."""
        self._manifest, self._device, self._level = opened.manifest, opened.device, opened.level
        self._signature, self._signatures = opened.signature, opened.signatures
        limits = RowLimits(opened.manifest.rows if opened.manifest else {})
        self._interface = Interface(opened.signature, opened.signatures, opened.device, opened.sizes, limits)
        self._seed, self._noise = seed, _noise_source(opened.manifest, seed)
        self._execution = Execution(opened, self._interface)
        self._kept = KeptMemory(self._execution, opened, self._interface)
        one, *many = opened.signatures
        self._parts = TokenParts(one, many[-1], sizes) if (sizes := self.prompt_parts).sizes else None
        is_stateless = self._kept.is_sized and opened.states is None
        self._short = ShortCalls() if is_stateless and not opened.device.blocking else None
        self._inline: Session | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Refuse to be copied or sent to another process, as the device is this one's."""
        raise UsageError("a session cannot be copied or pickled; open the same file again where it is needed")

    @property
    def manifest(self) -> Manifest | None:
        """The module's manifest, without the network's graph; None if another program compiled it."""
        return self._manifest

    @property
    def device(self) -> NativeDevice:
        """The session's device. Another session that is given this device can use the same device arrays."""
        return self._device

    @property
    def level(self) -> str | None:
        """The target level of the code that runs here, of a module that has several; else None."""
        return self._level

    @property
    def signatures(self) -> tuple[Signature, ...]:
        """What the model takes and gives: one signature for each of the shapes that it has a plan for."""
        return self._signatures

    def get_inputs(self) -> list[NodeArg]:
        """The model's inputs in order; a size in which plans differ is None."""
        return self._interface.inputs()

    def get_outputs(self) -> list[NodeArg]:
        """The model's outputs in order; a size in which plans differ is None."""
        return self._interface.outputs()

    def run(self, output_names: Sequence[str] | None, feeds: Feeds) -> list[Array]:
        """Run the model. Each input that is a numpy array is copied to the device once.

        Returns outputs in the order of ``output_names`` (None: all outputs). On a CPU device large ones are not copied.
        Those whose size depends on data have that size. A decoder that takes prompts by parts takes any number of
        tokens that its caches have room for.

        Raises:
            UsageError: if a name, an element type or a shape does not fit the model, an input is no row of the table
                that it indexes, or the process was forked from the one that opened the device, unless that has one
                thread only.
            DeviceError: if the device fails.
        """
        given = self._completed(feeds)
        if (short := self._short) is not None and are_plain(given):
            return short.run(
                given, lambda: self._run_arrays(output_names, given), lambda: self._run_inline(output_names, given)
            )
        return self._run_arrays(output_names, given)

    def _run_arrays(self, output_names: Sequence[str] | None, feeds: Feeds) -> list[Array]:
        """As ``run``, on the session's device, with the noise."""
        selected = self._interface.selected(output_names)
        if (parts := self._parts) is not None and (tokens := parts.arrays(feeds)):
            names = [output.name for output in self._interface.outputs()]
            return parts.run(self, [names[index] for index in selected], tokens)
        if (small := self._kept.runs_of(feeds)) is not None and are_arrays(feeds):
            return self._kept.run(small, feeds, selected)
        outputs = self._run(feeds)
        arrays = owned(outputs, selected, self._interface.cuts, shared_inputs(feeds))
        self._kept.keep()
        return arrays

    def run_last(self, output_names: Sequence[str] | None, feeds: Feeds, count: int) -> list[Array]:
        """Run a part of a prompt; returns what ``run`` would give for the last of its first ``count`` tokens.

        Tokens behind these fill the part up, and are forgotten. What follows the last attention is computed for that
        token alone.

        Raises:
            UsageError: as ``run``; also if the model takes no prompts, or there are not as many tokens.
            DeviceError: if the device fails.
        """
        parts, manifest = self._parts, self._manifest
        if parts is None or manifest is None:
            raise UsageError(NO_PROMPTS)
        tokens = parts.check(feeds, count)
        selected, signature = self._interface.selected(output_names), manifest.last_signatures.get(tokens)
        if signature is not None:
            outputs = self._run(feeds, signature, [count - 1])
            return owned(outputs, selected, self._interface.cuts, shared_inputs(feeds))
        before, names = self.cached_positions, [output.name for output in self._interface.outputs()]
        arrays = self.run(output_names, feeds)
        if count < tokens:
            self.truncate(before + count)
        return parts.behind([names[index] for index in selected], arrays, count)

    def _run_inline(self, output_names: Sequence[str] | None, feeds: Feeds) -> list[Array]:
        """As ``_run_arrays``, on the calling thread, unless the model cannot be opened there."""
        inline = self._opened_inline()
        return self._run_arrays(output_names, feeds) if inline is None else inline.run(output_names, feeds)

    def _opened_inline(self) -> Session | None:
        """A session of the model on the calling thread; None, from then on, if there is no memory for it."""
        execution = self._execution
        execution.check_process()
        with execution.lock:
            execution.open_program()
            if self._inline is None and self._short is not None:
                try:
                    opened = execution.opened().inline()
                except DeviceError:
                    self._short = None
                    return None
                self._inline = Session._of(opened, self._seed)
            return self._inline

    def run_device(self, output_names: Sequence[str] | None, feeds: Feeds) -> list[DeviceArray]:
        """As ``run``, but outputs stay on the device. Inputs that are device arrays are not copied.

        If the model returns an input unchanged, the output may be the same memory. An output whose size depends on data
        is as large as it can be; the output that ``count_name`` names says how much of it is valid.
        """
        selected = self._interface.selected(output_names)
        outputs = self._run(self._completed(feeds))
        return [outputs[index] for index in selected]

    def _completed(self, feeds: Feeds) -> Feeds:
        """The inputs with the noise that the caller does not give."""
        if self._noise is None or not isinstance(feeds, Mapping):
            return feeds
        return self._noise.completed(feeds, merged([signature.inputs for signature in self._signatures]))

    def _run(self, feeds: Feeds, signature: Signature | None = None, numbers: Sequence[int] = ()) -> list[DeviceArray]:
        """All outputs, with counts; of the function that fits, or of one that takes numbers, too."""
        self._execution.check_process()
        signature = signature or self._interface.fitting(feeds)
        return self._execution.run(signature, self._interface.arguments(signature, feeds), numbers)

    def run_async(self, output_names: Sequence[str] | None, feeds: Feeds) -> PendingRun:
        """As ``run_device``, but returns before the run has finished.

        If the module has no asynchronous entry, or the device computes on the calling thread, the run is executed in a
        thread of the session. Device arrays that are inputs must not be changed until the run has finished.
        """
        self._execution.check_process()
        feeds = self._completed(feeds)
        signature = self._interface.fitting(feeds)
        arguments = self._interface.arguments(signature, feeds)
        selected = self._interface.selected(output_names)
        finish = partial(owned, selected=selected, cuts=self._interface.cuts, given=shared_inputs(feeds))
        return self._execution.begin(signature, arguments, selected, finish)

    def bind(self, feeds: Feeds, outputs: Mapping[str, DeviceArray] | None = None) -> BoundRun:
        """Fix the memory of inputs and outputs, for many runs of a small model: they allocate and describe nothing.

        Each input that is a numpy array is copied to the device; one that is a device array is used as it is. Outputs
        that are not given are allocated. Noise that is not given is drawn once.

        Raises:
            UsageError: if a name, an element type or a shape does not fit the model, two arrays share memory, or the
                process was forked from the one that opened the device.
            DeviceError: if the device has no memory left.
        """
        self._execution.check_process()
        feeds = self._completed(feeds)
        signature = self._interface.fitting(feeds)
        inputs = self._interface.arguments(signature, feeds)
        named = dict(zip((spec.name for spec in signature.inputs), inputs, strict=True))
        bound = bound_outputs(signature, outputs or {}, self._device)
        check_apart(named, bound)
        return BoundRun(self._execution.bound(signature, inputs, list(bound.values())), named, bound)

    def fork(self) -> Session:
        """Another session on the same code, weights and device whose states begin: for another sequence of inputs.

        Raises:
            UsageError, DeviceError: as ``reset``.
        """
        with self._execution.using_states():
            opened = self._execution.opened().fork()
        return Session._of(opened, self._seed)

    @classmethod
    def _of(cls, opened: Opened, seed: int | None) -> Session:
        """A session on what was opened."""
        session = cls.__new__(cls)
        session._begin(opened, seed)
        return session

    @property
    def _states(self) -> KeptStates | KeptCaches | None:
        """The states that the session keeps, if it keeps any."""
        return self._execution.states

    def _using_states(self) -> AbstractContextManager[KeptStates | KeptCaches]:
        """The states, while no run reads or writes them; errors as ``reset``."""
        return self._execution.using_states()

    def to_device(self, array: Array) -> DeviceArray:
        """Copy an array to the session's device; the result can be an input of any number of runs.

        Raises:
            UsageError: if no input can be of its element type.
            DeviceError: if the device has no memory left.
        """
        given = plain_array(array, "the array")
        if given.dtype.name not in SESSION_TYPES:
            raise UsageError(f"no input of a model can be of element type {given.dtype}")
        return upload(given, self._device)

    def allocate(self, input_name: str) -> DeviceArray:
        """Allocate a device array of zeros for an input, to be filled by ``copy_from`` or, on a CPU, through
        ``to_host``.

        Raises:
            UsageError: if there is no such input or its shape is dynamic.
        """
        return self._interface.allocate(input_name)

    @property
    def steps(self) -> Sequence[Step]:
        """What was done beside the runs so far to bring the model into memory."""
        return tuple(self._execution.overlap.steps)

    def settle(self, timeout: float | None = None) -> bool:
        """Wait, at most some seconds, until the model is where it stays in memory; later runs are the fastest.

        It may be called before the first run.

        Returns:
            Whether the model is memory of this process only, so that what happens to its files does not matter.

        Raises:
            UsageError: if the time is no number of seconds.
        """
        return self._execution.settle(limited_seconds(timeout))

    def close(self) -> None:
        """Wait for running inferences and release the model. Arrays that it returned stay valid."""
        self._execution.close()
        self._kept.release()
        inline, self._inline = self._inline, None
        if inline is not None:
            inline.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _noise_source(manifest: Manifest | None, seed: int | None) -> NoiseSource | None:
    """What draws the noise that callers do not give; None if the model takes none."""
    if manifest is None or not manifest.noise:
        return None
    from sartor.runtime.driver.noise import NoiseSource

    return NoiseSource(manifest.noise, seed, manifest.sizes)
