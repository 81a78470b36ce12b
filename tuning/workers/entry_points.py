"""Names by which workers import functions."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def entry_point(function: Callable[..., object]) -> str:
    """The name by which a worker imports a function, ``package.module:name``.

    Raises:
        ValueError: if it is a lambda, a method, a nested function or one of the main program: workers cannot import
            these by name.
    """
    module, name = function.__module__, function.__qualname__
    if not name.isidentifier() or module == "__main__":
        raise ValueError(f"a worker cannot import {module}:{name}; name a function of a module")
    return f"{module}:{name}"


def resolved(name: str) -> Callable[..., Any]:
    """The function of a name that ``entry_point`` gave."""
    module, _, function = name.partition(":")
    function_of_module: Callable[..., Any] = getattr(import_module(module), function)
    return function_of_module
