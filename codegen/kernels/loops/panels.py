"""Channels in vectors, and vectors in panels; the last panel may have fewer vectors, its last vector fewer channels."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.kernels.emit.index_arithmetic import Index


@dataclass(frozen=True)
class Panel:
    """A panel while its code is emitted.

    Attributes:
        index: its number.
        vectors: vectors of channels in it.
        last: channels in the last of them.
    """

    index: Index
    vectors: int
    last: int

    def count(self, vector: int, lanes: int) -> int:
        """Channels in one of its vectors."""
        return self.last if vector == self.vectors - 1 else lanes


@dataclass(frozen=True)
class PanelGrid:
    """How channels are cut into panels.

    Attributes:
        channels: all of them.
        lanes: of a vector.
        size: vectors of a panel.
    """

    channels: int
    lanes: int
    size: int

    @property
    def vectors(self) -> int:
        """Vectors that hold all channels."""
        return -(-self.channels // self.lanes)

    @property
    def panels(self) -> int:
        """Panels that hold all channels."""
        return -(-self.vectors // self.size)

    @property
    def width(self) -> int:
        """Channels of a full panel."""
        return self.size * self.lanes

    @property
    def full(self) -> int:
        """How many panels are full: all, or all but the last."""
        return self.panels if self.channels % self.width == 0 else self.panels - 1

    def full_panel(self, index: Index) -> Panel:
        """A panel that is full."""
        return Panel(index, self.size, self.lanes)

    def last_panel(self, index: Index) -> Panel:
        """The last panel, which need not be full; ``index`` may be a value that is known at run time only."""
        full = self.panels - 1
        return Panel(index, self.vectors - full * self.size, self.channels - (self.vectors - 1) * self.lanes)
