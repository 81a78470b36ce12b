"""Caches of a model that grow: an input with all positions so far, and an output with the rows of the new ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sartor.runtime.driver.signature import Signature, TensorSpec
from sartor.runtime.files.json_fields import Fields, listed, number, record, text, truth, whole

BEFORE = "sartor.before"
"""The name of the input that the module fills itself: the number of positions before a call, int64 of one element."""

FULL = "the caches are full"
"""What the module's function fails with where caches have no room for a call's positions."""

PROMPT_SUFFIX, TRUNCATE_SUFFIX = "$prompt", "$truncate"
"""What follows the entry's name in that of the function for the longest parts of prompts, before what follows that of
each that keeps caches; and in that of the function that forgets the last positions."""

LAST_SUFFIX = "$last"
"""What follows ``Prompt.suffix`` in the name of the function that gives what is behind one token of a part."""

# Files that do not tell: a part takes as long as a quarter of its tokens one by one.
_QUARTER = 4

DISAGREES = "is not the number of positions"
"""What it fails with where an input has another size than the caches with the call's own positions."""


@dataclass(frozen=True)
class Cache:
    """A cache that a module keeps, with positions along the first axis.

    Attributes:
        input: name of the input, by which callers know the cache.
        output: name of the output that in the model was the cache with the new positions.
        axis: along which callers have the positions.
    """

    input: str
    output: str
    axis: int

    @staticmethod
    def read(content: object, where: str = "") -> Cache:
        """The fields of JSON data.

        Raises:
            FieldError: if they are not those of a cache.
        """
        fields = Fields(content, where)
        cache = Cache(fields.take("input", text), fields.take("output", text), fields.take("axis", whole))
        fields.end()
        return cache

    def spec(self, kept: TensorSpec) -> TensorSpec:
        """The cache as callers have it; ``kept`` is how the module has it."""
        positions, *others = kept.shape
        return replace(kept, shape=(*others[: self.axis], positions, *others[self.axis :]))

    def described(self, kept: TensorSpec, most: int) -> str:
        """The cache in words."""
        return f"{self.output} -> {self.input}: {self.spec(kept)}, grows to {most}"


@dataclass(frozen=True)
class Prompt:
    """The function beside that for one token which takes several, as parts of a prompt have.

    Attributes:
        tokens: how many.
        inputs: those that are no caches.
        outputs: those that are no caches.
        plan: as JSON data, which is not checked here.
        calls: how many calls of one token take as long; 0 for a quarter of ``tokens``.
        gives_last: whether there is a function, too, that takes a part and gives what is behind one of its tokens.
        suffix: what follows the entry's name in that of the function, before what follows that of each that keeps
            caches.
    """

    tokens: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    plan: dict[str, Any]
    calls: float = 0.0
    gives_last: bool = False
    suffix: str = PROMPT_SUFFIX

    def __post_init__(self) -> None:
        """Know how long a call takes."""
        if not self.calls:
            object.__setattr__(self, "calls", self.tokens / _QUARTER)

    @staticmethod
    def read(content: object, where: str = "") -> Prompt:
        """The fields of JSON data.

        Raises:
            FieldError: if they are not those of such a function.
        """
        fields, specs = Fields(content, where), listed(TensorSpec.read)
        inputs, outputs = fields.take("inputs", specs), fields.take("outputs", specs)
        known = fields.take("tokens", whole), inputs, outputs, fields.take("plan", record)
        # Older files tell from how many tokens on a call is faster than one for each.
        calls = fields.take("calls", number, 0.0) or float(fields.take("least", whole, 0))
        gives_last, suffix = fields.take("gives_last", truth, False), fields.take("suffix", text, PROMPT_SUFFIX)
        prompt = Prompt(*known, calls, gives_last, suffix)
        fields.end()
        return prompt

    def check(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
        """Make sure that it takes and gives what the function for one token does, but for sizes.

        Raises:
            ValueError: if not.
        """
        for own, others in ((self.inputs, inputs), (self.outputs, outputs)):
            kinds = ([(spec.name, spec.dtype, len(spec.shape)) for spec in specs] for specs in (own, others))
            if next(kinds) != next(kinds):
                raise ValueError("the function for prompts takes or gives something else than that for tokens")
        if self.tokens <= 1:
            raise ValueError(f"the function for prompts takes {self.tokens} tokens")
        if not self.calls > 0:
            raise ValueError(f"the function for prompts takes as long as {self.calls} calls of one token")


def check_prompts(prompts: Sequence[Prompt], signature: Signature) -> None:
    """Make sure that functions for parts of prompts are of more and more tokens, and have names of their own.

    Args:
        prompts: the functions.
        signature: that for one token.

    Raises:
        ValueError: if they are not.
    """
    for prompt in prompts:
        prompt.check(signature.inputs, signature.outputs)
    tokens = [prompt.tokens for prompt in prompts]
    if sorted({*tokens}) != tokens or len({prompt.suffix for prompt in prompts}) < len(prompts):
        raise ValueError(f"functions for prompts take {tokens} tokens, expected more and more, by names of their own")


def check_caches(caches: Sequence[Cache], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
    """Make sure that each cache is an input of open length and an output with rows of it.

    Raises:
        ValueError: if one is not.
    """
    given, taken = {spec.name: spec for spec in outputs}, {spec.name: spec for spec in inputs}
    for cache in caches:
        rows, kept = given.get(cache.output), taken.get(cache.input)
        if rows is None or kept is None:
            raise ValueError(f"the cache '{cache.input}' is no input and output")
        is_open = len(kept.shape) > 0 and kept.shape[0] is None and None not in kept.shape[1:]
        has_rows = rows.dtype == kept.dtype and None not in rows.shape and rows.shape[1:] == kept.shape[1:]
        if not is_open or not has_rows or not 0 <= cache.axis < len(kept.shape):
            raise ValueError(f"the cache '{cache.input}' is {kept} as an input, and gets {rows}")
