"""A patch that makes Estimators evaluate and predict with graphs that they keep.

The frozen Estimator calls input_fn and model_fn in one new graph at every call. With
the option `reuse_graphs`, input_fn is still called in a new graph, which runs in a
session of its own: its data, tables, queues and hooks are as ever. Its batches are fed
to the graph of the model, which `reuse.cache` keeps with its session.

A call that cannot do this goes on in the graph in which input_fn was called, just as
the frozen Estimator would. The functions here follow those of the frozen package line
by line, as it does not change any more.
"""

import contextlib
import functools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import tensorflow as tf
from tensorflow.python.training import evaluation
from tensorflow_estimator.python.estimator import estimator as frozen_estimator

from estimator_runtime.config.options import TrainingOptions
from estimator_runtime.estimator.reuse.cache import GraphCache, by_value
from estimator_runtime.estimator.reuse.inputs import CannotReuse, Inputs
from estimator_runtime.estimator.reuse.model import Model, ModelSession, Outputs
from estimator_runtime.patching import patch
from estimator_runtime.tf_internals import internals

tf1 = tf.compat.v1
_EVAL, _PREDICT = tf.estimator.ModeKeys.EVAL, tf.estimator.ModeKeys.PREDICT
_CACHE = "_estimator_runtime_graph_cache"
# What the functions here call, or do the work of.
_MEMBERS = (
    "_actual_eval",
    "_call_input_fn",
    "_call_model_fn",
    "_call_model_fn_eval",
    "_create_and_assert_global_step",
    "_create_global_step",
    "_evaluate_build_graph",
    "_evaluate_run",
    "_extract_batch_length",
    "_extract_keys",
    "_get_features_and_labels_from_input_fn",
    "_get_features_from_input_fn",
    "_maybe_warm_start",
    "_validate_features_in_predict_input",
    "evaluate",
    "predict",
)
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
    internals.ITERATORS,
}


def patch_estimator(_module: ModuleType) -> None:
    """Patch Estimators, so that those with `reuse_graphs` use the graphs they keep."""
    cls = frozen_estimator.Estimator
    cls._actual_eval = _evaluating(cls._actual_eval)
    cls._evaluate_run = _feeding(cls._evaluate_run)
    cls.predict = _predicting(cls.predict)


def _evaluating(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `_actual_eval`."""
    bind = patch.binder(original)

    @functools.wraps(original)
    def actual_eval(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = bind(self, *args, **kwargs)
        call.apply_defaults()
        given = dict(call.arguments)
        found = _cache_and_checkpoint(
            self, "evaluate", given, self._config.evaluation_master
        )
        if found is None:
            return original(*call.args, **call.kwargs)
        cache, path = found
        with internals.graph_mode():
            hooks = self._convert_eval_steps_to_hooks(given["steps"])
            with tf.Graph().as_default() as graph:
                return _evaluate(
                    self, cache, graph, given["input_fn"], hooks, path, given["name"]
                )

    return actual_eval


def _evaluate(
    self: Any,
    cache: GraphCache,
    graph: tf.Graph,
    input_fn: Callable[..., Any],
    hooks: Sequence[tf.estimator.SessionRunHook],
    checkpoint_path: str,
    name: str | None,
) -> Any:
    """Evaluate in a graph that is the default graph, and new."""
    _begin(self, graph)
    used_before = _uses_of_global_step(graph)
    features, labels, input_hooks = self._get_features_and_labels_from_input_fn(
        input_fn, _EVAL
    )
    with contextlib.ExitStack() as session_until_done:
        try:
            _check_inputs(self, graph, used_before)
            inputs = Inputs(graph, features, labels)
            model = _model(
                self, cache, _EVAL, inputs, checkpoint_path, _build_evaluation
            )
            session = session_until_done.enter_context(_session(model, checkpoint_path))
        except CannotReuse as reason:
            cache.log_refusal("evaluate", reason)
            scaffold, update_op, eval_dict, all_hooks = _evaluate_normally(
                self, features, labels, input_hooks, hooks, checkpoint_path
            )
        else:
            scaffold, eval_dict = _scaffold_of_inputs(), {}
            batch = model.used_of(inputs.tensors)
            update_op = tf.group(*batch)
            all_hooks = [*input_hooks, _FeedHook(batch, session), *hooks]
        return self._evaluate_run(
            checkpoint_path=checkpoint_path,
            scaffold=scaffold,
            update_op=update_op,
            eval_dict=eval_dict,
            all_hooks=all_hooks,
            output_dir=self.eval_dir(name),
        )


def _build_evaluation(self: Any, features: Any, labels: Any) -> Outputs:
    """Add the model to the default graph, as `_call_model_fn_eval` does."""
    spec = self._call_model_fn(features, labels, _EVAL, self.config)
    if spec.evaluation_hooks:
        raise CannotReuse("its EstimatorSpec has evaluation_hooks")
    metrics = frozen_estimator._verify_and_create_loss_metric(
        spec.eval_metric_ops, spec.loss
    )
    update_op, eval_dict = frozen_estimator._extract_metric_update_ops(metrics)
    if _GLOBAL_STEP in eval_dict:
        raise CannotReuse("it has a metric of the name global_step")
    eval_dict[_GLOBAL_STEP] = tf1.train.get_global_step()
    return Outputs(scaffold=spec.scaffold, results=eval_dict, update=update_op)


def _evaluate_normally(
    self: Any,
    features: Any,
    labels: Any,
    input_hooks: Sequence[tf.estimator.SessionRunHook],
    hooks: Sequence[tf.estimator.SessionRunHook],
    checkpoint_path: str,
) -> tuple[Any, Any, Any, Any]:
    """Go on as `_evaluate_build_graph` does after it has called input_fn."""
    spec = self._call_model_fn(features, labels, _EVAL, self.config)
    metrics = frozen_estimator._verify_and_create_loss_metric(
        spec.eval_metric_ops, spec.loss
    )
    update_op, eval_dict = frozen_estimator._extract_metric_update_ops(metrics)
    self._maybe_warm_start(checkpoint_path)
    if _GLOBAL_STEP in eval_dict:
        raise ValueError(
            "Metric with name `global_step` is not allowed, because Estimator "
            "already defines a default metric with the same name."
        )
    eval_dict[_GLOBAL_STEP] = tf1.train.get_global_step()
    all_hooks = [*input_hooks, *hooks, *(spec.evaluation_hooks or [])]
    scaffold = spec.scaffold
    if scaffold and scaffold.local_init_op:
        evaluation._get_or_create_eval_step()
        scaffold = tf1.train.Scaffold(
            local_init_op=tf.group(
                scaffold.local_init_op, tf1.train.Scaffold.default_local_init_op()
            ),
            copy_from_scaffold=scaffold,
        )
    return scaffold, update_op, eval_dict, all_hooks


class _FeedHook(tf.estimator.SessionRunHook):
    """Feeds each batch that the session of the inputs yields to a model.

    Args:
        tensors: The tensors of a batch.
        session: The session of the model.

    Attributes:
        results: The results of the evaluation, once the data has ended.
    """

    def __init__(self, tensors: Sequence[tf.Tensor], session: ModelSession) -> None:
        self._tensors = list(tensors)
        self._session = session
        self.results: dict[str, Any] = {}

    def before_run(
        self, run_context: tf.estimator.SessionRunContext
    ) -> tf.estimator.SessionRunArgs:
        """Ask for the batch."""
        return tf.estimator.SessionRunArgs(self._tensors)

    def after_run(
        self,
        run_context: tf.estimator.SessionRunContext,
        run_values: tf.compat.v1.train.SessionRunValues,
    ) -> None:
        """Feed the batch."""
        self._session.update(run_values.results)

    def end(self, session: tf.compat.v1.Session) -> None:
        """Fetch the results, as the FinalOpsHook of an evaluation does."""
        self.results = self._session.results()


def _feeding(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `_evaluate_run`, whose results come from the model that is fed."""
    bind = patch.binder(original)

    @functools.wraps(original)
    def evaluate_run(*args: Any, **kwargs: Any) -> Any:
        call = bind(*args, **kwargs)
        given = call.arguments
        feeds = [each for each in given["all_hooks"] or () if type(each) is _FeedHook]
        if not feeds:
            return original(*call.args, **call.kwargs)
        self = given["self"]
        # No checkpoint is restored into the graph of the inputs: it has no variables.
        evaluation._evaluate_once(
            checkpoint_path=None,
            master=self._config.evaluation_master,
            scaffold=given["scaffold"],
            eval_ops=given["update_op"],
            hooks=given["all_hooks"],
            config=self._session_config,
        )
        results = feeds[0].results
        step = results[_GLOBAL_STEP]
        frozen_estimator._write_dict_to_summary(
            output_dir=given["output_dir"], dictionary=results, current_global_step=step
        )
        frozen_estimator._write_checkpoint_path_to_summary(
            output_dir=given["output_dir"],
            checkpoint_path=given["checkpoint_path"],
            current_global_step=step,
        )
        return results

    return evaluate_run


def _predicting(original: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    """Wrap `predict`."""
    bind = patch.binder(original)

    @functools.wraps(original)
    def predict(self: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        call = bind(self, *args, **kwargs)
        call.apply_defaults()
        given = dict(call.arguments)
        found = _cache_and_checkpoint(self, "predict", given, self._config.master)
        if found is None:
            yield from original(*call.args, **call.kwargs)
            return
        cache, path = found
        yield from _predict(
            self,
            cache,
            given["input_fn"],
            given["predict_keys"],
            path,
            given["yield_single_examples"],
        )

    return predict


def _predict(
    self: Any,
    cache: GraphCache,
    input_fn: Callable[..., Any],
    predict_keys: Any,
    checkpoint_path: str,
    yield_single_examples: bool,
) -> Iterator[Any]:
    with contextlib.ExitStack() as until_done:
        with internals.graph_mode(), tf.Graph().as_default() as graph:
            _begin(self, graph)
            used_before = _uses_of_global_step(graph)
            features, hooks = self._get_features_from_input_fn(input_fn, _PREDICT)
            try:
                _check_inputs(self, graph, used_before)
                inputs = Inputs(graph, features, None)
                model = _model(
                    self, cache, _PREDICT, inputs, checkpoint_path, _build_prediction
                )
                # Outlives the session of the inputs, which is entered later.
                kept = until_done.enter_context(_session(model, checkpoint_path))
            except CannotReuse as reason:
                cache.log_refusal("predict", reason)
                predictions, session = _predict_normally(
                    self, features, hooks, predict_keys, checkpoint_path
                )
                # The default graph is this one until the last result, as ever.
                with session:
                    while not session.should_stop():
                        results = session.run(predictions)
                        yield from _rows(self, results, yield_single_examples)
                return
            wanted = self._extract_keys(model.outputs.results, predict_keys)
            names = list(wanted) if predict_keys else None
            creator = tf1.train.ChiefSessionCreator(
                _scaffold_of_inputs(), config=self._session_config
            )
            session = tf1.train.MonitoredSession(creator, hooks=hooks)
        # Not the default graph any more, so that another prediction may begin before
        # the last result of this one.
        with session:
            while not session.should_stop():
                batch = session.run(model.used_of(inputs.tensors))
                results = kept.results(batch, names)
                yield from _rows(self, results, yield_single_examples)


def _rows(self: Any, results: Any, yield_single_examples: bool) -> Iterator[Any]:
    """Yield what `predict` does for the predictions of a batch."""
    if not yield_single_examples:
        yield results
    elif not isinstance(results, dict):
        yield from results
    else:
        for i in range(self._extract_batch_length(results)):
            yield {key: value[i] for key, value in results.items()}


def _build_prediction(self: Any, features: Any, _labels: Any) -> Outputs:
    """Add the model to the default graph."""
    spec = self._call_model_fn(features, None, _PREDICT, self.config)
    if spec.prediction_hooks:
        raise CannotReuse("its EstimatorSpec has prediction_hooks")
    return Outputs(scaffold=spec.scaffold, results=spec.predictions)


def _predict_normally(
    self: Any,
    features: Any,
    input_hooks: Sequence[tf.estimator.SessionRunHook],
    predict_keys: Any,
    checkpoint_path: str,
) -> tuple[Any, tf.compat.v1.train.MonitoredSession]:
    """Go on as `predict` does after it has called input_fn."""
    spec = self._call_model_fn(features, None, _PREDICT, self.config)
    self._maybe_warm_start(checkpoint_path)
    predictions = self._extract_keys(spec.predictions, predict_keys)
    creator = tf1.train.ChiefSessionCreator(
        checkpoint_filename_with_path=checkpoint_path,
        master=self._config.master,
        scaffold=spec.scaffold,
        config=self._session_config,
    )
    hooks = [*input_hooks, *(spec.prediction_hooks or [])]
    return predictions, tf1.train.MonitoredSession(creator, hooks=hooks)


def cache_of(self: Any) -> GraphCache | None:
    """Return the cache of an Estimator, or None if it reuses no graphs."""
    if not TrainingOptions.of(self._config).reuse_graphs:
        return None
    return vars(self).setdefault(_CACHE, GraphCache())


def own_member(self: Any, names: Sequence[str]) -> str | None:
    """Return which of its members an Estimator has overridden, or None."""
    cls = type(self)
    for name in names:
        stock = getattr(frozen_estimator.Estimator, name)
        if getattr(cls, name) is not stock or name in vars(self):
            return f"{cls.__name__} has a {name} of its own"
    return None


def model_key(self: Any) -> Hashable:
    """Return what the graph of an Estimator depends on beside its inputs."""
    return (
        by_value((self._model_fn, self._params, self._config)),
        self._config.tf_random_seed,
        self._session_config.SerializeToString(deterministic=True),
    )


def _cache_and_checkpoint(
    self: Any, call: str, given: Mapping[str, Any], master: str
) -> tuple[GraphCache, str] | None:
    """Return the cache for a call, and the path of the checkpoint that it reads.

    Args:
        self: The Estimator.
        call: "evaluate" or "predict".
        given: The arguments of the call, by name.
        master: Session target of the call.

    Returns:
        None if the call builds its own graph. The log says why.
    """
    cache = cache_of(self)
    if cache is None:
        return None
    path = given["checkpoint_path"]
    if not path:
        with internals.graph_mode():
            path = tf.train.latest_checkpoint(self._model_dir)
    reason = _obstacle(self, given["hooks"], path, master)
    if reason is None and given.get("strategy"):
        reason = "it has a strategy"
    if reason is not None:
        cache.log_refusal(call, reason)
        return None
    return cache, path


def _obstacle(self: Any, hooks: Any, checkpoint: str | None, master: str) -> str | None:
    """Return why a call builds its own graph, or None."""
    reason = own_member(self, _MEMBERS)
    if reason is not None:
        return reason
    if hooks:
        return "it is given hooks"
    if master:
        return f"it runs on {master}"
    if tf.distribute.has_strategy():
        return "it runs in the scope of a strategy"
    if not checkpoint:
        return "there is no checkpoint"
    return None


def _begin(self: Any, graph: tf.Graph) -> None:
    """Begin a graph as `evaluate` and `predict` do."""
    tf1.random.set_random_seed(self._config.tf_random_seed)
    self._create_and_assert_global_step(graph)


def _uses_of_global_step(graph: tf.Graph) -> int:
    step = tf1.train.get_global_step(graph)
    return sum(len(tensor.consumers()) for tensor in step.op.outputs)


def _check_inputs(self: Any, graph: tf.Graph, uses_of_global_step: int) -> None:
    """Check that what input_fn has added to a graph is not for the model.

    Raises:
        CannotReuse: If it is, or may be.
    """
    if graph.seed != self._config.tf_random_seed:
        raise CannotReuse("input_fn sets a seed, which ops of model_fn would use too")
    if internals.has_learning_phase(graph):
        raise CannotReuse("input_fn sets the learning phase of Keras")
    if len(graph.get_collection(tf1.GraphKeys.GLOBAL_VARIABLES)) > 1:
        raise CannotReuse("input_fn makes variables")
    if _uses_of_global_step(graph) != uses_of_global_step:
        raise CannotReuse("input_fn uses the global step")
    for key in graph.get_all_collection_keys():
        if key not in _COLLECTIONS_OF_INPUTS and graph.get_collection(key):
            raise CannotReuse(
                f"input_fn adds to the collection {key!r}, which model_fn may read"
            )


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


def _model(
    self: Any,
    cache: GraphCache,
    mode: str,
    inputs: Inputs,
    checkpoint: str,
    build: Callable[[Any, Any, Any], Outputs],
) -> Model:
    """Return the model for a call, which may be kept from another one.

    `build` adds it to the default graph: of an Estimator, features and labels.

    Raises:
        CannotReuse: If the call needs a graph of its own.
    """
    config = self._session_config
    key = (mode, inputs.key, cache.shapes(checkpoint), model_key(self))
    begin, build = functools.partial(_begin, self), functools.partial(build, self)
    return cache.model(key, lambda: Model(inputs, begin, build, config))


@contextlib.contextmanager
def _session(model: Model, checkpoint: str) -> Iterator[ModelSession]:
    """Enter `Model.session`.

    Raises:
        CannotReuse: If the checkpoint cannot be restored.
    """
    with contextlib.ExitStack() as stack:
        try:
            session = stack.enter_context(model.session(checkpoint))
        except Exception as error:
            first = (str(error).splitlines() or [""])[0]
            raise CannotReuse(
                f"the checkpoint cannot be restored into the kept graph: {first}"
            ) from error
        yield session
