"""Modules that another program compiled: without a manifest, with what IREE records of their functions."""

from __future__ import annotations

from sartor.errors import UsageError
from sartor.runtime.driver.signature import HOW_TO_GIVE, Signature, parse_declaration
from sartor.runtime.manifest import ASYNC_SUFFIX, BOUND_SUFFIX
from sartor.runtime.module import Module

_DECLARATION_KEY = "iree.abi.declaration"
_INITIALIZER = "__init"


def read_signature(module: Module, entry: str | None = None) -> Signature:
    """The signature of a module without a manifest, as IREE's compiler recorded it; ``entry`` selects the function.

    Raises:
        UsageError: if there is no such function, several to choose from, or no recorded signature.
    """
    others = ASYNC_SUFFIX, BOUND_SUFFIX
    candidates = [name for name in module.functions if name != _INITIALIZER and not name.endswith(others)]
    if entry is None and len(candidates) != 1:
        raise UsageError(
            f"{module.label} exports {candidates or 'nothing'}; name the entry function to run, with --signature NAME "
            "or as Session(entry=...)"
        )
    name = entry or candidates[0]
    if name not in candidates:
        raise UsageError(f"{module.label} exports no function '{name}'; it exports {candidates}")
    declaration = module.reflection(name).get(_DECLARATION_KEY)
    if declaration is None:
        raise UsageError(f"{module.label} does not record what '{name}' takes and gives; {HOW_TO_GIVE}")
    return parse_declaration(declaration)
