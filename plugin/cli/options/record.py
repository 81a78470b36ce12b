"""Commands whose options are the fields of a record."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Options = TypeVar("Options", bound="DataclassInstance")


def taking(record: type[Options]) -> Callable[[Callable[[Options], None]], Callable[..., None]]:
    """A decorator: the command takes the fields of a dataclass as arguments and options, as typer reads them.

    Args:
        record: whose fields are annotated as parameters of a command would be.
    """
    hints = get_type_hints(record, include_extras=True)
    parameters = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(record)
    ]

    def decorated(command: Callable[[Options], None]) -> Callable[..., None]:
        @wraps(command)
        def called(**given: Any) -> None:
            command(record(**given))

        called.__dict__["__signature__"] = inspect.Signature(parameters)
        called.__annotations__ = {field.name: hints[field.name] for field in fields(record)}
        return called

    return decorated
