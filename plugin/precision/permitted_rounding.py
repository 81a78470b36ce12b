"""What a model permits to round: products by encoded weights whose ``accuracy_level`` allows integers of 8 bits.

The permission is no order: which of these layers are rounded is selected within the error budget, which is then what
rounding all of them explains.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from sartor.codegen.ir.encoding import permits_rounding
from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.variants.rounding import ROWS
from sartor.codegen.kernels.encoded.rounded_rows import most_integer
from sartor.config import CompileConfig
from sartor.errors import UsageError
from sartor.frontend.imported_model import ImportedModel
from sartor.policies import Precision
from sartor.precision.calibration import Calibration
from sartor.precision.sensitivity import Sensitivities
from sartor.precision.sensitivity_cache import SensitivityCache
from sartor.progress import Progress, silent
from sartor.tuning.errors.error_measures import RELATIVE
from sartor.tuning.workers.pool import WorkerPool

_LOG = logging.getLogger(__name__)


def permitted_layers(graph: LayerGraph) -> tuple[str, ...]:
    """Names of the layers of which the model permits to round what they multiply."""
    return tuple(layer.name for layer in graph.layers if permits_rounding(layer.task))


def heeding_permissions(
    config: CompileConfig, imported: ImportedModel, heeded: Precision = Precision.PERMITTED
) -> CompileConfig:
    """The settings with the precision that the model permits, or what of it is ``heeded``, if the user chose none."""
    if not config.heeds_permissions or config.precision is not Precision.F32 or not permitted_layers(imported.graph):
        return config
    try:
        return replace(config, precision=heeded)
    except UsageError as error:
        _LOG.warning("the model permits to round products to 8 bits, which is not done: %s", error)
        return config


def with_permitted_error(
    imported: ImportedModel,
    calibration: Calibration,
    config: CompileConfig,
    pool: WorkerPool,
    progress: Progress = silent,
    *,
    is_hurried: bool = False,
) -> Calibration:
    """The calibration with the relative error of the outputs if all layers are rounded that may be, if the precision is
    that which the model permits, and errors are relative.

    To 16 bits that is so much less as their steps are smaller: by what 8 bits explain, a product that rounds to these
    would be right.

    Args:
        imported: the model.
        calibration: its samples.
        config: settings.
        pool: where ONNX Runtime runs.
        progress: told about every inference.
        is_hurried: whether few samples have to do.

    Raises:
        UsageError: if the model fails on the samples.
        CompileError: if the worker dies.
    """
    if not config.precision.is_permitted or config.error_measure != RELATIVE:
        return calibration
    cache = SensitivityCache.beside(config.database)
    rounding = Sensitivities(imported, calibration, pool, RELATIVE, config.jobs, cache, progress, is_hurried=is_hurried)
    error = rounding.together(dict.fromkeys(permitted_layers(imported.graph), ROWS))
    if config.precision is Precision.PERMITTED_WORDS:
        error *= most_integer(1) / most_integer(2)
    return replace(calibration, samples=replace(calibration.samples, permitted_error=error))
