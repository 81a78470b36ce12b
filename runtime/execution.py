"""Runs what was opened on arrays of its device: one run after another, whoever calls."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from sartor.errors import DeviceError, UsageError
from sartor.runtime.driver.device_array import DeviceArray
from sartor.runtime.driver.native_device import Fences
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import Array, Signature
from sartor.runtime.manifest import ASYNC_SUFFIX, BOUND_SUFFIX
from sartor.runtime.opening import NO_STATES, Opened
from sartor.runtime.runs.bound import copying
from sartor.runtime.runs.interface import Interface
from sartor.runtime.runs.owned_outputs import when_finished
from sartor.runtime.runs.pending import CLOSED, OwnThread, PendingRun, result_in

if TYPE_CHECKING:
    from sartor.runtime.runs.kept_caches import KeptCaches
    from sartor.runtime.runs.kept_states import KeptStates
    from sartor.runtime.runs.passed_caches import PassingProgram
    from sartor.runtime.segments.program import SegmentedProgram


class Execution:
    """A model that was opened, and its runs. Threads may share it.

    Attributes:
        lock: what holds it is the only one that runs; a fork has one of its own.
        overlap: what brings the model into memory beside runs.
        program: what runs; None if it is closed.
        states: what the model keeps between runs; None if it keeps nothing, or is closed.
    """

    def __init__(self, opened: Opened, interface: Interface) -> None:
        """Take over what was opened, with its inputs and outputs."""
        self._in_flight: list[tuple[Fences, object]] = []
        self.overlap = opened.overlap
        self._opened: Opened | None = opened
        self._interface, self._device, self._functions = interface, opened.device, opened.functions
        self._takeover, self._has_async_entry = opened.takeover, opened.has_async_entry
        self.states: KeptStates | KeptCaches | None = opened.states
        self.program: Program | SegmentedProgram | PassingProgram | None = opened.program
        self._process, self.lock = os.getpid(), threading.Lock()
        self._own_thread = OwnThread()

    def check_process(self) -> None:
        """Make sure that the device works in this process, which may have been forked."""
        self._device.check_process()
        self._forget_parent()

    def _forget_parent(self) -> None:
        """In a forked process: its threads stayed with the parent, and one may have held a lock."""
        if os.getpid() != self._process:
            self._process, self.lock, self._own_thread = os.getpid(), threading.Lock(), OwnThread()

    def open_program(self) -> Program | SegmentedProgram | PassingProgram:
        """What runs.

        Raises:
            UsageError: if it was closed.
        """
        if (program := self.program) is None:
            raise UsageError(CLOSED)
        return program

    def opened(self) -> Opened:
        """What was opened; the caller has the lock.

        Raises:
            UsageError: if it was closed.
        """
        if self._opened is None:
            raise UsageError(CLOSED)
        return self._opened

    @contextmanager
    def using_states(self) -> Iterator[KeptStates | KeptCaches]:
        """The states, while no run reads or writes them.

        Raises:
            UsageError: if the model keeps none, or is closed.
        """
        self.check_process()
        with self.lock:
            self.open_program()
            if self.states is None:
                raise UsageError(NO_STATES)
            yield self.states

    def run(
        self, signature: Signature, arguments: Sequence[DeviceArray], numbers: Sequence[int] = ()
    ) -> list[DeviceArray]:
        """All outputs, with counts, of the function for a signature, which may take numbers too.

        Raises:
            UsageError: if it was closed.
            DeviceError: if the device fails.
        """
        with self.lock:
            self.overlap.begin_run()
            if self._device.software and self._has_async_entry:
                # Who waits inside a software driver takes a processor from the driver's threads.
                fences, outputs = self._start(signature, arguments)
                fences.wait(timeout=None)
                self._in_flight.pop()
            else:
                views = self._invoked(self._entry(signature), arguments, numbers)
                outputs = self._interface.results(signature, views)
            if self.states is not None and signature.entry + BOUND_SUFFIX not in self._functions:
                outputs = self.states.apart(outputs)
            self.overlap.end_run()
        return outputs

    def begin(
        self,
        signature: Signature,
        arguments: Sequence[DeviceArray],
        selected: Sequence[int],
        finish: Callable[[list[DeviceArray]], list[Array]],
    ) -> PendingRun:
        """Start a run, in a thread of its own where the device would hold up the caller.

        Args:
            signature: of the function.
            arguments: its inputs.
            selected: indices of the outputs that were asked for.
            finish: makes arrays of all outputs. It must not refer to the session, which waits for its runs when it is
                forgotten.

        Raises:
            UsageError, DeviceError: as ``run``.
        """
        if self._device.blocking or not self._has_async_entry:
            future = self._own_thread.submit(partial(self.run, signature, arguments))
            return PendingRun(partial(result_in, os.getpid(), future), selected, finish)
        overlap = self.overlap
        with self.lock:
            overlap.begin_run()
            fences, outputs = self._start(signature, arguments)
        return PendingRun(lambda timeout: when_finished(fences, overlap, outputs, timeout), selected, finish)

    def bound(
        self, signature: Signature, inputs: Sequence[DeviceArray], outputs: Sequence[DeviceArray]
    ) -> Callable[[], None]:
        """Runs the model on these arrays, one run after another; by the plan of the moment if there are two.

        Raises:
            UsageError: if it was closed.
        """
        program, calls = self.open_program(), dict[str, Callable[[], None]]()
        views = [array.view for array in inputs]
        limits, named = self._interface.limits, [*zip((spec.name for spec in signature.inputs), inputs, strict=True)]

        def prepared(entry: str) -> Callable[[], None]:
            if isinstance(program, Program) and entry + BOUND_SUFFIX in self._functions:
                return program.prepare(entry + BOUND_SUFFIX, [*views, *(output.view for output in outputs)])
            return copying(lambda: self._interface.results(signature, self._invoked(entry, inputs)), outputs)

        def execute() -> None:
            self.check_process()
            limits.check(named)
            with self.lock:
                self.open_program()
                self.overlap.begin_run()
                entry = self._entry(signature)
                if entry not in calls:
                    calls[entry] = prepared(entry)
                calls[entry]()
                self.overlap.end_run()

        return execute

    def _entry(self, signature: Signature) -> str:
        """The function that the next run calls."""
        return signature.entry if self._takeover is None else self._takeover.entry()

    def _invoked(self, entry: str, arguments: Sequence[DeviceArray], numbers: Sequence[int] = ()) -> Sequence[object]:
        """What the module's function gives; the caller has the lock."""
        program, states, views = self.open_program(), self.states, [array.view for array in arguments]
        try:
            if numbers and isinstance(program, Program):
                return program.invoke(entry, views, numbers=numbers)
            return program.invoke(entry, views)
        except DeviceError as error:
            if states is None:
                raise
            raise states.explained(error) from None

    def _start(self, signature: Signature, arguments: Sequence[DeviceArray]) -> tuple[Fences, list[DeviceArray]]:
        """Start a run, and keep what it reads and writes until it has finished; the caller has the lock."""
        fences, views = Fences(self._device), [array.view for array in arguments]
        entry = self._entry(signature) + ASYNC_SUFFIX
        outputs = self._interface.results(signature, self.open_program().invoke(entry, views, fences))
        self._in_flight = [run for run in self._in_flight if not run[0].settled(0.0)]
        self._in_flight.append((fences, (arguments, outputs)))
        return fences, outputs

    def settle(self, timeout: float | None) -> bool:
        """As ``Session.settle``, with a time that was checked."""
        if self._takeover is not None:
            self._takeover.settle()
        return self.overlap.settle(timeout)

    def close(self) -> None:
        """Wait for runs, and release the model."""
        self._forget_parent()
        self._own_thread.close()
        with self.lock:
            for fences, _ in self._in_flight:
                fences.settled(None)
            self._in_flight.clear()
            self.overlap.stop()
            self.program, self._opened, self.states = None, None, None

    def __del__(self) -> None:
        # A device must not be closed during a run.
        for fences, _ in self._in_flight:
            fences.settled(None)
        self.overlap.stop()
