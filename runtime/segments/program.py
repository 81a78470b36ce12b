"""Runs a network's segments, each on its device, and moves tensors between the devices through the host.

IREE 3.13 cannot move a tensor between drivers within one function (docs/records/devices.md). What calls a program does
not see that: ``SegmentedProgram`` is invoked like ``Program``, which a later IREE may do for all devices at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from typing import Any

from sartor.runtime.driver.device_array import DeviceArray, from_view, upload
from sartor.runtime.driver.native_device import Fences, NativeDevice
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import Signature
from sartor.runtime.segments.record import Segment

_Submit = Callable[[object, Callable[[], Any]], "Future[Any]"]
"""Takes the name of a queue, and what is to be done after all else in that queue."""


class SegmentedProgram:
    """Segments with the programs that contain them. Invocations must not overlap, which is up to the caller.

    Where segments or transfers do not depend on each other, they run at the same time: each device has a queue of its
    segments, and each pair of devices one of transfers. A tensor is moved to a device once, whatever reads it there.

    Args:
        segments: in order.
        programs: by the segments' parts and devices.
        home: the device on which the caller's arrays are.
        signature: names of what the caller passes and gets.
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        programs: Mapping[tuple[str, str], Program],
        home: NativeDevice,
        signature: Signature,
    ) -> None:
        self._segments = [(segment, programs[segment.part, segment.device]) for segment in segments]
        self._home = home
        self._signature = signature

    def invoke(self, function: str, views: Sequence[Any], fences: Fences | None = None) -> list[Any]:
        """Run all segments on the views of the network's inputs; returns the views of its outputs.

        Args:
            function: the network's entry, which stands for all segments.
            views: on the home device.
            fences: not supported: a caller that should not wait calls from another thread.

        Raises:
            DeviceError: if a device fails; segments that do not depend on it have run.
            UsageError: if the process was forked from the one that opened a device.
        """
        if fences is not None or function != self._signature.entry:
            raise ValueError(f"segments cannot run as '{function}' with fences")
        inputs = [from_view(view, self._home, spec) for view, spec in zip(views, self._signature.inputs, strict=True)]
        given = dict(zip((spec.name for spec in self._signature.inputs), inputs, strict=True))
        if self._is_chain:
            outputs = self._run(given, _at_once)
        else:
            with ExitStack() as stack:
                outputs = self._run(given, _Queues(stack).submit)
        return [output.view for output in outputs]

    @property
    def _is_chain(self) -> bool:
        """Whether each segment reads only what the one before it computed, so that nothing can run beside another."""
        computed = [{spec.name for spec in segment.outputs} for segment, _ in self._segments]
        later = [segment for segment, _ in self._segments[1:]]
        return all(before.issuperset(segment.inputs) for before, segment in zip(computed, later, strict=False))

    def _run(self, given: Mapping[str, DeviceArray], submit: _Submit) -> list[DeviceArray]:
        """Submit all segments and transfers in order, so that nothing waits for what comes later in its queue."""
        values = _Values(given, submit)
        for segment, program in self._segments:
            arguments = [values.on(name, program.device) for name in segment.inputs]
            values.add(segment, program, arguments)
        returned = [values.on(spec.name, self._home) for spec in self._signature.outputs]
        wait(values.submitted)
        for submitted in values.submitted:
            submitted.result()
        return [value.result() for value in returned]


class _Queues:
    """Threads, one for each queue, which end with ``stack``."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._threads: dict[object, ThreadPoolExecutor] = {}

    def submit(self, queue: object, task: Callable[[], Any]) -> Future[Any]:
        if queue not in self._threads:
            pool = ThreadPoolExecutor(1, thread_name_prefix=f"sartor-{queue}")
            self._threads[queue] = self._stack.enter_context(pool)
        return self._threads[queue].submit(task)


def _at_once(queue: object, task: Callable[[], Any]) -> Future[Any]:
    """Do a task on the calling thread; what it raises is raised here."""
    done: Future[Any] = Future()
    done.set_result(task())
    return done


class _Values:
    """The values of one run: where they are computed, and their copies on other devices."""

    def __init__(self, given: Mapping[str, DeviceArray], submit: _Submit) -> None:
        self._submit = submit
        self._computed: dict[str, tuple[NativeDevice, Future[DeviceArray]]] = {}
        self._copies: dict[tuple[str, NativeDevice], Future[DeviceArray]] = {}
        self.submitted: list[Future[Any]] = []
        for name, array in given.items():
            ready: Future[DeviceArray] = Future()
            ready.set_result(array)
            self._computed[name] = array.device, ready

    def on(self, name: str, device: NativeDevice) -> Future[DeviceArray]:
        """A value on a device, moved there once."""
        source, computed = self._computed[name]
        if source is device:
            return computed
        if (name, device) not in self._copies:
            moved = self._submit((str(source), str(device)), lambda: upload(computed.result().to_host(), device))
            self._copies[name, device] = moved
            self.submitted.append(moved)
        return self._copies[name, device]

    def add(self, segment: Segment, program: Program, arguments: Sequence[Future[DeviceArray]]) -> None:
        """Run a segment once its arguments are there."""

        def run() -> list[DeviceArray]:
            views = program.invoke(segment.entry, [argument.result().view for argument in arguments])
            return [from_view(view, program.device, spec) for view, spec in zip(views, segment.outputs, strict=True)]

        done = self._submit(str(program.device), run)
        self.submitted.append(done)
        for index, spec in enumerate(segment.outputs):
            self._computed[spec.name] = program.device, _item(done, index)


def _item(results: Future[list[DeviceArray]], index: int) -> Future[DeviceArray]:
    """One of several results."""
    item: Future[DeviceArray] = Future()

    def settle(done: Future[list[DeviceArray]]) -> None:
        failure = done.exception()
        if failure is None:
            item.set_result(done.result()[index])
        else:
            item.set_exception(failure)

    results.add_done_callback(settle)
    return item
