"""Calls of a network whose module keeps its states, beside ONNX Runtime that gets its own states back.

    python -m benchmarks.streaming vad_stream.onnx vad_stream.vmfb --threads 1

Both get the same inputs in turn, a few calls at a time. ONNX Runtime gets its states once by hand and once by IO
binding, where two sets of buffers change places; the faster one counts. A line has median microseconds of a call, and
the ratio. The last outputs of both are compared.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnxruntime
import typer
from numpy.typing import NDArray

from sartor.runtime.output_error import relative_error
from sartor.runtime.session import Session

Array = NDArray[Any]
_ROUNDS, _CALLS, _SAMPLES = 60, 25, 8
_KINDS = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32}

app = typer.Typer(help=__doc__)


class Peer:
    """ONNX Runtime with states passed by hand.

    Args:
        session: of the model.
        states: the output of each input that is a state.
    """

    def __init__(self, session: onnxruntime.InferenceSession, states: Mapping[str, str]) -> None:
        self._session, self._states = session, states
        self.outputs = [each.name for each in session.get_outputs() if each.name not in states.values()]
        shapes = {each.name: each.shape for each in session.get_inputs()}
        self._held: dict[str, Array] = {name: np.zeros(shapes[name], np.float32) for name in states}
        self._names = [*self.outputs, *states.values()]

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """The outputs of a call that are no states."""
        found: Sequence[Array] = self._session.run(self._names, {**feeds, **self._held})
        self._held = dict(zip(self._states, found[len(self.outputs) :], strict=True))
        return list(found[: len(self.outputs)])


class BoundPeer(Peer):
    """ONNX Runtime with states bound to buffers, which are read and written in turn."""

    def __init__(self, session: onnxruntime.InferenceSession, states: Mapping[str, str]) -> None:
        super().__init__(session, states)
        values = [
            {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in self._held.items()}
            for _ in range(2)
        ]
        self._bindings = itertools.cycle([self._binding(*values), self._binding(*reversed(values))])

    def _binding(self, read: Mapping[str, Any], written: Mapping[str, Any]) -> Any:
        binding = self._session.io_binding()
        for name, output in self._states.items():
            binding.bind_ortvalue_input(name, read[name])
            binding.bind_ortvalue_output(output, written[name])
        for name in self.outputs:
            binding.bind_output(name, "cpu")
        return binding

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """The outputs of a call that are no states."""
        binding = next(self._bindings)
        for name, array in feeds.items():
            binding.bind_cpu_input(name, array)
        self._session.run_with_iobinding(binding)
        # In the order in which they were bound.
        return [value.numpy() for value in binding.get_outputs()[len(self._states) :]]


@app.command()
def main(
    model: Annotated[Path, typer.Argument(help="the ONNX file")],
    module: Annotated[Path, typer.Argument(help="its .vmfb, which keeps states")],
    threads: Annotated[int, typer.Option(help="of both")] = 1,
) -> None:
    """Time calls of both in turn, and print a line."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    peer = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
    with Session(module, threads=threads) as session:
        assert session.manifest is not None
        states = {each.input: each.output for each in session.manifest.states}
        peers = [Peer(peer, states), BoundPeer(peer, states)]
        inputs = samples([each for each in peer.get_inputs() if each.name not in states])
        runs: list[Callable[[Mapping[str, Array]], list[Array]]] = [each.run for each in peers]
        names = peers[0].outputs
        found = _medians([lambda feeds: session.run(names, feeds), *runs], inputs)
    own, *others = found
    print(
        f"{module.stem}: module {own:.1f} us, ONNX Runtime {others[0]:.1f} by hand, {others[1]:.1f} bound, "
        f"{min(others) / own:.2f} times, {threads} threads"
    )


def samples(inputs: Sequence[Any]) -> list[dict[str, Array]]:
    """Inputs of calls, which differ."""
    random = np.random.default_rng(0)
    return [
        {each.name: random.standard_normal(each.shape).astype(_KINDS[each.type]) for each in inputs}
        for _ in range(_SAMPLES)
    ]


def _medians(
    runs: Sequence[Callable[[Mapping[str, Array]], list[Array]]], samples: Sequence[Mapping[str, Array]]
) -> list[float]:
    """Median microseconds of a call of each.

    Raises:
        ValueError: if what they give differs.
    """
    taken: list[list[float]] = [[] for _ in runs]
    last: list[list[Array]] = [[] for _ in runs]
    for _ in range(_ROUNDS):
        for index, run in enumerate(runs):
            for number in range(_CALLS):
                feeds = samples[number % len(samples)]
                begin = time.perf_counter()
                last[index] = run(feeds)
                taken[index].append(time.perf_counter() - begin)
    if any(relative_error(last[0], each) > 1e-3 for each in last[1:]):
        raise ValueError("the module gives something else than ONNX Runtime")
    return [1e6 * float(np.median(each)) for each in taken]


if __name__ == "__main__":
    app()
