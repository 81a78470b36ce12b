#!/usr/bin/env bash
# Hummingbird converts scikit-learn's preparing steps without some of their options, and says nothing.
#
# Versions: hummingbird-ml 0.4.12, scikit-learn 1.9.1, torch 2.14.1.
# Behaviour: a StandardScaler with with_mean=False subtracts the mean all the same; a MinMaxScaler with clip=True does
# not clip what lies outside of the range of the training; a Normalizer turns a row of zeros, which scikit-learn leaves,
# into NaN; a SimpleImputer with add_indicator=True lacks the indicators; a OneHotEncoder with drop="first" keeps all
# columns, and one with max_categories=3 has a column per category. The same steps without the options agree.
# Output seen: "without options agree: 5 of 5; with_mean=False 0.14 apart; clip=True up to 1.73; row of zeros NaN; columns
# with add_indicator 5 of 10, drop 15 of 12, max_categories 15 of 9".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet hummingbird-ml==0.4.12 scikit-learn==1.9.1 scipy==1.17.1 torch==2.14.1 \
    onnx==1.16.1 numpy==2.4.6

"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import hummingbird.ml
import numpy as np
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import MinMaxScaler, Normalizer, OneHotEncoder, StandardScaler

generator = np.random.default_rng(0)
x = generator.normal(size=(200, 5)).astype(np.float32)
holes = np.where(generator.random(x.shape) < 0.1, np.nan, x).astype(np.float32)
kinds = generator.integers(0, 5, size=(200, 3))
zeros = np.where(np.arange(200)[:, None] == 3, 0, x).astype(np.float32)


def both(step, training, data):
    """What a step gives and what its conversion gives."""
    step.fit(training)
    return step.transform(data), np.asarray(hummingbird.ml.convert(step, "torch", training[:3]).transform(data))


def agree(step, training, data):
    right, found = both(step, training, data)
    return right.shape == found.shape and np.allclose(right, found, atol=1e-5)


plain = [
    agree(StandardScaler(), x, x),
    agree(MinMaxScaler(), x[:100], x),
    agree(Normalizer(), x, x),
    agree(SimpleImputer(), holes, holes),
    agree(OneHotEncoder(sparse_output=False), kinds, kinds),
]
right, found = both(StandardScaler(with_mean=False), x, x)
shift = np.abs(right - found).max()
right, clipped = both(MinMaxScaler(clip=True), x[:20], x)
(_, normal), (marked, unmarked) = both(Normalizer(), zeros, zeros), both(SimpleImputer(add_indicator=True), holes, holes)
dropped, kept = both(OneHotEncoder(sparse_output=False, drop="first"), kinds, kinds)
few, many = both(OneHotEncoder(sparse_output=False, max_categories=3), kinds, kinds)
print(
    f"without options agree: {sum(plain)} of 5; with_mean=False {shift:.2f} apart; clip=True up to {clipped.max():.2f}; "
    f"row of zeros {'NaN' if np.isnan(normal[3]).all() else 'kept'}; columns with add_indicator {unmarked.shape[1]} of "
    f"{marked.shape[1]}, drop {kept.shape[1]} of {dropped.shape[1]}, max_categories {many.shape[1]} of {few.shape[1]}"
)
assert all(plain)
assert shift > 0.1 and right.max() == 1 and clipped.max() > 1.1 and np.isnan(normal[3]).all()
assert unmarked.shape[1] < marked.shape[1] and kept.shape[1] > dropped.shape[1] and many.shape[1] > few.shape[1]
PYTHON
