"""Tokens of a decoder whose module keeps its caches, beside ONNX Runtime with its caches bound, behind several lengths.

    python -m benchmarks.decoding decoder.onnx decoder.vmfb --past 16,256,2000 --threads 1

Both decode the same tokens in turn, a few at a time, behind caches of the same random numbers, with a pause between:
threads of ONNX Runtime spin after a run, on processors that the module needs. ONNX Runtime gets the caches that it gave
for the token before, by IO binding, without a copy. A row has the median time of a token, what ONNX Runtime takes by
it, and the memory of the caches by what of them lives. The module's file is where it stays in memory before: moving
hundreds of megabytes takes a processor from the first tokens. Modules that take prompts are timed with these, too: the
time to the first token, beside a call for the whole prompt, if the model takes several tokens. With ``--growth
0:128,960:1088`` tokens at these positions are timed in several sessions, each with caches that were never written: a
position's median is compared with those of its neighbours, to find calls that stall where caches grow; the first calls
of a session, which bring code and weights near, are made before where there is room. With ``--right 300`` so many
random tokens are compared with ONNX Runtime, one by one and in one run. Where the model permits ONNX Runtime to round
products (``accuracy_level``), it is asked not to for comparisons.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx
import onnxruntime
import typer
from numpy.typing import NDArray

import sartor
from sartor.runtime.benchmark import PAUSE
from sartor.runtime.runs.kept_caches import KeptCaches
from sartor.runtime.session import Session

Array = NDArray[Any]
_PRESENT_BIT, _ENTRY = 63, 8
# Blocks of each, their tokens, and how many of these go before those that count, as processors wake up.
_RUNS, _TOKENS, _FIRST = 5, 24, 8
# Sessions in which each position is timed, positions on each side that it is compared with, and how much longer than
# these a call may take.
_SESSIONS, _NEIGHBOURS, _STALL = 31, 8, 1.05
# Calls of a session before those that are compared: behind a pause, or caches that were copied in, some take 1.2 times
# as long as later ones, at any position.
_BEFORE = 12
_KINDS = {1: np.float32, 6: np.int32, 7: np.int64, 10: np.float16}

app = typer.Typer(help=__doc__)


class Peer:
    """ONNX Runtime, which keeps the caches that it gave.

    Args:
        model: the ONNX file.
        threads: of its session.
        is_exact: whether it shall round nothing, whatever the model permits.
    """

    def __init__(self, model: Path, threads: int, *, is_exact: bool = False) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(model.parent))
        source = exact(model) if is_exact else str(model)
        self._session = onnxruntime.InferenceSession(source, options, ["CPUExecutionProvider"])
        self._outputs = [each.name for each in self._session.get_outputs()]
        self._inputs = [each.name for each in self._session.get_inputs()]
        self.caches = cache_shapes(model)
        self._held: dict[str, Any] = {}

    def fork(self) -> Peer:
        """Another sequence of the same session."""
        other = copy(self)
        other._held = {}
        return other

    @property
    def empty(self) -> dict[str, Array]:
        """Caches without positions."""
        return drawn(self.caches, 0)

    def begin(self, caches: Mapping[str, Array]) -> None:
        """Let the next call follow these caches."""
        self._held = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in caches.items()}

    def run(self, tokens: Sequence[int], before: int) -> Array:
        """The logits behind tokens at a position."""
        binding = self._session.io_binding()
        for name, array in feeds(self._inputs, tokens, before).items():
            binding.bind_cpu_input(name, array)
        for name, value in self._held.items():
            binding.bind_ortvalue_input(name, value)
        for name in self._outputs:
            binding.bind_output(name, "cpu")
        self._session.run_with_iobinding(binding)
        found = dict(zip(self._outputs, binding.get_outputs(), strict=True))
        self._held = {name: found[_present(name, found)] for name in self._held}
        logits: Array = found["logits"].numpy()
        return logits


def exact(model: Path) -> bytes:
    """A model whose products may not be rounded."""
    found = onnx.load(model, load_external_data=False)
    for each in found.graph.node:
        for attribute in each.attribute:
            if attribute.name == "accuracy_level":
                attribute.i = 0
    return found.SerializeToString()


def _present(name: str, given: Mapping[str, object]) -> str:
    """The output that takes the place of an input."""
    return next(each for past in ("past_key_values", "past") if (each := name.replace(past, "present", 1)) in given)


def _shapes(model: Path) -> dict[str, tuple[list[int], Any]]:
    """Shapes of inputs with zeros where the model declares no size, and element types."""
    graph = onnx.load(model, load_external_data=False).graph
    kinds = {value.name: value.type.tensor_type for value in graph.input}
    return {
        name: ([dim.dim_value for dim in kind.shape.dim], _KINDS.get(kind.elem_type)) for name, kind in kinds.items()
    }


def cache_shapes(model: Path) -> dict[str, tuple[list[int], Any]]:
    """Those of the caches that a model takes."""
    return {name: shape for name, shape in _shapes(model).items() if name.startswith("past")}


def cache_bytes(model: Path, past: int) -> int:
    """Bytes of a model's caches with so many positions."""
    return sum(array.nbytes for array in drawn(cache_shapes(model), past).values())


def feeds(names: Sequence[str], tokens: Sequence[int], before: int) -> dict[str, Array]:
    """What a call takes beside caches."""
    count = len(tokens)
    known: dict[str, Array] = {
        "input_ids": np.array([tokens], np.int64),
        "position_ids": np.arange(before, before + count, dtype=np.int64)[None],
        "attention_mask": np.ones((1, before + count), np.int64),
    }
    return {name: array for name, array in known.items() if name in names}


def resident(session: Session) -> int:
    """Bytes of a session's caches that are in memory, as the system counts pages."""
    total = 0
    with session._using_states() as states:
        assert isinstance(states, KeptCaches)
        for address, size in states.places():
            first, last = address // mmap.PAGESIZE, -(-(address + size) // mmap.PAGESIZE)
            with Path("/proc/self/pagemap").open("rb") as pages:
                pages.seek(_ENTRY * first)
                entries = np.frombuffer(pages.read(_ENTRY * (last - first)), np.uint64)
            total += mmap.PAGESIZE * int((entries >> np.uint64(_PRESENT_BIT)).sum())
    return total


def timed(call: Callable[[], object]) -> float:
    """Seconds of a call."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def drawn(caches: Mapping[str, tuple[list[int], Any]], past: int) -> dict[str, Array]:
    """Caches of random numbers with these shapes and element types."""
    random = np.random.default_rng(0)
    sizes = {name: ([shape[0] or 1, *shape[1:]], kind) for name, (shape, kind) in caches.items()}
    return {
        name: random.standard_normal([size or past for size in shape]).astype(kind)
        for name, (shape, kind) in sizes.items()
    }


def error(one: Array, other: Array) -> float:
    """How far logits are from others, by the largest of these."""
    return float(np.abs(one - other).max() / np.abs(other).max())


def decode(session: Session, peer: Peer, judge: Peer, past: int) -> str:
    """A row of the table: tokens behind caches of a length. The last one has to be what ``judge`` gives."""
    caches, inputs = drawn(peer.caches, past), [each.name for each in session.get_inputs()]
    # Random numbers have no meaning, and so no likeliest token that both agree about.
    ours, theirs, held = list[float](), list[float](), 0
    for run in range(_RUNS):
        session.restore(caches)
        peer.begin(caches)
        judge.begin(caches)
        time.sleep(PAUSE)
        for place in range(past, past + _TOKENS):
            given = feeds(inputs, [1 + place % 7], place)
            ours.append(timed(partial(session.run, ["logits"], given)))
        time.sleep(PAUSE)
        for place in range(past, past + _TOKENS):
            theirs.append(timed(partial(peer.run, [1 + place % 7], place)))
        if not run:
            (one,) = session.run(["logits"], feeds(inputs, [3], past + _TOKENS))
            for place in range(past, past + _TOKENS):
                judge.run([1 + place % 7], place)
            worst = error(one, judge.run([3], past + _TOKENS))
            if not worst < 1e-2:
                raise typer.BadParameter(f"the module is wrong behind {past} positions, by {worst:.2g}")
            live = sum(array.nbytes for array in caches.values()) * (past + _TOKENS + 1) // max(past, 1)
            held = resident(session)
            session.reset()
    mine, other_time = _median(ours), _median(theirs)
    return f"| {past} | {mine * 1e3:.2f} | {other_time / mine:.2f} | {held / live:.2f} |"


def _median(seconds: Sequence[float]) -> float:
    """Of the tokens of all blocks that count."""
    return float(np.median(np.reshape(seconds, (-1, _TOKENS))[:, _FIRST:]))


def first_token(session: Session, peer: Peer, count: int) -> str:
    """A row of the table: the time to the first token behind a prompt."""
    prompt = [1 + place % 7 for place in range(count)]
    empty, ours, theirs = peer.empty, list[float](), list[float]()
    for _ in range(3):
        session.reset()
        time.sleep(PAUSE)
        ours.append(timed(lambda: next(sartor.generate(session, prompt, 1))))
        peer.begin(empty)
        time.sleep(PAUSE)
        theirs.append(timed(lambda: peer.run(prompt, 0)))
    return f"| {count} | {min(ours) * 1e3:.1f} | {min(theirs) / min(ours):.2f} |"


def compared(session: Session, judge: Peer, count: int) -> list[str]:
    """Rows of the table: the errors of random tokens that run one by one, and in one run."""
    inputs = [each.name for each in session.get_inputs()]
    session.reset()
    judge.begin(judge.empty)
    tokens = [int(each) for each in np.random.default_rng(0).integers(0, judge.run([1], 0).shape[-1], count)]
    judge.begin(judge.empty)
    right = [judge.run([token], place)[0, -1] for place, token in enumerate(tokens)]
    found = [session.run(["logits"], feeds(inputs, [token], place))[0][0, -1] for place, token in enumerate(tokens)]
    rows = [_told_errors("one by one", found, right)]
    if session.prompt_tokens:
        session.reset()
        (whole,) = session.run(["logits"], feeds(inputs, tokens, 0))
        rows.append(_told_errors("in one run", whole[0], right))
    return rows


def _told_errors(how: str, found: Sequence[Array], right: Sequence[Array]) -> str:
    errors = [error(*each) for each in zip(found, right, strict=True)]
    alike = sum(int(one.argmax() == other.argmax()) for one, other in zip(found, right, strict=True))
    worst = int(np.argmax(errors))
    return f"| {how} | {errors[worst]:.2g} at {worst} | {np.median(errors):.2g} | {alike} of {len(errors)} |"


def growth(session: Session, peer: Peer, first: int, last: int) -> str:
    """A row of the table: the largest median of a position by those of its neighbours."""
    begin = max(0, first - _BEFORE)
    caches, inputs = drawn(peer.caches, begin), [each.name for each in session.get_inputs()]
    times = []
    for _ in range(_SESSIONS):
        with session.fork() as fresh:
            if begin:
                fresh.restore(caches)
            calls = [partial(fresh.run, ["logits"], feeds(inputs, [3], place)) for place in range(begin, last)]
            times.append([timed(call) for call in calls][first - begin :])
    medians = np.median(times, axis=0)
    by_neighbours = [
        medians[at] / np.median(medians[max(0, at - _NEIGHBOURS) : at + _NEIGHBOURS + 1]) for at in range(len(medians))
    ]
    worst = int(np.argmax(by_neighbours))
    told = f"{1e3 * np.median(medians):.2f} | {by_neighbours[worst]:.3f} at {first + worst}"
    return f"| {first} to {last} | {told} | {sum(ratio > _STALL for ratio in by_neighbours)} |"


@app.command()
def main(
    model: Annotated[Path, typer.Argument(help="The ONNX file.")],
    module: Annotated[Path, typer.Argument(help="Its module, which keeps the caches.")],
    past: Annotated[str, typer.Option(help="Lengths of the caches.")] = "16,256,2000",
    prompts: Annotated[str, typer.Option(help="Lengths of prompts.")] = "128,512",
    threads: Annotated[int, typer.Option(help="Threads of both.")] = 1,
    grown: Annotated[str, typer.Option("--growth", help="Ranges of positions, as 0:128; nothing else is timed.")] = "",
    right: Annotated[int, typer.Option("--right", help="Tokens that are compared; nothing is timed.")] = 0,
) -> None:
    """Time both."""
    peer, judge = Peer(model, threads), Peer(model, threads, is_exact=True)
    with Session(module, threads=threads) as session:
        session.settle()
        if right:
            print("| tokens | largest error | median | likeliest alike |\n|---|---:|---:|---:|")
            print(*compared(session, judge, right), sep="\n")
            return
        if grown:
            print("| positions | ms a token | largest by its neighbours | above 1.05 |\n|---|---:|---:|---:|")
            for first, _, last in (each.partition(":") for each in grown.split(",")):
                print(growth(session, peer, int(first), int(last)), flush=True)
            return
        print("| past | ms a token | ONNX Runtime by it | resident by live |\n|---:|---:|---:|---:|")
        for length in map(int, past.split(",")):
            print(decode(session, peer, judge, length), flush=True)
        if session.prompt_tokens:
            print("\n| prompt | ms to the first token | ONNX Runtime by it |\n|---:|---:|---:|")
            for count in map(int, prompts.split(",")):
                print(first_token(session, peer, count), flush=True)


if __name__ == "__main__":
    app()
