"""Evaluations and predictions with graphs that the Estimator keeps.

The frozen Estimator calls input_fn and model_fn in one new graph at every call. With
the option `reuse_graphs`, input_fn is still called in a new graph, which runs in a
session of its own: its data, tables, queues and hooks are as ever. Its batches are fed
to the graph of the model, which `reuse.cache` keeps with its session.

The frozen method calls input_fn in either case. It ends there if a kept graph of the
model can serve the call, and else continues in the graph of the inputs, as ever.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any, cast

import tensorflow as tf
from tensorflow.python.training import evaluation
from tensorflow_estimator.python.estimator import estimator as frozen
from tensorflow_estimator.python.estimator import util

from estimator_runtime.estimator.evaluation import stop_hooks
from estimator_runtime.estimator.reuse import in_memory
from estimator_runtime.estimator.reuse.cache import GraphCache, IsKept
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
    stock: Callable[[Any, Any], Any],
    input_fn: Callable[..., Any],
    steps: int | None,
    checkpoint: str,
    name: str | None,
) -> Any:
    """Evaluate with a kept graph of the model, or else by the frozen method.

    `stock` is that method; it takes an input_fn and hooks.
    """
    with contextlib.ExitStack() as until_done:
        call = _Call(estimator, cache, _EVAL, input_fn, checkpoint, until_done)
        try:
            return stock(call.input_fn, [call])
        except IsKept as error:
            kept = error.kept
        feeding = _FeedHook(kept)
        hooks = [*estimator._convert_eval_steps_to_hooks(steps), *stop_hooks()]
        with call.in_graph():
            # No checkpoint is restored into the graph of the inputs: it has no
            # variables.
            evaluation._evaluate_once(
                checkpoint_path=None,
                master=estimator._config.evaluation_master,
                scaffold=_scaffold_of_inputs(),
                eval_ops=tf.group(*kept.batch),
                hooks=[*call.hooks, feeding, *hooks],
                config=estimator._session_config,
            )
            output_dir = estimator.eval_dir(name)
            step = feeding.results[_GLOBAL_STEP]
            frozen._write_dict_to_summary(output_dir, feeding.results, step)
            frozen._write_checkpoint_path_to_summary(output_dir, checkpoint, step)
        return feeding.results


def _build_evaluation(
    estimator: Any, receive: Callable[[], Any], checkpoint: str
) -> Outputs:
    """Add what an evaluation runs to the default graph."""
    scaffold, update_op, eval_dict, hooks = estimator._evaluate_build_graph(
        receive, [], checkpoint
    )
    if hooks:
        raise CannotReuse("its EstimatorSpec has evaluation_hooks")
    return Outputs(scaffold=scaffold, results=eval_dict, update=update_op)


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
    stock: Callable[[Any, Any], Iterator[Any]],
    input_fn: Callable[..., Any],
    predict_keys: Any,
    checkpoint: str,
    yield_single_examples: bool,
) -> Iterator[Any]:
    """Predict with a kept graph of the model, or else by the frozen method.

    `stock` is that method; it takes an input_fn and hooks.
    """
    rows = functools.partial(_rows, estimator, yield_single_examples)

    def rows_of(kept: _KeptModel) -> Callable[[Any], Iterator[Any]]:
        wanted = estimator._extract_keys(kept.session.outputs.results, predict_keys)
        names = list(wanted) if predict_keys else None
        return lambda batch: rows(kept.session.results(batch, names))

    # The session of a kept model outlives that of the inputs, which is entered later.
    with contextlib.ExitStack() as until_done:
        call = _Call(estimator, cache, _PREDICT, input_fn, checkpoint, until_done)
        try:
            if (given := in_memory.of_function(input_fn)) is not None:
                call.try_in_memory(given)
            results = stock(call.input_fn, [call])
            first = list(itertools.islice(results, 1))
        except IsKept as error:
            kept = error.kept
        else:
            yield from first
            yield from results
            return
        kept_rows = rows_of(kept)  # before there is a session to close
        if call.in_memory is not None:
            for batch in call.in_memory.batches(kept.batch):
                yield from kept_rows(batch)
            return
        with call.in_graph():
            estimator._validate_features_in_predict_input(call.features)
            creator = tf1.train.ChiefSessionCreator(
                _scaffold_of_inputs(), config=estimator._session_config
            )
            session = tf1.train.MonitoredSession(creator, hooks=call.hooks)
        with session:
            while not session.should_stop():
                yield from kept_rows(session.run(kept.batch))


def _rows(estimator: Any, yield_single_examples: bool, results: Any) -> Iterator[Any]:
    """Yield what `predict` does for the predictions of a batch."""
    if not yield_single_examples:
        yield results
    elif not isinstance(results, dict):
        yield from results
    else:
        for i in range(estimator._extract_batch_length(results)):
            yield {key: value[i] for key, value in results.items()}


def _build_prediction(
    estimator: Any, receive: Callable[[], Any], checkpoint: str
) -> Outputs:
    """Add what a prediction runs to the default graph, as `predict` does."""
    tf1.random.set_random_seed(estimator._config.tf_random_seed)
    estimator._create_and_assert_global_step(tf1.get_default_graph())
    features, _ = receive()
    spec = estimator._call_model_fn(features, None, _PREDICT, estimator.config)
    if spec.prediction_hooks:
        raise CannotReuse("its EstimatorSpec has prediction_hooks")
    return Outputs(scaffold=spec.scaffold, results=spec.predictions)


@dataclasses.dataclass(frozen=True)
class _KeptModel:
    """A kept model that serves a call.

    Attributes:
        session: Its session, which holds the checkpoint of the call.
        batch: The tensors of a batch that the model needs, in the graph of the inputs.
    """

    session: ModelSession
    batch: list[tf.Tensor]


class _Call(tf.estimator.SessionRunHook):
    """A call of `evaluate` or `predict`.

    The frozen method calls `input_fn`, which ends the method if a kept model can serve
    the call. If not, the method continues, and this hook stands for those of the
    inputs.

    Args:
        estimator: The Estimator.
        cache: Its cache.
        mode: EVAL or PREDICT.
        input_fn: That of the program.
        checkpoint: The checkpoint that the call reads.
        until_done: Gives the session of the model back when it is closed.

    Attributes:
        features: What the inputs have for the model.
        hooks: The hooks of the inputs.
        in_memory: The rows, if they are in memory and a kept model serves the call.
    """

    def __init__(
        self,
        estimator: Any,
        cache: GraphCache,
        mode: str,
        input_fn: Callable[..., Any],
        checkpoint: str,
        until_done: contextlib.ExitStack,
    ) -> None:
        self._estimator, self._cache, self._mode = estimator, cache, mode
        self._input_fn, self._checkpoint = input_fn, checkpoint
        self._until_done = until_done
        self._graph: tf.Graph | None = None
        self.features: Any = None
        self.hooks: list[tf.estimator.SessionRunHook] = []
        self.in_memory: in_memory.Rows | None = None

    def input_fn(self) -> tuple[Any, Any]:
        """Return the features and labels of the program's input_fn.

        Raises:
            IsKept: If a kept model serves the call.
        """
        self._graph = tf1.get_default_graph()
        self._uses_before = self._uses_of_global_step(self._graph)
        result = self._estimator._call_input_fn(self._input_fn, self._mode)
        is_prediction = self._mode == _PREDICT
        given = in_memory.of_dataset(result) if is_prediction else None
        if given is not None:
            self.try_in_memory(given)
        with tf.device(None):  # only input_fn itself is called for the CPU
            self.features, labels, self.hooks = util.parse_input_fn_result(result)
        if given is None:
            self._try(self.features, None if is_prediction else labels)
        return self.features, labels

    def try_in_memory(self, rows: in_memory.Rows) -> None:
        """Raise IsKept if a kept model can serve a call with such rows."""
        self.in_memory = rows
        self._try(rows.features, None)
        self.in_memory = None

    @contextlib.contextmanager
    def in_graph(self) -> Iterator[None]:
        """Make the graph of the inputs the default graph."""
        with graph_mode(), cast(tf.Graph, self._graph).as_default():
            yield

    def begin(self) -> None:
        """Call the hooks of the inputs."""
        for hook in self.hooks:
            hook.begin()

    def after_create_session(
        self, session: tf.compat.v1.Session, coord: tf.train.Coordinator
    ) -> None:
        """Call the hooks of the inputs."""
        for hook in self.hooks:
            hook.after_create_session(session, coord)

    def _try(self, features: Any, labels: Any) -> None:
        """Raise IsKept if a kept model can serve the call; else log why none can."""
        try:
            if self._graph is not None:
                self._check_graph(self._graph)
            inputs = Inputs(self._graph, features, labels)
            model = self._model(inputs)
            session = self._until_done.enter_context(model.session(self._checkpoint))
        except CannotReuse as reason:
            self._cache.log_refusal(_NAMES[self._mode], reason)
        else:
            raise IsKept(_KeptModel(session, model.used_of(inputs.tensors)))

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

    def _model(self, inputs: Inputs) -> Model:
        estimator, checkpoint = self._estimator, self._checkpoint

        def make() -> Model:
            build = functools.partial(
                _BUILDERS[self._mode], estimator, checkpoint=checkpoint
            )
            return Model(inputs, build, estimator._session_config)

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
