"""Follows what refusals advise: ``python -m benchmarks.advice --refused 500``.

Random models of the fuzzer are made such that they are refused: sizes of inputs are freed, and constants that decide
shapes become inputs. The options of each refusal are added until there are none left. Then the model is prepared, or a
refusal has said that it needs the values or shapes of the model's use; all else is advice that misleads.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from onnx import ModelProto, TensorProto, helper

from sartor.cli.options.common import read_bindings, read_shapes
from sartor.errors import SartorError
from sartor.onnx_model.graphs.infer import forget_shapes
from sartor.onnx_model.preparing.prepare import prepare
from sartor.onnx_model.preparing.shape_inputs import sizing_operands
from sartor.tuning.workers.calls import call, open_pool
from tools.fuzz.models import OPSETS, Family, generate

_OPTIONS = ("--shape", "--bind")
# Each follows what the one before left open.
_MOST_ROUNDS = 5
# Larger constants are data.
_MOST_ELEMENTS = 8
_SECONDS = 60.0
_OWN = re.compile(r"that the model is used with")


class End(StrEnum):
    """How following a refusal ends."""

    WORKS = "works"
    OWN = "needs the values of the model's use, and says so"
    SILENT = "no options are advised"
    MISLEADS = "is refused though the advice was followed"
    CRASHES = "ends the process"


@dataclass(frozen=True)
class Followed:
    """A model whose advice was followed: its seed, how that ended, and all refusals."""

    seed: int
    end: End
    messages: tuple[str, ...]


def followed(seed: int) -> Followed | None:
    """Make a model of a seed, and follow what its refusals advise; None if it is not refused."""
    family = list(Family)[seed % len(Family)]
    built = freed(generate(seed, family, OPSETS[seed % len(OPSETS)]).model, seed)
    texts: dict[str, list[str]] = {option: [] for option in _OPTIONS}
    messages: list[str] = []
    for _ in range(_MOST_ROUNDS):
        try:
            prepare(built, read_shapes(texts["--shape"]), lambda _: (), read_bindings(texts["--bind"]))
        except SartorError as error:
            messages.append(str(error))
        else:
            return Followed(seed, End.WORKS, tuple(messages)) if messages else None
        if not (new := options_of(messages[-1])):
            break
        for option, text in new:
            texts[option].append(text)
    return Followed(seed, _end(messages), tuple(messages))


def _end(messages: Sequence[str]) -> End:
    if any(_OWN.search(message) for message in messages):
        return End.OWN
    return End.MISLEADS if any(map(options_of, messages)) else End.SILENT


def options_of(message: str) -> list[tuple[str, str]]:
    """The options that a refusal advises, with their values."""
    start = re.search(r"--(shape|bind) ", message)
    words = shlex.split(message[start.start() :]) if start else []
    return [(word, words[index + 1].rstrip(",")) for index, word in enumerate(words[:-1]) if word in _OPTIONS]


def freed(model: ModelProto, seed: int) -> ModelProto:
    """A copy of a model without some of the sizes and constants that a module has to know."""
    copy, drawn = ModelProto(), np.random.default_rng(seed)
    copy.CopyFrom(model)
    names = [name for node in copy.graph.node for _, name in sizing_operands(node)]
    constants = [each for each in copy.graph.initializer if each.name in names and _is_setting(each)]
    if constants:
        chosen = constants[int(drawn.integers(len(constants)))]
        copy.graph.input.append(helper.make_tensor_value_info(chosen.name, chosen.data_type, chosen.dims))
        copy.graph.initializer.remove(chosen)
    for value in copy.graph.input[: len(model.graph.input)]:
        for number, dim in enumerate(value.type.tensor_type.shape.dim):
            if not constants or drawn.random() < 0.5:
                dim.dim_param = f"{value.name}_{number}"
    forget_shapes(copy)
    return copy


def _is_setting(tensor: TensorProto) -> bool:
    return tensor.data_type == TensorProto.INT64 and int(np.prod(tensor.dims)) <= _MOST_ELEMENTS


def refusals(count: int, first: int = 0) -> Iterator[Followed]:
    """Yield as many models whose advice was followed, each in a worker, as ONNX's inference aborts over some."""
    seed = first
    with open_pool(1) as (pool, _):
        while count:
            try:
                result = call(pool, followed, {"seed": seed}, "following advice", _SECONDS)
            except SartorError as error:
                result = Followed(seed, End.CRASHES, (str(error),))
            seed += 1
            if result is not None:
                count -= 1
                yield result


def main(arguments: Sequence[str] | None = None) -> int:
    """Follow advice, print what misleads, and return the exit code: 1 if any does."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.advice", description=__doc__)
    parser.add_argument("--refused", type=int, default=500, help="how many refused models are tried (default: 500)")
    parser.add_argument("--first", type=int, default=0, help="the first seed; others find others")
    options = parser.parse_args(arguments)
    ends = Counter[End]()
    for result in refusals(options.refused, options.first):
        ends[result.end] += 1
        if result.end in (End.CRASHES, End.MISLEADS, End.SILENT):
            print(f"seed {result.seed}: {result.end}", *result.messages, sep="\n    ")
    print(*(f"{number:5} {end}" for end, number in ends.most_common()), sep="\n")
    return 1 if ends[End.MISLEADS] else 0


if __name__ == "__main__":
    sys.exit(main())
