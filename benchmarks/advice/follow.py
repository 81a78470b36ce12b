"""Random models that are refused, and the advice of their refusals followed to its end.

Sizes of inputs are freed, and constants that decide shapes become inputs. The options of each refusal are added until
there are none left. Then the model is prepared, or a refusal has said that it needs the values or shapes of the model's
use; all else is advice that misleads.
"""

from __future__ import annotations

import re
import shlex
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
    constants = [
        initializer for initializer in copy.graph.initializer if initializer.name in names and _is_setting(initializer)
    ]
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
