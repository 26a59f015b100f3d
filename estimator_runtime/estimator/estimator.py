"""The methods of the frozen Estimator that this runtime overrides.

All Estimators derive from one class of the frozen package, and programs patch or
subclass that very class. So the methods of `Overrides` are set on it, and each calls
the frozen method of its name through `stock`. They are in the order in which a program
calls them: train, evaluate, predict, export.
"""

import contextlib
import functools
import itertools
import os
import types
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow_estimator.python.estimator import estimator as frozen

from estimator_runtime import reporting
from estimator_runtime.checkpoint.store import locks
from estimator_runtime.config.options import TrainingOptions, use
from estimator_runtime.config.role import TaskType
from estimator_runtime.errors import ConfigError
from estimator_runtime.estimator import checkpoints, evaluation, keras
from estimator_runtime.estimator.reuse import advice, calls, exports
from estimator_runtime.estimator.reuse.cache import cache_for
from estimator_runtime.output import metrics_file
from estimator_runtime.signals import request


class Overrides:
    """The methods that replace those of the frozen Estimator.

    Their arguments, results and errors are those of the frozen methods.
    """

    def latest_checkpoint(self: Any) -> str | None:
        """Find the newest checkpoint, and hold it for the caller's `locks.together`."""
        if not locks.is_together():  # nobody reads it here
            return stock.latest_checkpoint(self)
        return locks.hold_newest(lambda: stock.latest_checkpoint(self))

    def train(
        self: Any,
        input_fn: Any,
        hooks: Any = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Any = None,
    ) -> Any:
        """Train from a verified checkpoint, with this runtime's options and signals."""
        if self.config.task_type in (TaskType.PS, TaskType.EVALUATOR):
            raise ConfigError(
                f"Estimator.train is called in a task of the type "
                f"{self.config.task_type!r}; call tf.estimator.train_and_evaluate, "
                "which gives each task of a cluster its part"
            )
        options = TrainingOptions.of(self.config)
        # Under the coordinator each task claims to be the chief until the coordinator
        # runs it. Then this method is called again.
        if not getattr(self.config, "_distribute_coordinator_mode", None):
            checkpoints.check_model_dir(self)
            checkpoints.verify_newest(self, max_steps)
            # Not only in the session, because the program's input_fn may block.
            reporting.expect_steps()
            reporting.progress(doing="building the model")
        try:
            with use(options, graph=None), request.watched():
                return stock.train(
                    self, input_fn, hooks, steps, max_steps, saving_listeners
                )
        finally:
            reporting.expect_no_steps()

    def _train_with_estimator_spec(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Train the model's graph, and only it, with all options."""
        graph = tf.compat.v1.get_default_graph()
        with use(TrainingOptions.of(self.config), graph):
            return stock._train_with_estimator_spec(self, *args, **kwargs)

    def _call_model_fn(
        self: Any, features: Any, labels: Any, mode: str, config: Any
    ) -> Any:
        """Call model_fn with Keras's seed set, and refuse variables of Keras 3."""
        seed = self.config.tf_random_seed
        timed = advice.building(self, mode)
        with keras.refusing_keras_3(), keras.seeded(seed), timed:
            return stock._call_model_fn(self, features, labels, mode, config)

    def evaluate(
        self: Any,
        input_fn: Any,
        steps: int | None = None,
        hooks: Any = None,
        checkpoint_path: Any = None,
        name: str | None = None,
    ) -> Any:
        """Evaluate a checkpoint that is not deleted meanwhile, and note the metrics."""
        with locks.together():
            path = checkpoints.hold(self, checkpoint_path)
            metrics = stock.evaluate(self, input_fn, steps, hooks, path, name)
        if not reporting.is_on():  # else the launcher writes them
            metrics_file.evaluated(metrics, os.environ)
        return metrics

    def _actual_eval(
        self: Any,
        input_fn: Any,
        strategy: Any = None,
        steps: int | None = None,
        hooks: Any = None,
        checkpoint_path: Any = None,
        name: str | None = None,
    ) -> Any:
        """Evaluate with a kept graph if `reuse_graphs` is on and the call allows it."""
        master = self._config.evaluation_master
        obstacles = calls.obstacles(hooks, checkpoint_path, master, strategy)

        def evaluate(input_fn: Any, hooks: Any) -> Any:
            # It ends early if the training around it has to stop.
            hooks = [*(hooks or ()), *evaluation.stop_hooks()]
            return stock._actual_eval(
                self, input_fn, strategy, steps, hooks, checkpoint_path, name
            )

        cache = cache_for("evaluate", self, obstacles)
        if cache is None:
            with advice.repeated(self, "evaluate", obstacles):
                return evaluate(input_fn, hooks)
        return calls.evaluate(
            self, cache, evaluate, input_fn, steps, checkpoint_path, name
        )

    def predict(
        self: Any,
        input_fn: Any,
        predict_keys: Any = None,
        hooks: Any = None,
        checkpoint_path: Any = None,
        yield_single_examples: bool = True,
    ) -> Iterator[Any]:
        """Predict from a checkpoint that is not deleted until the last result."""
        # Not `locks.together`, because the caller of a generator sees the context
        # variables that the generator sets.
        with contextlib.ExitStack() as leases:
            path: Any = checkpoints.hold(self, checkpoint_path, leases)
            obstacles = calls.obstacles(hooks, path, self._config.master)

            def predict(input_fn: Any, hooks: Any) -> Iterator[Any]:
                return stock.predict(
                    self, input_fn, predict_keys, hooks, path, yield_single_examples
                )

            cache = cache_for("predict", self, obstacles)
            if cache is None:
                rows = predict(input_fn, hooks)
                with advice.repeated(self, "predict", obstacles):
                    first = list(itertools.islice(rows, 1))
                yield from first
                yield from rows
            else:
                yield from calls.predict(
                    self,
                    cache,
                    predict,
                    input_fn,
                    predict_keys,
                    path,
                    yield_single_examples,
                )

    def _export_all_saved_models(
        self: Any,
        export_dir_base: Any,
        input_receiver_fn_map: Any,
        assets_extra: Any = None,
        as_text: bool = False,
        checkpoint_path: Any = None,
        strip_default_attrs: bool = True,
    ) -> Any:
        """Export a checkpoint that is not deleted meanwhile."""
        with locks.together():
            path = checkpoints.hold_for_export(self, checkpoint_path)
            return stock._export_all_saved_models(
                self,
                export_dir_base,
                input_receiver_fn_map,
                assets_extra,
                as_text,
                path,
                strip_default_attrs,
            )

    def _add_meta_graph_for_mode(
        self: Any,
        builder: Any,
        input_receiver_fn_map: Any,
        checkpoint_path: Any,
        save_variables: bool = True,
        mode: str = frozen.ModeKeys.PREDICT,
        export_tags: Any = None,
        check_variables: bool = True,
        strip_default_attrs: bool = True,
    ) -> None:
        """Export one mode with a kept graph if `reuse_graphs` is on."""

        def export(builder: Any, input_receiver_fn: Any) -> None:
            stock._add_meta_graph_for_mode(
                self,
                builder,
                {mode: input_receiver_fn},
                checkpoint_path,
                save_variables,
                mode,
                export_tags,
                check_variables,
                strip_default_attrs,
            )

        cache = cache_for("export", self) if check_variables else None
        if cache is None:
            export(builder, input_receiver_fn_map[mode])
            return
        exports.add_meta_graph(
            self,
            cache,
            export,
            builder,
            input_receiver_fn_map[mode],
            checkpoint_path,
            save_variables,
            mode,
            options=(tuple(export_tags or ()), strip_default_attrs),
        )


_METHODS = [name for name in vars(Overrides) if not name.startswith("__")]
# The frozen methods of these names.
stock = types.SimpleNamespace(
    **{name: getattr(frozen.Estimator, name) for name in _METHODS}
)


def patch(_module: types.ModuleType) -> None:
    """Set the methods of `Overrides` on the frozen Estimator, and name its exports."""
    for name in _METHODS:
        method = functools.wraps(getattr(stock, name))(getattr(Overrides, name))
        setattr(frozen.Estimator, name, method)
    exports.patch_names()
