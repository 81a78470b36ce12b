"""Executables that are translated apart, or for another module before, give the bytes of a module compiled whole."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pytest

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.linking.bench_module import bench_module
from sartor.codegen.linking.stitching import Piece
from sartor.codegen.mlir.dispatches import lower
from sartor.codegen.mlir.executables import TranslatedApart
from sartor.codegen.mlir.iree_compiler import arith, compile_made, compile_module, inlined, inlined_module, ir
from sartor.errors import CompileError
from tests.codegen.kernels.small_kernels import SmallKernel

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
def whole(text: str) -> bytes:
    return compile_module(inlined(text), HOST.flags, start="flow")


def test_bytes_are_those_of_a_module_that_is_compiled_whole(text: str, whole: bytes) -> None:
    assert apart(text, None) == whole


def test_code_of_an_earlier_compilation_gives_the_same_bytes(text: str, whole: bytes) -> None:
    store = Store()
    assert apart(text, store) == whole
    assert len(store.entries) == 3
    store.missed = 0
    assert apart(text, store) == whole
    assert store.missed == 0


def test_code_of_another_module_gives_the_same_bytes() -> None:
    """The kernel is at another place there, so its operations have other locations."""
    both = module_text({"product": kernel(arith.MulFOp), "sum": kernel(arith.AddFOp)})
    alone = module_text({"sum": kernel(arith.AddFOp)})
    store = Store()
    apart(both, store)
    store.missed = 0
    assert apart(alone, store) == compile_module(inlined(alone), HOST.flags, start="flow")
    assert store.missed == 0


def test_stored_code_is_what_the_module_gets(text: str, whole: bytes) -> None:
    """Code of another kernel under the key shows that it is not made again."""
    store, others = Store(), Store()
    apart(text, store)
    apart(module_text({"sum": kernel(arith.MulFOp)}), others)
    (other,) = others.entries.values()
    (key,) = (key for key, content in store.entries.items() if b"sum_small" in content)
    store.entries[key] = other
    assert apart(text, store) != whole


def test_code_for_other_flags_is_not_used(text: str) -> None:
    store = Store()
    apart(text, store)
    store.missed = 0
    apart(text, store, (*HOST.flags, "--iree-llvmcpu-stack-allocation-limit=32768"))
    assert store.missed == 3


def test_a_kernel_that_does_not_translate_is_refused_and_not_stored(text: str) -> None:
    """As for a whole module: its stack frame is larger than IREE allows."""
    large = "%big = memref.alloca() : memref<1000000xf32>\n"
    used = "util.optimization_barrier %big : memref<1000000xf32>\n"
    start, end = "func.func @sum_small() {\n", text.index("func.func @sum_small() {\n")
    broken = text[: end + len(start)] + large + used + text[end + len(start) :]
    store = Store()
    for compile_it in (lambda: compile_module(inlined(broken), HOST.flags, start="flow"), lambda: apart(broken, store)):
        with pytest.raises(CompileError, match="stack"):
            compile_it()
    assert not store.entries
