"""What is done with a checkpoint that is evaluated: it is held, exported, kept."""

import numpy as np

from estimator_runtime.checkpoint import lease
from estimator_runtime.checkpoint.best import BestCheckpoints, Criterion
from estimator_runtime.compat import frozen
from estimator_runtime.option_values import best_mode_of
from estimator_runtime.options import TrainingOptions


class Evaluator(frozen.StockTrainingExecutor._Evaluator):
    """Evaluates and exports the newest checkpoint, as TensorFlow's does.

    Until it is exported nobody deletes it. If `keep_best` is set, it is kept if it is
    one of the best.
    """

    def __init__(self, estimator, eval_spec, max_training_steps):
        super().__init__(estimator, eval_spec, max_training_steps)
        criterion = criterion_of(estimator.config)
        self._best = criterion and BestCheckpoints(
            estimator.model_dir, criterion, estimator.eval_dir(eval_spec.name)
        )

    def evaluate_and_export(self):
        """Evaluate the newest checkpoint, if it is new, and export it."""
        with lease.together():
            result, exports = super().evaluate_and_export()
            if result.metrics and self._best is not None:
                self._best.offer(result.checkpoint_path, numbers(result.metrics))
        return result, exports


def criterion_of(config):
    """Give the `Criterion` of a config, or None if it keeps no best checkpoints."""
    own = TrainingOptions.of(config)
    if not own.keep_best or own.best_metric is None:
        return None
    mode = best_mode_of(own.best_metric, own.best_mode)
    return Criterion(keep=own.keep_best, metric=own.best_metric, mode=mode)


def numbers(metrics):
    """Give the metrics that are one number each, as floats by name.

    Others are arrays, and summaries: texts that go to TensorBoard as they are.
    """
    return {
        name: float(value)
        for name, value in metrics.items()
        if np.ndim(value) == 0 and not isinstance(value, (bytes, str))
    }
