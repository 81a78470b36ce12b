"""The exception that carries a rejection from where it is noticed to the routine that returns it as a value."""

from __future__ import annotations


class RejectionError(ValueError):
    """A layer is not what a routine computes, or not for this target; no fault of the code that notices it.

    Whoever asked for the layer's code catches it and returns ``Rejected(error.reason)``. A plain ValueError is not
    caught: it is a fault of our own, and shall look like one.
    """

    @property
    def reason(self) -> str:
        """Why, as it is shown to users."""
        return str(self)
