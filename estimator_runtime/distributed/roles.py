"""What each task of a cluster does, by its role, and when it ends.

Chief (or master, or worker 0 without one):
    trains, saves, and writes the finish note. It ends when its training has ended, and
    the workers have left theirs. It gives up without a ps, or a partner of a gang.
Worker:
    trains. It ends when its training has ended. It gives up as the chief does, and
    without a chief.
Ps:
    serves variables (`ps.ParameterServer`). It is released by the finish note or a stop
    signal when no trainer is left. It gives up when no trainer comes.
Evaluator:
    evaluates each new checkpoint (`evaluator.Evaluator`). It ends with the last one, by
    the finish note or `max_steps`. It gives up when no trainer is there and no file
    changes.

`liveness.watched_peers` says which tasks a trainer watches. Under our launcher, the
supervisor knows which tasks are there, and ends the ps.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any, ClassVar, NoReturn

import tensorflow as tf

from estimator_runtime.config import waits
from estimator_runtime.config.role import TaskType
from estimator_runtime.distributed import peers
from estimator_runtime.distributed.evaluator import Evaluator
from estimator_runtime.distributed.ps import ParameterServer
from estimator_runtime.errors import ConfigError
from estimator_runtime.patching import frozen


@frozen.replaces("tensorflow_estimator.python.estimator.training")
class _TrainingExecutor(frozen.StockTrainingExecutor):
    """Runs the task of this process; see `train_and_evaluate`."""

    _Evaluator = Evaluator
    clock: ClassVar[Any] = time  # has `monotonic` and `sleep`

    def run_ps(self) -> NoReturn:
        """Serve variables until the training has ended and all trainers have left.

        Raises:
            SystemExit: When it is done, with status 0, or with 143 if SIGTERM released
                it. A ps never returns to the program: with TensorFlow's own, the code
                after the training has never run on a ps either.
            PeerTimeoutError: If no trainer is there for longer than a session may take
                to be created (`session_creation_timeout_secs`).
        """
        config = self._estimator.config
        ps = ParameterServer(
            self._estimator.model_dir,
            config.cluster_spec.as_dict(),
            config.session_creation_timeout_secs,
        )
        server = self._start_std_server(config)
        status = ps.serve()
        del server
        ps.restore()
        sys.exit(status)

    def _start_std_server(self, config: tf.estimator.RunConfig) -> tf.distribute.Server:
        try:
            return super()._start_std_server(config)
        except tf.errors.UnknownError as error:
            address = config.cluster_spec.task_address(config.task_type, config.task_id)
            raise ConfigError(
                f"TF_CONFIG: {config.task_type} {config.task_id} cannot listen on "
                f"{address!r}: {error.message}. Is another program, or another task, "
                "using the port? Give this task one that is free"
            ) from error

    def _start_distributed_training(
        self,
        saving_listeners: Sequence[tf.estimator.CheckpointSaverListener] | None = None,
    ) -> None:
        with frozen.start_delay_changed(waits.start_delay_secs):
            super()._start_distributed_training(saving_listeners)

    def _start_continuous_evaluation(self) -> None:
        """Evaluate each new checkpoint until the last one has been evaluated.

        Raises:
            PeerTimeoutError: If no trainer is there; see `Evaluator.run`.
        """
        frozen.assert_eval_spec(self._eval_spec)
        evaluator = self._Evaluator(
            self._estimator, self._eval_spec, self._train_spec.max_steps
        )
        evaluator.run(self._continuous_eval_listener, self.clock)


def is_chief(task: peers.TaskConfig) -> bool:
    """Return whether a task is the one that saves checkpoints."""
    if TaskType.CHIEF in task.cluster or TaskType.MASTER in task.cluster:
        return task.task_type in (TaskType.CHIEF, TaskType.MASTER)
    return (task.task_type, task.task_index) == (TaskType.WORKER, 0)
