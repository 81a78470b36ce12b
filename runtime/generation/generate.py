"""Generates tokens: runs a decoder on a prompt, then on each token that was chosen."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import NoneType

import numpy as np

from sartor.errors import UsageError
from sartor.runtime.driver.device_array import DeviceArray
from sartor.runtime.driver.signature import Array
from sartor.runtime.generation.look_up import LookUp
from sartor.runtime.generation.sampling import Sampling
from sartor.runtime.runs.given_arguments import check_type
from sartor.runtime.runs.interface import Feeds, NodeArg
from sartor.runtime.runs.part_sizes import PartSizes
from sartor.runtime.session import Session

_LOGITS_RANK = 3


def generate(
    session: Session,
    prompt_ids: Iterable[int],
    max_new_tokens: int,
    *,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    repetition_penalty: float = 1.0,
    stop_tokens: Collection[int] = (),
    seed: int | None = None,
    inputs: Mapping[str, Array | DeviceArray] | None = None,
    look_up: int = 0,
) -> Iterator[int]:
    """The tokens that follow a prompt, one by one, as they are computed.

    The prompt follows what the session holds: nothing after ``reset()``, or what ``restore()`` gave it. A token is
    computed when it is asked for; the last one that was given is not in the caches.

        for token in sartor.generate(session, [1, 15043], 64, temperature=0.7, top_p=0.9):
            print(token)

    Args:
        session: of a decoder that was compiled with its caches in the module.
        prompt_ids: tokens, at least one.
        max_new_tokens: most tokens to generate.
        temperature: divides the logits; 0 takes the likeliest token each time.
        top_k: only so many of the likeliest tokens are drawn; 0 for all.
        top_p: only the likeliest tokens are drawn whose probabilities add up to this.
        repetition_penalty: divides positive logits of tokens that occurred, and multiplies negative ones.
        stop_tokens: generation ends at one of these, which is not given.
        seed: of what is drawn; None for another each time.
        inputs: what the model takes beside tokens, positions and masks, the same in each call, as what an encoder gave.
        look_up: most tokens that are guessed at a time, by what followed the last ones before, and checked by one call.
            It changes when tokens come, and not which ones, but where two are as likely up to the rounding of the
            module's plans. Until the tokens end, or the iterator is closed, caches may hold some that are not given
            yet.

    Raises:
        UsageError: if the session keeps no caches, an argument is out of its range, the caches have no room for the
            prompt, or, later, for a token, or something else ran or reset the session.
        DeviceError: if the device fails, or the model gives logits that are no numbers.
    """
    sampling = Sampling(temperature, top_k, top_p, repetition_penalty)
    check_type("inputs", inputs, (Mapping, NoneType), "arrays by the model's inputs")
    decoder = _Decoder(session, inputs or {})
    prompt = _tokens("prompt_ids", prompt_ids, decoder.vocabulary)
    if not prompt:
        raise UsageError("prompt_ids has no tokens; give at least one")
    stops = frozenset(_tokens("stop_tokens", stop_tokens, decoder.vocabulary))
    decoder.check_room(len(prompt))
    numbers = {"max_new_tokens": max_new_tokens, "seed": 0 if seed is None else seed, "look_up": look_up}
    for name, number in numbers.items():
        if _whole(number) is None:
            raise UsageError(f"{name} is {number!r}, expected a whole number of 0 or more")
    if look_up and not decoder.parts.sizes:
        raise UsageError("look_up needs a module that takes parts of a prompt, and this one takes one token in a call")
    guesses = LookUp(prompt, look_up, decoder.parts) if look_up else None
    return _generated(decoder, prompt, max_new_tokens, sampling, stops, np.random.default_rng(seed), guesses)


def _whole(value: object) -> int | None:
    """A whole number of 0 or more; None for what is none."""
    try:
        number = operator.index(value)  # type: ignore[arg-type] # which raises TypeError
    except TypeError:
        return None
    return number if number >= 0 else None


def _tokens(name: str, tokens: Iterable[int], vocabulary: int) -> list[int]:
    """The tokens of an argument of this name, checked."""
    check_type(name, tokens, (Iterable,), "tokens, one after another")
    kept = []
    for token in tokens:
        number = _whole(token)
        if number is None or number >= vocabulary:
            raise UsageError(f"{name} has {token!r}, expected tokens: whole numbers from 0 to {vocabulary - 1}")
        kept.append(number)
    return kept


def _generated(
    decoder: _Decoder,
    prompt: Sequence[int],
    count: int,
    sampling: Sampling,
    stops: frozenset[int],
    random: np.random.Generator,
    guesses: LookUp | None,
) -> Iterator[int]:
    # Of the guessed tokens so many are in the caches, and may prove wrong.
    occurred, guessed, ahead = set(prompt), list[int](), 0
    if not count:
        return
    rows = decoder.logits(prompt)
    try:
        for left in range(count - 1, -1, -1):
            token = sampling.next_token(rows[len(guessed) - ahead], occurred, random)
            if token in stops:
                return
            yield token
            if not left:
                return
            decoder.check_held()
            occurred.add(token)
            is_right = ahead > 0 and token == guessed[-ahead]
            if guesses is not None:
                guesses.follow(token)
            if is_right:
                ahead -= 1
                continue
            decoder.forget(ahead)
            if guesses is not None:
                guessed, ahead = _guessed(guesses, guessed, len(guessed) - ahead, min(left, decoder.room) - 1)
            rows = decoder.logits([token], guessed)
    finally:
        # The session may be closed by now.
        with suppress(UsageError):
            decoder.forget(ahead)


def _guessed(guesses: LookUp, before: Sequence[int], right: int, room: int) -> tuple[list[int], int]:
    """The next guess and its length, behind one of which the first tokens were ``right``."""
    if before:
        guesses.learn(before, right)
    guessed = guesses.guess(room)
    return guessed, len(guessed)


class _Decoder:
    """A session as a function from tokens to the logits behind the last of them.

    Raises:
        UsageError: if the session's module is no decoder with caches.
    """

    def __init__(self, session: Session, further: Mapping[str, Array | DeviceArray]) -> None:
        self._session, self._length = session, session.cached_positions
        # Copied once, not for each token.
        self._further = {
            name: array if isinstance(array, DeviceArray) else session.to_device(array)
            for name, array in further.items()
        }
        self._has_begun = False
        self._inputs = [argument for argument in session.get_inputs() if argument.name not in further]
        ids = [
            argument
            for argument in self._inputs
            if "int" in argument.type and not (_is_place(argument.name) or _is_encoded(argument.name))
        ]
        named = [argument for argument in ids if argument.name == "input_ids"] or ids
        if len(named) != 1 or len(named[0].shape) != 2:
            raise UsageError(
                f"the model has no input of tokens; its inputs are {[argument.name for argument in self._inputs]}"
            )
        self._ids = named[0]
        if unknown := [
            argument.name for argument in self._inputs if argument is not self._ids and not _is_place(argument.name)
        ]:
            raise UsageError(
                f"the model takes '{unknown[0]}' beside tokens, positions and masks; give it by inputs={{…}}, or run "
                "the session"
            )
        if self._ids.shape != [1, None if session.prompt_tokens else 1]:
            raise UsageError(f"the model takes tokens of shape {self._ids.shape}; one of one sequence is expected")
        outputs = [output for output in session.get_outputs() if len(output.shape) == _LOGITS_RANK]
        logits = next((output for output in outputs if output.name == "logits" or len(outputs) == 1), None)
        if logits is None:
            names = [output.name for output in session.get_outputs()]
            raise UsageError(f"the model has no output of logits; its outputs are {names}")
        self._logits = logits.name
        # Of a call that is filled up, logits behind an earlier token count.
        self.parts = session.prompt_parts if logits.shape[1] is None else PartSizes({})
        size = logits.shape[-1]
        self.vocabulary = size if isinstance(size, int) else int(np.iinfo(_dtype(self._ids)).max)
        """One more than the largest token."""

    def check_room(self, count: int) -> None:
        """Make sure that so many tokens have room.

        Raises:
            UsageError: if not.
        """
        held, most = self._session.cached_positions, self._session.most_positions
        if held + count > most:
            raise UsageError(
                f"the prompt has {count} tokens, and the caches hold {held} positions of {most}; give fewer, or begin "
                "again by reset()"
            )

    @property
    def room(self) -> int:
        """The most tokens that a call gives logits behind all of which for, and for which there is room."""
        free = self._session.most_positions - self._length
        return max((size for size in self.parts.sizes if size <= free), default=1)

    def check_held(self) -> None:
        """Make sure that the session holds what generating left.

        Raises:
            UsageError: if not.
        """
        held = self._session.cached_positions
        if self._has_begun and held != self._length:
            raise UsageError(
                f"the session holds {held} positions where generating left {self._length}: it was run, reset or "
                "restored between two tokens; fork() gives a session for another sequence"
            )

    def forget(self, count: int) -> None:
        """Forget the last tokens, unless the session was run, reset or restored since."""
        if count and self._session.cached_positions == self._length:
            self._length -= count
            self._session.truncate(self._length)

    def logits(self, tokens: Sequence[int], guessed: Sequence[int] = ()) -> Array:
        """Run the tokens, and guesses of what follows; returns the logits behind the last one, and behind each guess.

        Raises:
            UsageError: if the caches hold something else than behind the last call, or have no room.
            DeviceError: if the device fails.
        """
        self.check_held()
        held = self._session.cached_positions
        if held + len(tokens) > (most := self._session.most_positions):
            # A table of positions may be named before the session tells of its caches.
            raise UsageError(f"the caches are full, with {held} positions of {most}; begin again by reset()")
        self._has_begun, self._length = True, held
        if guessed:
            return self._run_all([*tokens, *guessed])
        left = [*tokens]
        while left:
            room = self._session.most_positions - self._length
            count = self.parts.next(len(left), room)
            array, left = self._run(left[:count], count), left[count:]
        return array

    def _run(self, part: Sequence[int], count: int) -> Array:
        """Run one token, or a part of a prompt that is filled up to so many; returns the logits behind its last."""
        feeds = self._feeds(part, count)
        if count > 1:
            (array,) = self._session.run_last([self._logits], feeds, len(part))
        else:
            (array,) = self._session.run([self._logits], feeds)
        self._length += len(part)
        return np.asarray(array[0, -1:])

    def _run_all(self, tokens: Sequence[int]) -> Array:
        """Run tokens in one part; returns the logits behind each."""
        count = self.parts.part(len(tokens), self.room)
        (array,) = self._session.run([self._logits], self._feeds(tokens, count))
        self._length += len(tokens)
        self._session.truncate(self._length)
        return np.asarray(array[0, : len(tokens)])

    def _feeds(self, part: Sequence[int], count: int) -> Feeds:
        """What a call takes with tokens that are filled up to so many."""
        filled = [*part, *[part[-1]] * (count - len(part))]
        given = {argument.name: self._given(argument, filled) for argument in self._inputs}
        return {**given, **self._further}

    def _given(self, value: NodeArg, tokens: Sequence[int]) -> Array:
        """An input of a call: the tokens, their positions, or a mask that hides no position."""
        count, dtype = len(tokens), _dtype(value)
        if value is self._ids:
            return np.array([tokens], dtype)
        if "position" in value.name:
            places = np.arange(self._length, self._length + count, dtype=dtype)
            return places.reshape([size or count for size in value.shape])
        # The last axis has positions, others have the call's tokens.
        sizes = [count] * (len(value.shape) - 1) + [self._length + count]
        return np.ones([known or size for known, size in zip(value.shape, sizes, strict=True)], dtype)


def _is_place(name: str) -> bool:
    """Whether an input says where a call's tokens are, or which of their positions count."""
    return ("position" in name or "mask" in name) and not _is_encoded(name)


def _is_encoded(name: str) -> bool:
    """Whether an input is what an encoder gave, or took, of which the length is not that of the caches."""
    return "encoder" in name


def _dtype(value: NodeArg) -> str:
    """Numpy's name of an element type, which ``NodeArg`` names as ONNX Runtime does."""
    name = value.type.removeprefix("tensor(").removesuffix(")")
    return {"float": "float32", "double": "float64"}.get(name, name)
