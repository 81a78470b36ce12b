#!/usr/bin/env bash
# Converted text vectorisers keep stop words between words, and damp counts by another logarithm.
#
# Versions: skl2onnx 1.20.0, scikit-learn 1.9.1, onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: scikit-learn drops stop words, and makes pairs of what is left. The converted CountVectorizer leaves stop
# words where they are: pairs across one are in its vocabulary, and are never found. With sublinear_tf TfidfVectorizer
# counts a word that occurs n times as 1 + log(n), and the converted one as log(1 + n), by which one occurrence is 0.69.
# Nothing is said. Single words, pairs without stop words, and plain counts agree.
# Output seen: "pairs across a stop word, converted: ['cats dogs', 'run cats'] never found; one and two cats by
# sublinear_tf 1.00, 1.69, converted 0.69, 1.10; other pairs and counts the same".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet skl2onnx==1.20.0 scikit-learn==1.9.1 onnx==1.23.2 onnxruntime==1.32.0 \
    numpy==2.4.6

"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import onnxruntime
from skl2onnx import convert_sklearn
from skl2onnx.common.data_types import StringTensorType
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

TEXTS = ["cats and dogs run", "dogs run and cats sleep", "cats cats sleep"]


def counted(kind, **options):
    """The names of the columns, and the numbers of the first and last text by scikit-learn and the converted model."""
    model = kind(**options).fit(TEXTS)
    initial = [("x", StringTensorType([None, 1]))]
    converted = convert_sklearn(model, initial_types=initial, options={kind: {"locale": "C"}})
    session = onnxruntime.InferenceSession(converted.SerializeToString(), providers=["CPUExecutionProvider"])
    found = session.run(None, {"x": np.array(TEXTS).reshape(-1, 1)})[0]
    return model.get_feature_names_out().tolist(), model.transform(TEXTS).toarray(), found


names, right, found = counted(CountVectorizer, ngram_range=(1, 2), stop_words=["and"])
lost = [name for name, one, other in zip(names, right.T, found.T, strict=True) if (one != other).any()]
zeros = not any(found[:, names.index(name)].any() for name in lost)
_, pairs, same = counted(CountVectorizer, ngram_range=(1, 2))
_, damped, other = counted(TfidfVectorizer, sublinear_tf=True, use_idf=False, norm=None)
_, plain, counts = counted(TfidfVectorizer, use_idf=False, norm=None)
print(
    f"pairs across a stop word, converted: {lost} {'never found' if zeros else 'found'}; one and two cats by "
    f"sublinear_tf {damped[0, 1]:.2f}, {damped[2, 1]:.2f}, converted {other[0, 1]:.2f}, {other[2, 1]:.2f}; other pairs "
    f"and counts {'the same' if (pairs == same).all() and (plain == counts).all() else 'not the same'}"
)
assert lost == ["cats dogs", "run cats"] and zeros
assert np.allclose(damped[[0, 2], 1], [1, 1 + np.log(2)]) and np.allclose(other[[0, 2], 1], np.log([2, 3]))
assert (pairs == same).all() and (plain == counts).all()
PYTHON
