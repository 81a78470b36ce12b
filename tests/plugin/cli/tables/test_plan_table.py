"""What is shown of a module by name."""

from __future__ import annotations

from sartor.cli.tables.plan_table import changes_of
from sartor.runtime.manifest import Manifest
from sartor.tuning.records.network import Network, NetworkLayer


def layer(name: str, changes: str = "") -> NetworkLayer:
    return NetworkLayer(name, (), "fused", "task", (), (), (), (), changes)


def test_layers_that_change_their_code_are_counted_by_size() -> None:
    layers = [layer("a", "width=96"), layer("b"), layer("c", "width=64"), layer("d", "width=96")]
    network = Network(tuple(layers), 1, ()).to_json()
    manifest = Manifest("m", "", "main", (), (), ("cpu",), ("host",), "", "", {}, network=network)
    assert changes_of(manifest) == ["width=96 (2 layers)", "width=64 (1 layer)"]
    assert ["changes" in one for one in network["layers"]] == [True, False, True, True]
    assert changes_of(Manifest("m", "", "main", (), (), ("cpu",), ("host",), "", "", {})) == []
