"""The packed weights of a module, as globals that name parameters."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.linking.names import PARAMETER_SCOPE
from sartor.codegen.linking.weights.mapped_arrays import mapped_arrays

# If they were inlined into the entry function, each inference would look weights up, and read them again if the mapped
# file cannot be used as it is.
_LOADED_ONCE = "inlining_policy = #util.inline.never"

# Fewer are as fast to keep in memory, which nobody misses.
_MANY_BYTES = 64 << 20

Make = Callable[[], np.ndarray]
Identity = tuple[str, bytes]
"""The type of an array, and a hash of its content."""


@dataclass
class Parameters:
    """Collects the arrays of a module.

    Attributes:
        prefix: of their names, which differ between the modules of one network.
        is_shared: whether equal arrays are one parameter, so that plans which pack a weight alike store it once; the
            arrays are then made as they are added.
        weight_bytes: of all parameters.
        declarations: the globals, in order.
        makers: makes each array, by parameter name.
        stored: names of arrays by what they are; modules that share it and their weights' file store each array once.
    """

    prefix: str = ""
    is_shared: bool = False
    weight_bytes: int = 0
    declarations: list[str] = field(default_factory=list)
    makers: dict[str, Make] = field(default_factory=dict)
    stored: dict[Identity, str] = field(default_factory=dict)
    _declared: set[str] = field(default_factory=set)

    def add(self, tensor: TensorType, make: Make) -> str:
        """Add an array of a type that ``make`` packs; returns its parameter's name."""
        if not self.is_shared:
            return self._declare(self._add(tensor, make), tensor)
        array = make()
        key = str(tensor), hashlib.sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).digest()
        if key not in self.stored:
            # Many are made once more in place of being held.
            is_held = self.weight_bytes + array.nbytes < _MANY_BYTES
            self.stored[key] = self._add(tensor, (lambda: array) if is_held else make)
        return self._declare(self.stored[key], tensor)

    def arrays(self, file: Path | None = None) -> dict[str, np.ndarray]:
        """All arrays, by parameter name; many bytes of them are in ``file`` and mapped, if one is given."""
        made = ((name, make()) for name, make in self.makers.items())
        return dict(made) if file is None or self.weight_bytes < _MANY_BYTES else mapped_arrays(file, made)

    def _add(self, tensor: TensorType, make: Make) -> str:
        name = f"{self.prefix}p{len(self.makers)}"
        self.makers[name] = make
        self.weight_bytes += tensor.bytes
        return name

    def _declare(self, name: str, tensor: TensorType) -> str:
        if name in self._declared:
            return name
        self._declared.add(name)
        self.declarations.append(
            f'util.global private @{name} <{_LOADED_ONCE}> = #flow.parameter.named<"{PARAMETER_SCOPE}"::"{name}"> : '
            f"{tensor}"
        )
        return name
