"""Writes the files; see the package."""

from __future__ import annotations

import sys
from pathlib import Path

import lightgbm
import numpy as np
import onnx
import onnxmltools
from onnxmltools.convert.common.data_types import FloatTensorType
from skl2onnx import to_onnx
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.ensemble import AdaBoostClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC

_MODELS = {
    "ada_boost": AdaBoostClassifier(n_estimators=5, random_state=0),
    "pipeline_logistic": make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression(max_iter=500)),
    "random_forest": RandomForestClassifier(10, max_depth=4, random_state=0),
    "support_vectors": make_pipeline(MinMaxScaler(), SVC()),
}


def main() -> None:
    """Write all files into the folder that the command line names."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    rows, labels = load_iris(return_X_y=True)
    rows = rows.astype(np.float32)
    for name, model in _MODELS.items():
        model.fit(rows, labels)
        onnx.save_model(to_onnx(model, rows[:1], options={"zipmap": False}), folder / f"{name}.onnx")
    rows, labels = load_breast_cancer(return_X_y=True)
    boosted = lightgbm.LGBMClassifier(n_estimators=10, num_leaves=7, verbose=-1).fit(rows, labels)
    types = [("X", FloatTensorType([None, rows.shape[1]]))]
    converted = onnxmltools.convert_lightgbm(boosted, initial_types=types, zipmap=False, target_opset=15)
    onnx.save_model(converted, folder / "lightgbm_binary.onnx")


if __name__ == "__main__":
    main()
