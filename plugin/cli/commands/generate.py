"""``sartor generate``: tokens, or text, that follow a prompt."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sartor.cli.options.common import JsonOption, ModuleArgument, ThreadsOption
from sartor.cli.output.messages import say
from sartor.cli.output.terminal import show_json
from sartor.errors import SartorError, UsageError
from sartor.runtime.generation.generate import generate
from sartor.runtime.session import Session

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def generate_tokens(
    module: ModuleArgument,
    prompt: Annotated[
        str, typer.Argument(help="Tokens, as 1,15043,29871; with --tokenizer a text.", show_default=False)
    ],
    tokenizer: Annotated[
        Path | None,
        typer.Option(help="The model's tokenizer.json, which makes tokens of the text, and text of tokens."),
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Most tokens to generate.")] = 64,
    temperature: Annotated[float, typer.Option(min=0, help="Divides the logits; 0 takes the likeliest token.")] = 0.0,
    top_k: Annotated[int, typer.Option(min=0, help="Draw so many of the likeliest tokens only; 0 for all.")] = 0,
    top_p: Annotated[
        float, typer.Option(min=0, max=1, help="Draw the likeliest tokens only that have this probability together.")
    ] = 1.0,
    repetition_penalty: Annotated[float, typer.Option(min=0, help="Divides the logits of tokens that occurred.")] = 1.0,
    stop: Annotated[list[int] | None, typer.Option(help="A token at which generation ends; may be repeated.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of what is drawn. (default: another each time)")] = None,
    look_up: Annotated[
        int,
        typer.Option(min=0, help="Guess so many tokens at most by what followed before; they are checked by one call."),
    ] = 0,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Generate with a decoder whose module keeps its caches; show the tokens, and how long they took."""
    drawing = {"--top-k": top_k > 0, "--top-p": top_p < 1, "--seed": seed is not None}
    if not temperature and (vain := ", ".join(name for name, is_given in drawing.items() if is_given)):
        say(f"warning: without --temperature the likeliest token is taken, whatever is given by {vain}")
    words = None if tokenizer is None else _load_tokenizer(tokenizer)
    given = _read_tokens(prompt) if words is None else words.encode(prompt).ids
    with Session(module, threads=threads) as session:
        # The last token needs no position of its own.
        room = session.most_positions - len(given) + 1
        timed = _Timed(
            generate(
                session,
                given,
                min(max_new_tokens, max(room, 0)),
                temperature=temperature,
                top_k=top_k,
                top_p=top_p,
                repetition_penalty=repetition_penalty,
                stop_tokens=stop or (),
                seed=seed,
                look_up=look_up,
            )
        )
        tokens, error = _collected(timed)
    # Where the caches are full, or the device fails, what was generated is not lost.
    if tokens or error is None:
        text = None if words is None else words.decode(tokens)
        if as_json:
            show_json({"prompt": given, "tokens": tokens, "text": text, "is_complete": error is None, **timed.times})
        else:
            typer.echo(",".join(map(str, tokens)) if text is None else text)
            say(timed.described)
    if error is None and len(tokens) == room < max_new_tokens:
        say(f"warning: it ends behind {len(tokens)} tokens, as there is room for {room + len(given) - 1} positions")
    if error is not None:
        raise error


def _collected(tokens: Iterable[int]) -> tuple[list[int], SartorError | None]:
    """The tokens until the end, or until an error."""
    collected: list[int] = []
    try:
        for token in tokens:
            collected.append(token)
    except SartorError as error:
        return collected, error
    return collected, None


@dataclass
class _Timed:
    """Tokens with the times at which they came."""

    tokens: Iterator[int]
    seconds: list[float] = field(default_factory=list)

    def __iter__(self) -> Iterator[int]:
        begin = time.perf_counter()
        for token in self.tokens:
            self.seconds.append(time.perf_counter() - begin)
            yield token

    @property
    def times(self) -> dict[str, float | None]:
        """Seconds to the first token, and tokens a second behind it; None if there are none."""
        first = self.seconds[0] if self.seconds else None
        later = len(self.seconds) - 1
        rate = later / (self.seconds[-1] - self.seconds[0]) if later > 0 else None
        return {"first_token_seconds": first, "tokens_per_second": rate}

    @property
    def described(self) -> str:
        """The times in words."""
        first, rate = self.times.values()
        count = len(self.seconds)
        parts = [f"{count} token{'s' if count != 1 else ''}"]
        parts += [] if first is None else [f"the first after {_told(1000 * first)} ms"]
        parts += [] if rate is None else [f"then {_told(rate)} a second"]
        return ", ".join(parts)


def _told(number: float) -> str:
    """A number with three digits, or with all before its point."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _read_tokens(text: str) -> list[int]:
    parts = re.split(r"\s*,\s*|\s+", text.strip())
    if not all(part.isdecimal() for part in parts):
        raise UsageError(f"the prompt '{text}' is no list of tokens, as 1,15043,29871; a text needs --tokenizer")
    return [int(part) for part in parts]


def _load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a file.

    Raises:
        UsageError: if the package is not installed, or the file is no tokenizer.
    """
    try:
        text = path.read_text(encoding="utf-8")
        is_tokenizer = "model" in json.loads(text)
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"--tokenizer '{path}' cannot be read as JSON: {error}") from None
    if not is_tokenizer:
        raise UsageError(f"--tokenizer '{path}' is no tokenizer.json, which names its model")
    try:
        from tokenizers import Tokenizer
    except ModuleNotFoundError:
        raise UsageError(
            "--tokenizer needs the package tokenizers: pip install tokenizers, or sartor's extra 'text'; or give tokens"
        ) from None
    return Tokenizer.from_str(text)
