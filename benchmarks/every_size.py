"""A file for any size beside ONNX Runtime at hundreds of sizes in random order.

    python -m benchmarks.every_size encoder.onnx encoder.vmfb --count 300 --below input_ids=2000

Sizes are the ends of each range, primes, multiples of what tiles have and their neighbours, and others, small ones as
often as large ones by octaves. By one session for each number of threads, each call has inputs of its own and follows
one of another size, so that what a call leaves behind would show in the next. Integers are 0 or 1, as those of masks,
or below what ``--below`` says. The exit code is 1 if one is wrong.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.random import Generator

from sartor.cli.options.sizes import read_sizes, sized_inputs
from sartor.runtime.driver.signature import Array, TensorSpec
from sartor.runtime.files.open_sizes import OpenSize
from sartor.runtime.module_facts import module_manifest, module_signature
from sartor.runtime.reference import OnnxRuntimeReference
from sartor.runtime.session import Session

app = typer.Typer(help=__doc__)
MOST_ERROR = 1e-3
_TILES, _NEAR = (8, 16, 64), (-1, 0, 1)

Sizes = Mapping[str, int]


@app.command()
def show(
    model: Annotated[Path, typer.Argument(help="The ONNX file.")],
    module: Annotated[Path, typer.Argument(help="Its module for any size.")],
    count: Annotated[int, typer.Option(help="How many sizes are tried with each number of threads.")] = 300,
    threads: Annotated[str, typer.Option(help="Threads of sessions, one after another.")] = "1,2",
    below: Annotated[list[str] | None, typer.Option(help="Least number above integers, as input_ids=2000.")] = None,
    seed: Annotated[int, typer.Option(help="Of sizes and inputs.")] = 0,
) -> None:
    """Compare all sizes; prints those that are wrong, and how many are right."""
    manifest = module_manifest(module)
    if manifest is None or not manifest.sizes:
        raise typer.BadParameter(f"'{module}' is for no size but its own")
    reference, inputs = OnnxRuntimeReference(model, threads=1), module_signature(module).inputs
    bounds, errors, tried = read_sizes(below), list[float](), set[tuple[int, ...]]()
    for number in map(int, threads.split(",")):
        random = np.random.default_rng([seed, number])
        with Session(module, threads=number) as session:
            for sizes in drawn_sizes(manifest.sizes, count, random):
                texts = [f"{name}={size}" for name, size in sizes.items()]
                feeds = drawn_inputs(sized_inputs(module, inputs, texts), bounds, random)
                errors.append(largest_error(session.run(None, feeds), reference(feeds)))
                tried.add(tuple(sizes.values()))
                if not errors[-1] <= MOST_ERROR:
                    print(f"{', '.join(texts)}, {number} threads: error {errors[-1]:.3g}", flush=True)
    right = sum(error <= MOST_ERROR for error in errors)
    print(f"{right} of {len(errors)} calls right, {len(tried)} different sizes, largest error {max(errors):.2g}")
    sys.exit(int(right < len(errors)))


def largest_error(outputs: Sequence[Array], expected: Sequence[Array]) -> float:
    """The largest difference of outputs, by the largest number of each; infinite if one has another shape or type."""
    pairs = [*zip(outputs, expected, strict=True)]
    if any((one.shape, one.dtype) != (right.shape, right.dtype) for one, right in pairs):
        return math.inf
    return max(
        float(np.abs(one - right).max(initial=0.0)) / (float(np.abs(right).max(initial=0.0)) or 1.0)
        for one, right in pairs
    )


def drawn_inputs(specs: Sequence[TensorSpec], below: Mapping[str, int], random: Generator) -> dict[str, Array]:
    """Random inputs: normal numbers, and integers from 0 on below a number."""
    shapes = {spec.name: [size for size in spec.shape if size is not None] for spec in specs}
    return {
        spec.name: (
            random.standard_normal(shapes[spec.name])
            if spec.numpy_dtype.kind == "f"
            else random.integers(0, below.get(spec.name, 2), shapes[spec.name])
        ).astype(spec.numpy_dtype)
        for spec in specs
    }


def drawn_sizes(ranges: Sequence[OpenSize], count: int, random: Generator) -> list[Sizes]:
    """So many combinations of sizes, in random order, those of all ends among them."""
    ends = [{each.name: each.nearest(getattr(each, end)) for each in ranges} for end in ("least", "most")]
    others = [{each.name: _drawn(each, random) for each in ranges} for _ in range(count - len(ends))]
    listed = [*ends, *others]
    return [listed[index] for index in random.permutation(len(listed))][:count]


def _drawn(of: OpenSize, random: Generator) -> int:
    near = of.least * math.pow(of.most / of.least, random.random())
    match int(random.integers(4)):
        case 0:
            tile = int(random.choice(_TILES))
            size = round(near / tile) * tile + int(random.choice(_NEAR))
        case 1:
            size = _prime_from(round(near))
        case 2:
            size = int(random.choice([of.least, of.most]))
        case _:
            size = round(near)
    return of.nearest(size)


def _prime_from(number: int) -> int:
    """The least prime that is not less than a number."""
    prime = max(number, 2)
    while any(prime % factor == 0 for factor in range(2, math.isqrt(prime) + 1)):
        prime += 1
    return prime


if __name__ == "__main__":
    app()
