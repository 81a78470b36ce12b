"""Executables translated apart give the machine code of a module compiled whole, and the same bytes, known or not."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.linking.bench_module import bench_module
from sartor.codegen.linking.pieces import Piece
from sartor.codegen.mlir import machine_code
from sartor.codegen.mlir.dispatches import lower
from sartor.codegen.mlir.executables import TranslatedApart, write_divided
from sartor.codegen.mlir.iree_compiler import arith, compile_made, compile_module, inlined, inlined_module, ir
from sartor.errors import CompileError
from sartor.runtime.driver.device import open_device
from sartor.runtime.driver.device_array import from_view, upload
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import TensorSpec
from sartor.runtime.module import open_module
from tests.codegen.kernels.small_kernels import SmallKernel

# Flags of an ELF file's sections.
_ALLOCATED, _EXECUTED = 2, 4
HOST = Target.create("cpu")
TENSOR = TensorType((16,), "f32")
STOCK = """util.func public @layer(%x: tensor<16xf32>) -> tensor<16xf32> {
  %y = math.exp %x : tensor<16xf32>
  util.return %y : tensor<16xf32>
}"""


@dataclass
class Store:
    """Code in memory, and how often there was none."""

    entries: dict[str, bytes] = field(default_factory=dict)
    missed: int = 0

    def find(self, keys: Collection[str]) -> Mapping[str, bytes]:
        self.missed += sum(key not in self.entries for key in keys)
        return {key: self.entries[key] for key in keys if key in self.entries}

    def add(self, entries: Mapping[str, bytes]) -> None:
        self.entries |= entries


def kernel(operation: type[ir.OpView]) -> Implementation:
    """A kernel of 16 numbers by itself."""

    def write(a: Assembler, memories: Sequence[ir.Value], _: tuple[Index, Index, Index]) -> None:
        for start in range(0, 16, 4):
            x = a.load(memories[0], start, 4)
            a.store(operation(x, x).result, memories[1], start, 4)

    return SmallKernel(write, [np.zeros(16, np.float32)], 16).implementation


def module_text(implementations: Mapping[str, Implementation]) -> str:
    codes = lower(implementations, HOST)
    pieces = {name: Piece(name, each, codes[name]) for name, each in implementations.items()}
    return bench_module(HOST, pieces, {name: ([TENSOR], [TENSOR]) for name in pieces})


def apart(text: str, store: Store | None, flags: tuple[str, ...] = HOST.flags) -> bytes:
    return compile_made(partial(inlined_module, text), flags, start="flow", apart=TranslatedApart(flags, store))


@pytest.fixture(scope="module")
def text() -> str:
    """Two kernels that differ in their bodies alone, and a layer that IREE lowers."""
    schema = Schema.plain(TENSOR, "any")
    stock = Implementation(STOCK, (schema,), (schema,), ())
    return module_text({"sum": kernel(arith.AddFOp), "product": kernel(arith.MulFOp), "stock": stock})


@pytest.fixture(scope="module")
def unknown(text: str) -> bytes:
    """The module where nothing is known."""
    return apart(text, None)


def sizes(module: bytes) -> list[int]:
    """The sizes of a module's parts, and of the sections of its machine code but the line numbers, whose encoding
    differs by some bytes on some CPUs."""
    with zipfile.ZipFile(io.BytesIO(module)) as archive:
        parts = {each.filename: each.file_size for each in archive.infolist()}
        (name,) = (each for each in parts if each.endswith(".so"))
        elf = archive.read(name)
    del parts[name]
    begin, size, count, names = *struct.unpack_from("<Q", elf, 40), *struct.unpack_from("<HHH", elf, 58)
    sections = [struct.unpack_from("<IIQQQQ", elf, begin + size * index) for index in range(count)]
    texts = sections[names][4]
    kept = [each for each in sections if not elf[texts + each[0] :].startswith(b".debug_line\0")]
    assert len(kept) == count - 1
    return [*parts.values(), *(each[5] for each in kept)]


def loaded(module: bytes) -> list[bytes]:
    """The parts of a module's machine code that are loaded: instructions and constants, without line numbers."""
    with zipfile.ZipFile(io.BytesIO(module)) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".so"))
        elf = archive.read(name)
    begin, size, count = *struct.unpack_from("<Q", elf, 40), *struct.unpack_from("<HH", elf, 58)
    headers = [struct.unpack_from("<IIQQQQ", elf, begin + size * index) for index in range(count)]
    kinds = (_ALLOCATED, _ALLOCATED | _EXECUTED)
    return [
        elf[offset : offset + length] for _, kind, flags, _, offset, length in headers if kind == 1 and flags in kinds
    ]


def test_the_machine_code_is_that_of_a_module_that_is_compiled_whole(text: str, unknown: bytes) -> None:
    whole = compile_module(inlined(text), HOST.flags, start="flow")
    assert sizes(unknown) == sizes(whole)
    assert sum(map(len, loaded(whole))) > 200
    assert loaded(unknown) == loaded(whole)


def test_code_of_an_earlier_compilation_gives_the_same_bytes(text: str, unknown: bytes) -> None:
    store = Store()
    assert apart(text, store) == unknown
    assert len(store.entries) == 3
    store.missed = 0
    assert apart(text, store) == unknown
    assert store.missed == 0


def test_code_of_another_module_gives_the_same_bytes() -> None:
    """The kernel is at another place there, so its operations have other locations."""
    both = module_text({"product": kernel(arith.MulFOp), "sum": kernel(arith.AddFOp)})
    alone = module_text({"sum": kernel(arith.AddFOp)})
    store = Store()
    apart(both, store)
    store.missed = 0
    assert apart(alone, store) == apart(alone, None)
    assert store.missed == 0


def test_stored_code_is_what_the_module_gets(text: str, unknown: bytes) -> None:
    """Code of another kernel under the key shows that it is not made again."""
    store, others = Store(), Store()
    apart(text, store)
    apart(module_text({"sum": kernel(arith.MulFOp)}), others)
    (other,) = others.entries.values()
    (key,) = (key for key, content in store.entries.items() if b"sum_small" in content)
    store.entries[key] = other
    assert loaded(apart(text, store)) != loaded(unknown)


def test_code_for_other_flags_is_not_used(text: str) -> None:
    store = Store()
    apart(text, store)
    store.missed = 0
    apart(text, store, (*HOST.flags, "--iree-llvmcpu-stack-allocation-limit=32768"))
    assert store.missed == 3


def test_what_does_not_translate_is_refused_and_not_stored(text: str) -> None:
    begin = "func.func @sum_small() {\n"
    assert begin in text
    tensor = "%t = tensor.empty() : tensor<4xf32>\n%u = util.optimization_barrier %t : tensor<4xf32>\n"
    store = Store()
    with pytest.raises(CompileError):
        apart(text.replace(begin, begin + tensor), store)
    assert not store.entries


def computed(module: bytes) -> list[np.ndarray]:
    """What the functions of a module give for some numbers."""
    device = open_device("cpu", 1)
    program = Program(open_module(module).native, "contract", device, {})
    numbers = np.linspace(-2, 3, 16, dtype=np.float32)
    views = [program.invoke(f"run_{name}", [upload(numbers, device).view]) for name in ("sum", "product", "stock")]
    return [from_view(view, device, TensorSpec("y", "float32", (16,))).to_host().copy() for (view,) in views]


@pytest.mark.parametrize(("least", "groups"), [(machine_code._LEAST, 1), (1, 2)])
def test_code_of_several_threads_computes_the_same(
    text: str, unknown: bytes, least: int, groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_code, "_LEAST", least)
    threaded = TranslatedApart(HOST.flags, None, threaded=True)
    module = compile_made(partial(inlined_module, text), HOST.flags, start="flow", apart=threaded)
    with zipfile.ZipFile(io.BytesIO(module)) as archive:
        assert sum(name.endswith(".so") for name in archive.namelist()) == groups
    numbers = np.linspace(-2, 3, 16, dtype=np.float32)
    total, product, exponential = computed(module)
    np.testing.assert_array_equal(total, numbers + numbers)
    np.testing.assert_array_equal(product, numbers * numbers)
    np.testing.assert_array_equal(exponential, computed(unknown)[2])


def test_an_error_of_llvm_is_that_of_the_module(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bytes:
        raise CompileError("no machine code")

    monkeypatch.setattr(machine_code, "compile_part", fail)
    with pytest.raises(CompileError, match="no machine code"):
        compile_made(
            partial(inlined_module, text),
            HOST.flags,
            start="flow",
            apart=TranslatedApart(HOST.flags, None, threaded=True),
        )


@pytest.mark.parametrize("fault", ["_holds_executable", "_are_named_apart"])
def test_code_that_cannot_be_divided_is_compiled_in_one_thread(
    text: str, unknown: bytes, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a module has no variable that is known to hold its executable, or two functions have one name."""
    monkeypatch.setattr(machine_code, "_LEAST", 1)
    monkeypatch.setattr(machine_code, fault, lambda *_: False)
    write_divided(partial(inlined_module, text), tmp_path / "module.vmfb", HOST.flags, None)
    module = (tmp_path / "module.vmfb").read_bytes()
    with zipfile.ZipFile(io.BytesIO(module)) as archive:
        assert sum(name.endswith(".so") for name in archive.namelist()) == 1
    for found, expected in zip(computed(module), computed(unknown), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_code_of_several_threads_is_the_same_from_the_store(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_code, "_LEAST", 1)
    store = Store()

    def threaded() -> bytes:
        own = TranslatedApart(HOST.flags, store, threaded=True)
        return compile_made(partial(inlined_module, text), HOST.flags, start="flow", apart=own)

    first = threaded()
    store.missed = 0
    assert threaded() == first
    assert store.missed == 0
