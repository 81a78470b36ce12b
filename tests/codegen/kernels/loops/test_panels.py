"""Panels hold every channel once."""

from __future__ import annotations

import pytest

from sartor.codegen.kernels.loops.panels import Panel, PanelGrid


@pytest.mark.parametrize("channels", [1, 15, 16, 17, 32, 48, 49, 95, 96, 97])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_panels_hold_every_channel_once(channels: int, size: int) -> None:
    grid = PanelGrid(channels, 16, size)
    panels = [grid.full_panel(index) for index in range(grid.full)]
    if grid.full < grid.panels:
        panels.append(grid.last_panel(grid.full))
    assert [panel.index for panel in panels] == list(range(grid.panels))
    held = [panel.count(vector, 16) for panel in panels for vector in range(panel.vectors)]
    assert len(held) == grid.vectors
    assert sum(held) == channels
    assert set(held[:-1]) <= {16}


def test_a_last_panel_that_is_full_is_like_the_others() -> None:
    grid = PanelGrid(96, 16, 3)
    assert (grid.width, grid.full) == (48, grid.panels)
    assert grid.last_panel(1) == grid.full_panel(1) == Panel(1, 3, 16)
