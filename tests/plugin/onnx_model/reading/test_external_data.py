"""External data is read from inside the model's folder only, for every tensor wherever it hides."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from sartor.errors import SartorError, UnsupportedModelError, UsageError
from sartor.onnx_model.graphs.held_data import holding
from sartor.onnx_model.graphs.tensor_data import to_array
from sartor.onnx_model.reading.load import load_model, read_model
from tests.plugin.onnx_model.builders import FLOAT, model, node

VALUES = np.arange(6, dtype=np.float32)


def _external(location: str, **entries: str) -> TensorProto:
    tensor = TensorProto(name="w", data_type=FLOAT, dims=[6], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def _as_initializer(tensor: TensorProto) -> ModelProto:
    built = model([node("Add", ["x", "w"], ["y"])], [("x", (6,), FLOAT)], ["y"])
    built.graph.initializer.append(tensor)
    return built


def _as_attribute(tensor: TensorProto) -> ModelProto:
    return model(
        [node("Constant", [], ["w"], value=tensor), node("Add", ["x", "w"], ["y"])], [("x", (6,), FLOAT)], ["y"]
    )


def _as_sparse(tensor: TensorProto) -> ModelProto:
    built = model([node("Add", ["x", "w"], ["y"])], [("x", (6,), FLOAT)], ["y"])
    rows = numpy_helper.from_array(np.arange(6), "rows")
    built.graph.sparse_initializer.append(helper.make_sparse_tensor(tensor, rows, [6]))
    return built


def _in_subgraph(tensor: TensorProto) -> ModelProto:
    body = helper.make_graph(
        [node("Identity", ["w"], ["z"])], "body", [], [helper.make_tensor_value_info("z", FLOAT, [6])]
    )
    body.initializer.append(tensor)
    branches = {"then_branch": body, "else_branch": body}
    return model([node("If", ["c"], ["y"], **branches)], [("c", (), TensorProto.BOOL)], ["y"])


def _in_function(tensor: TensorProto) -> ModelProto:
    built = model([node("Local", ["x"], ["y"], domain="local")], [("x", (6,), FLOAT)], ["y"])
    body = [node("Constant", [], ["w"], value=tensor), node("Add", ["x", "w"], ["y"])]
    built.functions.append(helper.make_function("local", "Local", ["x"], ["y"], body, [helper.make_opsetid("", 17)]))
    built.opset_import.append(helper.make_opsetid("local", 1))
    return built


PLACES = [_as_initializer, _as_attribute, _as_sparse, _in_subgraph, _in_function]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The model's folder, beside a secret file it must not reach."""
    (tmp_path / "secret.bin").write_bytes(VALUES.tobytes())
    inside = tmp_path / "model"
    (inside / "data").mkdir(parents=True)
    (inside / "w.bin").write_bytes(b"pad!" + VALUES.tobytes())
    (inside / "data" / "w.bin").write_bytes(VALUES.tobytes())
    return inside


def _load(folder: Path, built: ModelProto) -> ModelProto:
    path = folder / "model.onnx"
    path.write_bytes(built.SerializeToString())
    return load_model(path)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("entries", [{"location": "w.bin", "offset": "4"}, {"location": "data/w.bin", "length": "24"}])
def test_data_inside_the_folder_is_read(
    folder: Path, place: Callable[[TensorProto], ModelProto], entries: dict[str, str]
) -> None:
    loaded = _load(folder, place(_external(**entries)))
    assert VALUES.tobytes() in loaded.SerializeToString()
    assert b"w.bin" not in loaded.SerializeToString()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "location", ["../secret.bin", "data/../../secret.bin", "..\\secret.bin", "C:\\secret.bin", "\\\\host\\secret"]
)
def test_path_that_leaves_the_folder(folder: Path, place: Callable[[TensorProto], ModelProto], location: str) -> None:
    with pytest.raises(UnsupportedModelError, match="only files inside the model's folder are read"):
        _load(folder, place(_external(location)))


def test_absolute_path(folder: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"tensor 'w'.*only files inside"):
        _load(folder, _as_initializer(_external(str(folder / "w.bin"))))


def test_symbolic_link_out(folder: Path) -> None:
    (folder / "link.bin").symlink_to(folder.parent / "secret.bin")
    with pytest.raises(UnsupportedModelError, match="a link leads out"):
        _load(folder, _as_initializer(_external("link.bin")))


def test_symbolic_link_of_a_folder_out(folder: Path) -> None:
    (folder / "linked").symlink_to(folder.parent)
    with pytest.raises(UnsupportedModelError, match="a link leads out"):
        _load(folder, _as_initializer(_external("linked/secret.bin")))


def test_hard_link_out(folder: Path) -> None:
    os.link(folder.parent / "secret.bin", folder / "hard.bin")
    with pytest.raises(UnsupportedModelError, match="hard links"):
        _load(folder, _as_initializer(_external("hard.bin")))


def test_model_reached_through_a_link_finds_its_data(folder: Path) -> None:
    _load(folder, _as_initializer(_external("w.bin", offset="4")))
    alias = folder.parent / "alias"
    alias.symlink_to(folder)
    assert load_model(alias / "model.onnx").graph.initializer[0].raw_data == VALUES.tobytes()


@pytest.mark.parametrize("special", ["data", "."])
def test_folder_instead_of_a_file(folder: Path, special: str) -> None:
    with pytest.raises(SartorError, match=r"not a plain file|cannot be read"):
        _load(folder, _as_initializer(_external(special)))


def test_named_pipe_does_not_block(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with pytest.raises(UnsupportedModelError, match="not a plain file"):
        _load(folder, _as_initializer(_external("pipe")))


def test_missing_file_is_named_with_the_tensor(folder: Path) -> None:
    with pytest.raises(
        UsageError, match=r"tensor 'w' of node 'constant' \(Constant\) is stored in 'gone.bin', which is missing"
    ):
        _load(folder, _as_attribute(_external("gone.bin")))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"offset": "8"}, "lies at bytes 8 to 32"),
        ({"offset": "9" * 18}, "lies at bytes"),
        ({"offset": "-1"}, "not a byte count"),
        ({"offset": "1e3"}, "not a byte count"),
        ({"offset": "9" * 5000}, "not a byte count"),
        ({"length": "20"}, "needs 24 bytes for its shape, but its external data has length 20"),
        ({"length": ""}, "not a byte count"),
    ],
)
def test_range_outside_the_file(folder: Path, entries: dict[str, str], message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        _load(folder, _as_initializer(_external("w.bin", **entries)))


def test_location_is_required(folder: Path) -> None:
    tensor = TensorProto(name="w", data_type=FLOAT, dims=[6], data_location=TensorProto.EXTERNAL)
    with pytest.raises(UnsupportedModelError, match="not the file it is in"):
        _load(folder, _as_initializer(tensor))


def test_many_references_to_one_file_are_bounded(folder: Path) -> None:
    """A small file that is declared again and again would fill the memory."""
    built = _as_initializer(_external("w.bin", offset="4"))
    for index in range(40):
        tensor = _external("w.bin")
        tensor.name, tensor.dims[0] = f"w{index}", 2**24
        built.graph.initializer.append(tensor)
    with pytest.raises(UnsupportedModelError, match=r"declares .* bytes of external data"):
        _load(folder, built)
    with holding(), pytest.raises(UnsupportedModelError, match=r"declares .* bytes of external data"):
        _load(folder, built)


def test_files_of_more_than_a_message_holds_are_mapped(folder: Path) -> None:
    size = 3 << 29
    with (folder / "large.bin").open("wb") as file:
        file.truncate(2 * size)
        file.seek(size)
        file.write(b"\7")
    built = model([node("Concat", ["a", "b"], ["y"], axis=0)], [], ["y"])
    for index, name in enumerate("ab"):
        tensor = TensorProto(name=name, data_type=TensorProto.UINT8, dims=[size], data_location=TensorProto.EXTERNAL)
        for key, value in {"location": "large.bin", "offset": str(index * size), "length": str(size)}.items():
            tensor.external_data.add(key=key, value=value)
        built.graph.initializer.append(tensor)
    (folder / "m.onnx").write_bytes(built.SerializeToString())
    with holding():
        (loaded, _) = read_model(folder / "m.onnx")
        assert [int(to_array(tensor)[0]) for tensor in loaded.graph.initializer] == [0, 7]
    with pytest.raises(UnsupportedModelError, match="split the model"):
        read_model(folder / "m.onnx")


@pytest.fixture
def cached(tmp_path: Path) -> Path:
    """A model in the layout of Hugging Face's cache: links into a folder of files that are named by their hash."""
    snapshot, blobs = tmp_path / "snapshots" / "1a2b" / "onnx", tmp_path / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    (blobs / "c0ffee").write_bytes(_as_initializer(_external("model.onnx_data")).SerializeToString())
    (blobs / "decaf").write_bytes(VALUES.tobytes())
    (snapshot / "model.onnx").symlink_to(Path("../../../blobs/c0ffee"))
    (snapshot / "model.onnx_data").symlink_to(Path("../../../blobs/decaf"))
    return snapshot / "model.onnx"


def test_the_cache_of_hugging_face_is_read(cached: Path) -> None:
    model, files = read_model(cached)
    assert model.graph.initializer[0].raw_data == VALUES.tobytes()
    assert [file.name for file in files] == ["decaf"]


def test_links_lead_beside_the_model_only(cached: Path) -> None:
    """Not below that folder, and nowhere if the model is no link."""
    deeper = cached.parents[3] / "blobs" / "deeper"
    deeper.mkdir()
    (deeper / "secret").write_bytes(VALUES.tobytes())
    data = cached.with_name("model.onnx_data")
    data.unlink()
    data.symlink_to(deeper / "secret")
    with pytest.raises(UnsupportedModelError, match=r"a link leads out of the model's folder; copy '.*secret' to"):
        load_model(cached)
    data.unlink()
    data.symlink_to(cached.parents[3] / "blobs" / "decaf")
    content = cached.read_bytes()
    cached.unlink()
    cached.write_bytes(content)
    with pytest.raises(UnsupportedModelError, match="a link leads out"):
        load_model(cached)


def test_more_tensors_than_files_may_be_open_are_read(tmp_path: Path) -> None:
    """Each had a mapping, and a descriptor, of its own."""
    count, elements = 100, 20_000
    tensors = [numpy_helper.from_array(np.full(elements, index, np.float32), f"w{index}") for index in range(count)]
    nodes = [node("Sum", [tensor.name for tensor in tensors], ["y"])]
    built = model(nodes, [], [("y", (elements,), FLOAT)])
    built.graph.initializer.extend(tensors)
    onnx.save(built, tmp_path / "m.onnx", save_as_external_data=True, location="data", size_threshold=0)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 40, hard))
    try:
        with holding():
            loaded = load_model(tmp_path / "m.onnx")
            found = [to_array(initializer)[-1] for initializer in loaded.graph.initializer]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert found == [*range(count)]
