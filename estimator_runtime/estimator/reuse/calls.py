"""Evaluations and predictions with graphs that the Estimator keeps.

The frozen Estimator calls input_fn and model_fn in one new graph at every call. With
the option `reuse_graphs`, input_fn is still called in a new graph, which runs in a
session of its own: its data, tables, queues and hooks are as ever. Its batches are fed
to the graph of the model, which `reuse.cache` keeps with its session.

A call that cannot do this continues in the graph in which input_fn was called, just as
the frozen Estimator would. The functions here follow those of the frozen package line
by line, as it does not change any more.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.training import evaluation
from tensorflow_estimator.python.estimator import estimator as frozen
from tensorflow_estimator.python.estimator import util

from estimator_runtime.estimator.evaluation import stop_hooks
from estimator_runtime.estimator.reuse import in_memory
from estimator_runtime.estimator.reuse.cache import GraphCache
from estimator_runtime.estimator.reuse.inputs import CannotReuse, Inputs
from estimator_runtime.estimator.reuse.keys import model_key
from estimator_runtime.estimator.reuse.model import Model, ModelSession, Outputs
from estimator_runtime.tf_internals import graphs
from estimator_runtime.tf_internals.sessions import graph_mode

tf1 = tf.compat.v1
_EVAL, _PREDICT = frozen.ModeKeys.EVAL, frozen.ModeKeys.PREDICT
_GLOBAL_STEP = tf1.GraphKeys.GLOBAL_STEP
# Collections that belong to the inputs alone, and those of the global step.
_COLLECTIONS_OF_INPUTS = {
    _GLOBAL_STEP,
    tf1.GraphKeys.ASSET_FILEPATHS,
    tf1.GraphKeys.COND_CONTEXT,
    tf1.GraphKeys.GLOBAL_VARIABLES,
    tf1.GraphKeys.LOCAL_VARIABLES,
    tf1.GraphKeys.QUEUE_RUNNERS,
    tf1.GraphKeys.SUMMARIES,
    tf1.GraphKeys.TABLE_INITIALIZERS,
    tf1.GraphKeys.WHILE_CONTEXT,
    graphs.ITERATORS,
}


def obstacles(
    hooks: Any, checkpoint: str | None, master: str, strategy: Any = None
) -> dict[str, object]:
    """Return the reasons for which a call needs its own graph, and whether they apply.

    Args:
        hooks: Hooks that the caller gives.
        checkpoint: The checkpoint that the call reads, or None.
        master: Session target of the call.
        strategy: Strategy of the call, or None.
    """
    return {
        "it is given hooks": hooks,
        f"it runs on {master}": master,
        "it has a strategy": strategy or tf.distribute.has_strategy(),
        "there is no checkpoint": not checkpoint,
    }


def evaluate(
    estimator: Any,
    cache: GraphCache,
    input_fn: Callable[..., Any],
    steps: int | None,
    checkpoint: str,
    name: str | None,
) -> Any:
    """Do what `_actual_eval` does, with a kept graph of the model if possible."""
    with (
        graph_mode(),
        tf.Graph().as_default() as graph,
        contextlib.ExitStack() as until_done,
    ):
        hooks = estimator._convert_eval_steps_to_hooks(steps)
        call = _Call(estimator, cache, _EVAL, graph)
        features, labels, input_hooks = (
            estimator._get_features_and_labels_from_input_fn(input_fn, _EVAL)
        )
        output_dir = estimator.eval_dir(name)
        kept = call.kept(features, labels, checkpoint, until_done)
        if kept is None:
            built = _evaluate_normally(estimator, features, labels, input_hooks, hooks)
            return estimator._evaluate_run(checkpoint, *built, output_dir)
        feeding = _FeedHook(kept)
        # No checkpoint is restored into the graph of the inputs: it has no variables.
        evaluation._evaluate_once(
            checkpoint_path=None,
            master=estimator._config.evaluation_master,
            scaffold=_scaffold_of_inputs(),
            eval_ops=tf.group(*kept.batch),
            hooks=[*input_hooks, feeding, *hooks, *stop_hooks()],
            config=estimator._session_config,
        )
        step = feeding.results[_GLOBAL_STEP]
        frozen._write_dict_to_summary(output_dir, feeding.results, step)
        frozen._write_checkpoint_path_to_summary(output_dir, checkpoint, step)
        return feeding.results


def _call_model_fn(estimator: Any, features: Any, labels: Any) -> tuple[Any, ...]:
    """Add the model to the default graph, as `_evaluate_build_graph` does.

    Returns:
        The Scaffold, hooks of the model, the op that updates the metrics, and their
        values.
    """
    scaffold, hooks, _, update_op, eval_dict = estimator._call_model_fn_eval(
        lambda: (features, labels), estimator.config
    )
    if _GLOBAL_STEP in eval_dict:
        raise ValueError(
            "Metric with name `global_step` is not allowed, because Estimator "
            "already defines a default metric with the same name."
        )
    eval_dict[_GLOBAL_STEP] = tf1.train.get_global_step()
    return scaffold, hooks, update_op, eval_dict


def _build_evaluation(estimator: Any, features: Any, labels: Any) -> Outputs:
    scaffold, hooks, update_op, eval_dict = _call_model_fn(estimator, features, labels)
    if hooks:
        raise CannotReuse("its EstimatorSpec has evaluation_hooks")
    return Outputs(scaffold=scaffold, results=eval_dict, update=update_op)


def _evaluate_normally(
    estimator: Any,
    features: Any,
    labels: Any,
    input_hooks: Sequence[tf.estimator.SessionRunHook],
    hooks: Sequence[tf.estimator.SessionRunHook],
) -> tuple[Any, Any, Any, Any]:
    """Continue as `_evaluate_build_graph` does after it has called input_fn."""
    scaffold, more, update_op, eval_dict = _call_model_fn(estimator, features, labels)
    if scaffold and scaffold.local_init_op:
        evaluation._get_or_create_eval_step()
        scaffold = tf1.train.Scaffold(
            local_init_op=tf.group(
                scaffold.local_init_op, tf1.train.Scaffold.default_local_init_op()
            ),
            copy_from_scaffold=scaffold,
        )
    return scaffold, update_op, eval_dict, [*input_hooks, *hooks, *(more or [])]


class _FeedHook(tf.estimator.SessionRunHook):
    """Feeds each batch that the session of the inputs yields to a model.

    Args:
        kept: The model.

    Attributes:
        results: The results of the evaluation, once the data has ended.
    """

    def __init__(self, kept: _KeptModel) -> None:
        self._kept = kept
        self.results: dict[str, Any] = {}

    def before_run(
        self, run_context: tf.estimator.SessionRunContext
    ) -> tf.estimator.SessionRunArgs:
        """Ask for the batch."""
        return tf.estimator.SessionRunArgs(self._kept.batch)

    def after_run(
        self,
        run_context: tf.estimator.SessionRunContext,
        run_values: tf.compat.v1.train.SessionRunValues,
    ) -> None:
        """Feed the batch."""
        self._kept.session.update(run_values.results)

    def end(self, session: tf.compat.v1.Session) -> None:
        """Fetch the results, as the FinalOpsHook of an evaluation does."""
        self.results = self._kept.session.results()


def predict(
    estimator: Any,
    cache: GraphCache,
    input_fn: Callable[..., Any],
    predict_keys: Any,
    checkpoint: str,
    yield_single_examples: bool,
) -> Iterator[Any]:
    """Do what `predict` does, with a kept graph of the model if possible."""
    rows = functools.partial(_rows, estimator, yield_single_examples)

    def rows_of(kept: _KeptModel) -> Callable[[Any], Iterator[Any]]:
        wanted = estimator._extract_keys(kept.session.outputs.results, predict_keys)
        names = list(wanted) if predict_keys else None
        return lambda batch: rows(kept.session.results(batch, names))

    # The session of a kept model outlives that of the inputs, which is entered later.
    with contextlib.ExitStack() as until_done:
        given = in_memory.of_function(input_fn)
        if given is not None:
            call = _Call(estimator, cache, _PREDICT)
            kept = call.kept(given.features, None, checkpoint, until_done)
            if kept is not None:
                yield from _all_rows(given, kept, rows_of(kept))
                return
        # The default graph until the last result, as ever, if the model is not kept.
        # Else until the first, so that another prediction may begin before the last.
        in_graph = until_done.enter_context(contextlib.ExitStack())
        in_graph.enter_context(graph_mode())
        graph = in_graph.enter_context(tf.Graph().as_default())
        call = _Call(estimator, cache, _PREDICT, graph)
        result = estimator._call_input_fn(input_fn, _PREDICT)
        given = in_memory.of_dataset(result)
        if given is not None:
            kept = call.kept(given.features, None, checkpoint, until_done)
            if kept is not None:
                in_graph.close()
                yield from _all_rows(given, kept, rows_of(kept))
                return
        features, _, hooks = util.parse_input_fn_result(result)
        estimator._validate_features_in_predict_input(features)
        kept = None
        if given is None:
            kept = call.kept(features, None, checkpoint, until_done)
        if kept is None:
            predictions, session = _predict_normally(
                estimator, features, hooks, predict_keys, checkpoint
            )
            yield from _read(session, predictions, rows)
            return
        kept_rows = rows_of(kept)  # before there is a session to close
        session = _session_of_inputs(estimator, hooks)
        in_graph.close()
        yield from _read(session, kept.batch, kept_rows)


def _all_rows(
    given: in_memory.Rows, kept: _KeptModel, rows: Callable[[Any], Iterator[Any]]
) -> Iterator[Any]:
    for batch in given.batches(kept.batch):
        yield from rows(batch)


def _session_of_inputs(
    estimator: Any, hooks: Sequence[tf.estimator.SessionRunHook]
) -> tf.compat.v1.train.MonitoredSession:
    creator = tf1.train.ChiefSessionCreator(
        _scaffold_of_inputs(), config=estimator._session_config
    )
    return tf1.train.MonitoredSession(creator, hooks=hooks)


def _read(
    session: tf.compat.v1.train.MonitoredSession,
    fetches: Any,
    rows: Callable[[Any], Iterator[Any]],
) -> Iterator[Any]:
    with session:
        while not session.should_stop():
            yield from rows(session.run(fetches))


def _rows(estimator: Any, yield_single_examples: bool, results: Any) -> Iterator[Any]:
    """Yield what `predict` does for the predictions of a batch."""
    if not yield_single_examples:
        yield results
    elif not isinstance(results, dict):
        yield from results
    else:
        for i in range(estimator._extract_batch_length(results)):
            yield {key: value[i] for key, value in results.items()}


def _build_prediction(estimator: Any, features: Any, _labels: Any) -> Outputs:
    """Add the model to the default graph."""
    spec = estimator._call_model_fn(features, None, _PREDICT, estimator.config)
    if spec.prediction_hooks:
        raise CannotReuse("its EstimatorSpec has prediction_hooks")
    return Outputs(scaffold=spec.scaffold, results=spec.predictions)


def _predict_normally(
    estimator: Any,
    features: Any,
    input_hooks: Sequence[tf.estimator.SessionRunHook],
    predict_keys: Any,
    checkpoint: str,
) -> tuple[Any, tf.compat.v1.train.MonitoredSession]:
    """Continue as `predict` does after it has called input_fn."""
    spec = estimator._call_model_fn(features, None, _PREDICT, estimator.config)
    predictions = estimator._extract_keys(spec.predictions, predict_keys)
    creator = tf1.train.ChiefSessionCreator(
        checkpoint_filename_with_path=checkpoint,
        master=estimator._config.master,
        scaffold=spec.scaffold,
        config=estimator._session_config,
    )
    hooks = [*input_hooks, *(spec.prediction_hooks or [])]
    return predictions, tf1.train.MonitoredSession(creator, hooks=hooks)


def _begin(estimator: Any, graph: tf.Graph) -> None:
    """Begin a graph as `evaluate` and `predict` do."""
    tf1.random.set_random_seed(estimator._config.tf_random_seed)
    estimator._create_and_assert_global_step(graph)


@dataclasses.dataclass(frozen=True)
class _KeptModel:
    """A kept model that serves a call.

    Attributes:
        session: Its session, which holds the checkpoint of the call.
        batch: The tensors of a batch that the model needs, in the graph of the inputs.
    """

    session: ModelSession
    batch: list[tf.Tensor]


class _Call:
    """A call of `evaluate` or `predict`.

    Args:
        estimator: The Estimator.
        cache: Its cache.
        mode: EVAL or PREDICT.
        graph: A new graph in which input_fn is called, which is the default graph; None
            if the inputs need none.
    """

    def __init__(
        self,
        estimator: Any,
        cache: GraphCache,
        mode: str,
        graph: tf.Graph | None = None,
    ) -> None:
        self._estimator, self._cache, self._mode = estimator, cache, mode
        self._graph = graph
        if graph is not None:
            _begin(estimator, graph)
            self._uses_before = self._uses_of_global_step(graph)

    def kept(
        self,
        features: Any,
        labels: Any,
        checkpoint: str,
        until_done: contextlib.ExitStack,
    ) -> _KeptModel | None:
        """Return a kept model for what input_fn has returned.

        Args:
            features: What input_fn has returned.
            labels: The same.
            checkpoint: The checkpoint that the call reads.
            until_done: Gives the session back when it is closed.

        Returns:
            None if the call needs a graph of its own. The log says why.
        """
        try:
            if self._graph is not None:
                self._check_graph(self._graph)
            inputs = Inputs(self._graph, features, labels)
            model = self._model(inputs, checkpoint)
            session = until_done.enter_context(model.session(checkpoint))
        except CannotReuse as reason:
            self._cache.log_refusal(_NAMES[self._mode], reason)
            return None
        return _KeptModel(session, model.used_of(inputs.tensors))

    def _check_graph(self, graph: tf.Graph) -> None:
        """Raise CannotReuse if input_fn has added something that is for the model."""
        if graph.seed != self._estimator._config.tf_random_seed:
            raise CannotReuse(
                "input_fn sets a seed, which ops of model_fn would use too"
            )
        if graphs.has_learning_phase(graph):
            raise CannotReuse("input_fn sets the learning phase of Keras")
        if len(graph.get_collection(tf1.GraphKeys.GLOBAL_VARIABLES)) > 1:
            raise CannotReuse("input_fn makes variables")
        if self._uses_of_global_step(graph) != self._uses_before:
            raise CannotReuse("input_fn uses the global step")
        for key in graph.get_all_collection_keys():
            if key not in _COLLECTIONS_OF_INPUTS and graph.get_collection(key):
                raise CannotReuse(
                    f"input_fn adds to the collection {key!r}, which model_fn may read"
                )

    @staticmethod
    def _uses_of_global_step(graph: tf.Graph) -> int:
        step = tf1.train.get_global_step(graph)
        return sum(len(tensor.consumers()) for tensor in step.op.outputs)

    def _model(self, inputs: Inputs, checkpoint: str) -> Model:
        estimator, build = self._estimator, _BUILDERS[self._mode]

        def make() -> Model:
            return Model(
                inputs,
                functools.partial(_begin, estimator),
                functools.partial(build, estimator),
                estimator._session_config,
            )

        shapes = self._cache.shapes(checkpoint)
        key = (self._mode, inputs.key, shapes, model_key(estimator))
        return self._cache.model(key, make)


_NAMES = {_EVAL: "evaluate", _PREDICT: "predict"}
_BUILDERS = {_EVAL: _build_evaluation, _PREDICT: _build_prediction}


def _scaffold_of_inputs() -> tf.compat.v1.train.Scaffold:
    """Return a Scaffold for a graph of inputs.

    Its variables are local ones, which need no Saver and no look whether each is
    initialized. TensorFlow's ops for these take half of the time of a short call.
    """
    return tf1.train.Scaffold(
        ready_op=tf.constant([], tf.string),
        ready_for_local_init_op=tf.constant([], tf.string),
        saver=tf1.train.Saver([], allow_empty=True),
    )
