"""`tf.contrib.predictor`: a model that answers one call after another.

`Estimator.predict` builds a graph and a session and restores the checkpoint at every
call. A predictor does that once and then takes about as long as its kernels: it is for
servers, and for programs that predict one row at a time.

`from_contrib_estimator` of TensorFlow 1 is missing: in TensorFlow 1 mode,
`tf.contrib.predictor` is the original, which has it.
"""

from __future__ import annotations

import contextlib
import os
import reprlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_runtime.checkpoint.checkpoint import Identity, identity
from estimator_runtime.checkpoint.store import locks
from estimator_runtime.config.paths import is_local
from estimator_runtime.errors import (
    CheckpointError,
    ConfigError,
    ConfigKeyError,
    ConfigTypeError,
    PredictorClosedError,
    PredictorInputError,
)
from estimator_runtime.tf_internals import sessions

__all__ = ["Predictor", "from_estimator", "from_saved_model"]

tf1 = tf.compat.v1
_Tensors = Mapping[str, Any]  # tf.Tensor, tf.SparseTensor or tf.RaggedTensor
# A checkpoint's path and what identifies its file. The path alone does not: a training
# that starts over writes to the same paths.
_Version = tuple[str, Identity | int | None]


class _Replica:
    """A session that holds one version of the model's values.

    Args:
        session: The session.
        call: The compiled outputs; see `_compile`.
        version: The checkpoint whose values it holds; None for a SavedModel.

    Attributes:
        calls: The number of calls that are using the session.
        is_retired: Whether the predictor has stopped giving it calls.
    """

    def __init__(
        self,
        session: tf.compat.v1.Session,
        call: Callable[..., Any] | None,
        version: _Version | None = None,
    ) -> None:
        self.session = session
        self.call = call
        self.version = version
        self.calls = 0
        self.is_retired = False


class Predictor:
    """A model as a function from a dict of inputs to a dict of outputs.

    `from_estimator` and `from_saved_model` make predictors. Any number of threads may
    call one at a time. Use it in a `with` statement, or call `close()`.

    Attributes:
        graph: The `tf.Graph` of the model.
        feed_tensors: The input tensors by key.
        fetch_tensors: The output tensors by key.
    """

    def __init__(
        self,
        graph: tf.Graph,
        feed_tensors: _Tensors,
        fetch_tensors: _Tensors,
        replica: _Replica,
        load_newer: Callable[[_Version | None], _Replica | None],
    ) -> None:
        self.graph = graph
        self.feed_tensors = dict(feed_tensors)
        self.fetch_tensors = dict(fetch_tensors)
        self._needed = _needed_keys(feed_tensors, fetch_tensors)
        self._replica: _Replica | None = replica
        self._load_newer = load_newer
        self._lock = threading.Lock()
        self._refresh_lock = threading.Lock()

    def __call__(self, input_dict: Mapping[str, Any]) -> dict[str, Any]:
        """Return the model's outputs for one batch of inputs.

        Args:
            input_dict: A value for each key of `feed_tensors`: anything that numpy
                converts to an array, or a `SparseTensorValue` or `RaggedTensorValue`
                for a sparse or ragged input. You may leave out, or give as None, inputs
                that have a default and those that no output depends on.

        Returns:
            The values of `fetch_tensors`, by key. The arrays belong to you.

        Raises:
            PredictorInputError: (a ValueError) If a key is unknown or missing, or if a
                value has a type or shape that its input does not accept.
            PredictorClosedError: (a RuntimeError) If the predictor is closed.
        """
        feeds = self._checked(input_dict)
        with self._used() as replica:
            if replica.call is not None and len(feeds) == len(self.feed_tensors):
                values = replica.call(*feeds.values())
                return dict(zip(self.fetch_tensors, values, strict=True))
            given = {self.feed_tensors[key]: value for key, value in feeds.items()}
            return replica.session.run(self.fetch_tensors, given)

    @property
    def session(self) -> tf.compat.v1.Session:
        """The `tf.compat.v1.Session` in use; `refresh` replaces it.

        Raises:
            PredictorClosedError: If the predictor is closed.
        """
        return self._open().session

    def refresh(self) -> bool:
        """Take over the newest checkpoint of the Estimator's model directory.

        Calls go on meanwhile: the checkpoint is restored into another session, which
        then replaces the one in use. Each call sees the values of one checkpoint only.
        Both sessions exist for that time, so the model takes up twice its memory.

        Returns:
            Whether there was another checkpoint than the one in use. False for a
            predictor of a SavedModel, which never changes.

        Raises:
            CheckpointError: If the model directory no longer has a checkpoint. After
                this or any other error, the predictor goes on with the one it has.
            PredictorClosedError: If the predictor is closed.
        """
        with self._refresh_lock:
            newer = self._load_newer(self._open().version)
            if newer is None:
                return False
            if not self._replace(newer):
                newer.session.close()
                raise _closed_error()
            return True

    def close(self) -> None:
        """Close the session, once the calls that are running have ended.

        It does not wait for them: the last one closes the session. New calls raise a
        PredictorClosedError. You may call this more than once.
        """
        self._replace(None)

    def __enter__(self) -> Predictor:
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        inputs, outputs = map(_listed, (self.feed_tensors, self.fetch_tensors))
        return f"<{type(self).__name__} from {inputs} to {outputs}>"

    def _open(self) -> _Replica:
        """Return the replica in use, or raise the error for a closed predictor."""
        replica = self._replica
        if replica is None:
            raise _closed_error()
        return replica

    @contextlib.contextmanager
    def _used(self) -> Iterator[_Replica]:
        """Keep the replica in use from being closed in this context."""
        with self._lock:
            replica = self._open()
            replica.calls += 1
        try:
            yield replica
        finally:
            with self._lock:
                replica.calls -= 1
                is_last = replica.is_retired and not replica.calls
            if is_last:
                replica.session.close()

    def _replace(self, newer: _Replica | None) -> bool:
        """Use another replica, or none, from now on.

        Returns:
            Whether that was possible: False if the predictor is closed.
        """
        with self._lock:
            older = self._replica
            if older is None:
                return False
            self._replica = newer
            older.is_retired = True
            is_idle = not older.calls
        if is_idle:
            older.session.close()
        return True

    def _checked(self, input_dict: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values to feed, in the order of `feed_tensors`."""
        unknown = input_dict.keys() - self.feed_tensors.keys()
        if unknown:
            raise PredictorInputError(
                f"input_dict has {_listed(unknown)}, which is not an input of this "
                f"predictor; its inputs: {_listed(self.feed_tensors)}"
            )
        feeds = {
            key: _converted(key, tensor, input_dict[key])
            for key, tensor in self.feed_tensors.items()
            if input_dict.get(key) is not None
        }
        missing = self._needed - feeds.keys()
        if missing:
            raise PredictorInputError(
                f"input_dict lacks {_listed(missing)}; the inputs of this predictor: "
                f"{_listed(self.feed_tensors)}"
            )
        return feeds


def from_estimator(
    estimator: Any,
    serving_input_receiver_fn: Callable[[], Any],
    output_key: str | None = None,
    graph: tf.Graph | None = None,
    config: tf.compat.v1.ConfigProto | None = None,
) -> Predictor:
    """Return a predictor that holds an Estimator's newest checkpoint.

    As `tf.contrib.predictor.from_estimator` of TensorFlow 1.15, with four differences:
    without a checkpoint it raises an error, where 1.15 predicted with random values; it
    heeds the scaffold of the model_fn, and so restores what `Estimator.predict` does;
    by default it has the Estimator's own session config; and `session` is a plain
    Session. Outputs equal those of `Estimator.predict` for the same batch, to the bit,
    if the model draws no random numbers and keeps no state from one call to the next.

    Args:
        estimator: A trained `tf.estimator.Estimator`.
        serving_input_receiver_fn: Returns the inputs of the model, as for
            `export_saved_model`. It is called once.
        output_key: Which of the `export_outputs` of the model_fn to compute. None takes
            "serving_default". For an Estimator of TensorFlow's it is a classification
            or regression, whose input is a batch of serialized `tf.train.Example`; with
            "predict" it is everything that `Estimator.predict` returns, and any inputs.
        graph: The graph to build the model in; None makes a new one.
        config: The config of the session; None takes that of the Estimator's RunConfig.

    Raises:
        CheckpointError: (a RuntimeError) If the model directory has no checkpoint.
        ConfigKeyError: (a KeyError) If the model has no such output.
        ConfigError: (a ValueError) If the output does not go with the inputs.
        ConfigTypeError: (a TypeError) If `estimator` is no Estimator.
    """
    if not all(hasattr(estimator, name) for name in ("model_fn", "model_dir")):
        raise ConfigTypeError(
            f"from_estimator: estimator is {estimator!r} ({type(estimator).__name__}); "
            "give a tf.estimator.Estimator"
        )
    model_dir = os.fsdecode(estimator.model_dir)
    _newest_checkpoint(model_dir)  # before the graph, which may take long to build
    graph = tf.Graph() if graph is None else graph
    with graph.as_default():
        tf1.set_random_seed(estimator.config.tf_random_seed)
        tf1.train.get_or_create_global_step()
        receiver = serving_input_receiver_fn()
        spec = estimator.model_fn(
            receiver.features, None, tf.estimator.ModeKeys.PREDICT, estimator.config
        )
        signature = _signature_of_output(spec, receiver, output_key)
    feeds, fetches = _tensors(graph, signature)
    scaffold = spec.scaffold or tf1.train.Scaffold()
    config = estimator.config.session_config if config is None else config

    def restore(path: str, version: _Version) -> _Replica:
        with graph.as_default():
            session = tf1.train.ChiefSessionCreator(
                scaffold, config=config, checkpoint_filename_with_path=path
            ).create_session()
        return _Replica(session, _compile(session, feeds, fetches), version)

    def load_newer(than: _Version | None) -> _Replica | None:
        with locks.together():
            path, version = _newest_checkpoint(model_dir)
            return None if version == than else restore(path, version)

    with locks.together():
        replica = restore(*_newest_checkpoint(model_dir))
    return Predictor(graph, feeds, fetches, replica, load_newer)


def from_saved_model(
    export_dir: str | os.PathLike | bytes,
    signature_def_key: str | None = None,
    signature_def: Any = None,
    input_names: Mapping[str, str] | None = None,
    output_names: Mapping[str, str] | None = None,
    tags: str | None = None,
    graph: tf.Graph | None = None,
    config: tf.compat.v1.ConfigProto | None = None,
) -> Predictor:
    """Return a predictor that holds a SavedModel.

    As `tf.contrib.predictor.from_saved_model` of TensorFlow 1.15. Give at most one of
    `signature_def_key`, `signature_def`, and `input_names` with `output_names`.

    Args:
        export_dir: The folder of one export, such as "export/1700000000". Exports of
            Estimators and of TensorFlow 2 can be used.
        signature_def_key: Which of its signatures to compute; None takes
            "serving_default".
        signature_def: A `SignatureDef` of your own in place of one of its signatures.
        input_names: The name of a tensor ("x:0") for each key of the inputs.
        output_names: The name of a tensor for each key of the outputs.
        tags: Tags of the graph to load, separated by commas; None takes "serve".
        graph: The graph to load into; None makes a new one.
        config: The config of the session; None takes TensorFlow's defaults.

    Raises:
        ConfigError: (a ValueError) If the SavedModel has no such signature or tensor,
            or if more than one way to name them is given.
        OSError: If there is no SavedModel in the folder.
        RuntimeError: If the SavedModel has no graph with these tags.
    """
    if (input_names is None) != (output_names is None):
        raise ConfigError(
            "from_saved_model: give both input_names and output_names, or neither"
        )
    if sum(x is not None for x in (signature_def_key, signature_def, input_names)) > 1:
        raise ConfigError(
            "from_saved_model: give only one of signature_def_key, signature_def, and "
            "input_names with output_names"
        )
    export_dir = os.fsdecode(export_dir)
    graph = tf.Graph() if graph is None else graph
    with contextlib.ExitStack() as stack:
        session = tf1.Session(graph=graph, config=config)
        stack.callback(session.close)
        names = [tag.strip() for tag in (tags or tf.saved_model.SERVING).split(",")]
        with graph.as_default():
            meta_graph = tf1.saved_model.load(session, names, export_dir)
        if input_names is not None and output_names is not None:
            feeds = _tensors_by_name(graph, "input_names", input_names)
            fetches = _tensors_by_name(graph, "output_names", output_names)
        else:
            if signature_def is None:
                signature_def = _signature_of_export(
                    meta_graph.signature_def, signature_def_key, export_dir
                )
            feeds, fetches = _tensors(graph, signature_def)
        replica = _Replica(session, _compile(session, feeds, fetches))
        predictor = Predictor(graph, feeds, fetches, replica, lambda _: None)
        stack.pop_all()
    return predictor


def _newest_checkpoint(model_dir: str) -> tuple[str, _Version]:
    """Return the path of the newest checkpoint, and what identifies it.

    Inside of `locks.together`, the checkpoint is not deleted until its end.

    Raises:
        CheckpointError: If there is no checkpoint.
    """

    def latest() -> str | None:
        return tf.train.latest_checkpoint(model_dir)

    path = locks.hold_newest(latest) if locks.is_together() else latest()
    if path is None:
        raise CheckpointError(
            f"{model_dir} has no checkpoint to predict with; train the Estimator "
            "first, or give it the model_dir of its training"
        )
    return path, (path, _identity(path))


def _identity(path: str) -> Identity | int | None:
    """Return what changes when a checkpoint is replaced, or None if it is deleted."""
    # TensorFlow 1's older format has one file only, without this suffix.
    for file in (f"{path}.index", path):
        if not is_local(file) and tf.io.gfile.exists(file):
            return tf.io.gfile.stat(file).mtime_nsec
        found = identity(file)
        if found is not None:
            return found
    return None


def _signature_of_output(spec: Any, receiver: Any, output_key: str | None) -> Any:
    """Return the SignatureDef of one of the outputs of a model_fn."""
    outputs = spec.export_outputs
    key = output_key or tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
    if key not in outputs:
        raise ConfigKeyError(
            f"from_estimator: output_key is {key!r}, but the export_outputs of the "
            f"model_fn are {_listed(outputs)}"
        )
    try:
        return outputs[key].as_signature_def(receiver.receiver_tensors)
    except ValueError as error:
        # Of a classification or regression, whose input is one batch of strings.
        raise ConfigError(
            f"from_estimator: output_key {key!r} does not go with the inputs "
            f"{_listed(receiver.receiver_tensors)} of serving_input_receiver_fn: "
            f'{error}. An output_key such as "predict" takes any inputs; the '
            f"export_outputs of the model_fn are {_listed(outputs)}"
        ) from error


def _signature_of_export(
    signatures: Mapping[str, Any], signature_def_key: str | None, export_dir: str
) -> Any:
    """Return the SignatureDef with the given key, or the default one."""
    key = signature_def_key or tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
    # Exports of tf.contrib.learn have these keys, which TensorFlow 1.15 also tries.
    for each in (key, f"default_input_alternative:{key}"):
        if each in signatures:
            return signatures[each]
    own = [each for each in signatures if not each.startswith("__")]
    raise ConfigError(
        f"from_saved_model: signature_def_key is {key!r}, but the signatures of "
        f"{export_dir} are {_listed(own)}"
    )


def _tensors(graph: tf.Graph, signature: Any) -> tuple[_Tensors, _Tensors]:
    """Return the input and the output tensors of a SignatureDef, by key."""
    find = tf1.saved_model.get_tensor_from_tensor_info
    inputs, outputs = (
        {key: find(info, graph) for key, info in infos.items()}
        for infos in (signature.inputs, signature.outputs)
    )
    return inputs, outputs


def _tensors_by_name(
    graph: tf.Graph, argument: str, names: Mapping[str, str]
) -> _Tensors:
    """Return the tensors with the given names, by key."""
    found = {}
    for key, name in names.items():
        try:
            found[key] = graph.get_tensor_by_name(name)
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                f"from_saved_model: {argument}[{key!r}] is {name!r}, which is no "
                f'tensor of the SavedModel; give a name such as "x:0": {error}'
            ) from error
    return found


def _compile(
    session: tf.compat.v1.Session, feeds: _Tensors, fetches: _Tensors
) -> Callable[..., Any] | None:
    """Return a function from all inputs to all outputs, each in the order of its dict.

    Returns:
        The function; None if only `Session.run` can do this, which takes apart sparse
        and ragged tensors, and passes on an input that is an output too.
    """
    tensors = [*feeds.values(), *fetches.values()]
    if not fetches or not all(isinstance(each, tf.Tensor) for each in tensors):
        return None
    feed_names = [each.name for each in feeds.values()]
    fetch_names = [each.name for each in fetches.values()]
    if len({*feed_names}) < len(feed_names) or {*feed_names} & {*fetch_names}:
        return None
    return sessions.compile_call(session, feed_names, fetch_names)


def _needed_keys(feeds: _Tensors, fetches: _Tensors) -> frozenset[str]:
    """Return the keys of those placeholders that the outputs depend on."""
    key_by_name = {
        part.name: key
        for key, tensor in feeds.items()
        for part in tf.nest.flatten(tensor, expand_composites=True)
    }
    needed: set[str] = set()
    seen: set[str] = set()
    waiting: list[Any] = tf.nest.flatten([*fetches.values()], expand_composites=True)
    while waiting:
        node = waiting.pop()  # a tensor, or an operation that is a control input
        if node.name in seen:
            continue
        seen.add(node.name)
        op = node if isinstance(node, tf.Operation) else node.op
        if node.name not in key_by_name:
            waiting += [*op.inputs, *op.control_inputs]
        elif op.type == "Placeholder":
            needed.add(key_by_name[node.name])
    return frozenset(needed)


def _converted(key: str, tensor: Any, value: Any) -> Any:
    """Return an input's value as an array, if it is no sparse or ragged tensor.

    Raises:
        PredictorInputError: If its type or shape does not fit the input.
    """
    if not isinstance(tensor, tf.Tensor):
        return value
    try:
        is_int = isinstance(value, int)
        given = np.asarray(value) if is_int else value
        array = np.asarray(given, dtype=tensor.dtype.as_numpy_dtype)
        if is_int and array != given:  # such as 256 as uint8
            raise OverflowError("out of range")
    except (NotImplementedError, OverflowError, TypeError, ValueError) as error:
        raise PredictorInputError(
            f"input_dict[{key!r}] is {reprlib.repr(value)}, but this input of the "
            f"predictor has the type {tensor.dtype.name}: {error}"
        ) from error
    # A compiled call checks no shapes.
    if not tensor.shape.is_compatible_with(array.shape):
        raise PredictorInputError(
            f"input_dict[{key!r}] has the shape {array.shape}, but this input of the "
            f"predictor has the shape {tensor.shape}"
        )
    return array


def _closed_error() -> PredictorClosedError:
    return PredictorClosedError(
        "this predictor is closed; make another one with from_estimator or "
        "from_saved_model"
    )


def _listed(keys: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(keys))) or "none"
