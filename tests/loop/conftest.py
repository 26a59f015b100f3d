"""Small models, trained by stock and by this runtime, and all there is to compare."""

import contextlib
import dataclasses
import hashlib
import logging
import re
import tempfile

import numpy as np
import pytest

import estimator_runtime as er

er.install()

import tensorflow as tf  # noqa: E402 (after install, as a program would)
from tensorflow.python.training import monitored_session, training_util  # noqa: E402
from tensorflow_estimator.python.estimator import estimator  # noqa: E402

from estimator_runtime import options  # noqa: E402
from estimator_runtime.loop import hooked, threads  # noqa: E402
from estimator_runtime.loop.monitored import LoopSession  # noqa: E402

tf1 = tf.compat.v1
ROWS = 96
BATCH = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a training left, as plain data that can be compared.

    Attributes:
        variables: Name to type, shape and digest of each variable of the last
            checkpoint, optimizers' slots included.
        checkpoints: Steps of all checkpoints.
        summaries: (step, tag, content) of each event in file order, "" for what the
            clock decides.
        log: TensorFlow's log lines, without seconds and paths.
        error: Type and first line of the error that ended it, or None.
    """

    variables: dict
    checkpoints: list
    summaries: list
    log: list
    error: str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """A way to train; `replace` makes another one of it.

    Attributes:
        model: One of `MODELS`, or a function of features that gives predictions.
        optimizer: One of `OPTIMIZERS`.
        batches: Batches of data; None for no end.
        train: Arguments of `Estimator.train`.
        config: Further arguments of `RunConfig`.
        hooks: Makes the hooks, in the graph.
        make_train_op: Gives a train op, of (optimizer, loss, global step).
    """

    model: object = "linear"
    optimizer: str = "SGD"
    batches: int | None = None
    train: dict = dataclasses.field(default_factory=lambda: {"steps": 20})
    config: dict = dataclasses.field(default_factory=dict)
    hooks: object = lambda loss: []
    make_train_op: object = lambda optimizer, loss, step: optimizer.minimize(loss, step)

    def replace(self, **changes):
        return dataclasses.replace(self, **changes)

    def stock(self, folder=None):
        """Give the outcome with TensorFlow's own session."""
        seam = estimator.training
        ours = seam.MonitoredTrainingSession
        seam.MonitoredTrainingSession = monitored_session.MonitoredTrainingSession
        try:
            return self._outcome(folder)
        finally:
            seam.MonitoredTrainingSession = ours

    def ours(self, steps_per_run, folder=None):
        """Give the outcome with this runtime's session."""
        return self.replace(
            config={"steps_per_run": steps_per_run, **self.config}
        )._outcome(folder)

    def _outcome(self, folder):
        with contextlib.ExitStack() as stack:
            folder = folder or stack.enter_context(tempfile.TemporaryDirectory())
            log = stack.enter_context(captured_log())
            error = None
            try:
                self._estimator(str(folder)).train(self._input_fn, **self.train)
            except (RuntimeError, ValueError, tf.errors.OpError) as raised:
                error = f"{type(raised).__name__}: {str(raised).splitlines()[0]}"
            return Outcome(
                variables=variables(folder),
                checkpoints=checkpoint_steps(folder),
                summaries=summaries(folder),
                log=[plain(line, folder) for line in log if not is_about_code(line)],
                error=error,
            )

    def _estimator(self, folder):
        arguments = {
            "tf_random_seed": 11,
            "save_checkpoints_steps": 1000,
            "save_summary_steps": 1000,
            "log_step_count_steps": 1000,
            "keep_checkpoint_max": 100,
        }
        config = tf.estimator.RunConfig(folder, **{**arguments, **self.config})
        if self.model == "wide and deep":
            return wide_and_deep(OPTIMIZERS[self.optimizer](), config)
        return tf.estimator.Estimator(self._model_fn, config=config)

    def _model_fn(self, features, labels, mode):
        model = MODELS.get(self.model, self.model)
        loss = tf.reduce_mean(tf.square(model(features) - labels))
        step = tf1.train.get_global_step()
        train_op = self.make_train_op(OPTIMIZERS[self.optimizer](), loss, step)
        return tf.estimator.EstimatorSpec(
            mode, loss=loss, train_op=train_op, training_hooks=self.hooks(loss)
        )

    def _input_fn(self):
        data = tf.data.Dataset.from_tensor_slices(rows())
        data = data.repeat().batch(BATCH)
        data = data if self.batches is None else data.take(self.batches)
        iterator = tf1.data.make_initializable_iterator(data)
        tf1.add_to_collection(tf1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
        # Hooks fetch the global step from before the step; in stock nothing but luck
        # keeps them from reading it after its increment.
        reads = [
            training_util._get_or_create_global_step_read(),
            tf1.train.get_global_step()._graph_element,
        ]
        with tf.control_dependencies(reads):
            return tf.nest.map_structure(tf.identity, iterator.get_next())


def rows():
    """Give features and labels, always the same."""
    random = np.random.RandomState(0)
    x = random.normal(size=[ROWS, 36]).astype(np.float32)
    words = random.randint(0, 50, size=[ROWS, 5])
    names = np.array(["red", "green", "blue", "none"])[words[:, 0] % 4]
    labels = (x[:, :1] * x[:, 1:2] + words[:, :1] % 2 > 0.3).astype(np.float32)
    return {"x": x, "words": words, "name": names}, labels


def linear(features):
    weights = tf1.get_variable("weights", [36, 1])
    tf1.summary.histogram("weights", weights)
    return tf.matmul(features["x"], weights)


def dropout(features):
    hidden = tf1.layers.dense(features["x"], 16, tf.nn.relu)
    hidden = tf1.layers.dropout(hidden, 0.4, training=True)
    tf1.summary.histogram("hidden", hidden)
    return tf1.layers.dense(hidden, 1)


def embedding(features):
    table = tf1.get_variable("table", [50, 4])
    words = tf.nn.embedding_lookup(table, features["words"])
    return tf1.layers.dense(tf.reduce_mean(words, 1), 1)


def batch_norm(features):
    hidden = tf1.layers.dense(features["x"], 16)
    hidden = tf1.layers.batch_normalization(hidden, training=True)
    return tf1.layers.dense(tf.nn.relu(hidden), 1)


def cnn(features):
    image = tf.reshape(features["x"], [-1, 6, 6, 1])
    image = tf1.layers.conv2d(image, 4, 3, activation=tf.nn.relu)
    image = tf1.layers.max_pooling2d(image, 2, 2)
    return tf1.layers.dense(tf1.layers.flatten(image), 1)


def wide_and_deep(optimizer, config):
    column = tf.feature_column
    name = column.categorical_column_with_vocabulary_list(
        "name", ["red", "green", "blue"], num_oov_buckets=1
    )
    words = column.categorical_column_with_hash_bucket("words", 20, tf.int64)
    return tf1.estimator.DNNLinearCombinedClassifier(
        linear_feature_columns=[
            name,
            words,
            column.crossed_column(["name", "words"], 30),
        ],
        linear_optimizer=tf1.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
        dnn_feature_columns=[
            column.numeric_column("x", 36),
            column.embedding_column(words, 4),
            column.indicator_column(name),
        ],
        dnn_optimizer=optimizer,
        dnn_hidden_units=[16, 8],
        dnn_dropout=0.2,
        config=config,
    )


def update_ops_first(optimizer, loss, step):
    """Make a train op that also runs the moving averages of batch normalization."""
    updates = tf1.get_collection(tf1.GraphKeys.UPDATE_OPS)
    return tf.group(optimizer.minimize(loss, step), updates)


MODELS = {
    "linear": linear,
    "dropout": dropout,
    "embedding": embedding,
    "batch norm": batch_norm,
    "cnn": cnn,
    "wide and deep": None,
}
OPTIMIZERS = {
    "SGD": lambda: tf1.train.GradientDescentOptimizer(0.02),
    "Momentum": lambda: tf1.train.MomentumOptimizer(0.01, 0.9),
    "Adam": lambda: tf1.train.AdamOptimizer(0.01),
    "Adagrad": lambda: tf1.train.AdagradOptimizer(0.05),
    "FTRL": lambda: tf1.train.FtrlOptimizer(0.05, l1_regularization_strength=0.01),
}


@contextlib.contextmanager
def captured_log():
    """Collect TensorFlow's log lines from INFO on."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logger = logging.getLogger("tensorflow")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


def is_about_code(line):
    """Tell lines that a program gets once, or that differ by what is compared."""
    return line.startswith(("From ", "Using config: "))


def plain(line, folder):
    """Give a log line without what the clock and the folder decide."""
    line = line.replace(str(folder), "FOLDER")
    line = re.sub(r"\(\d+\.\d+ sec\)", "(SECS)", line)
    return re.sub(r"/sec: .*", "/sec: RATE", line)


def variables(folder):
    """Give type, shape and digest of each variable in the newest checkpoint."""
    path = tf.train.latest_checkpoint(folder)
    if path is None:
        return {}
    reader = tf.train.load_checkpoint(path)
    values = {n: reader.get_tensor(n) for n in reader.get_variable_to_shape_map()}
    return {
        name: (str(value.dtype), value.shape, hashlib.sha1(value).hexdigest()[:12])
        for name, value in values.items()
    }


def checkpoint_steps(folder):
    state = tf.train.get_checkpoint_state(folder)
    paths = state.all_model_checkpoint_paths if state else []
    return [int(path.rpartition("-")[2]) for path in paths]


def summaries(folder):
    """Give (step, tag, content) of all events but the graph's."""
    found = []
    for path in sorted(tf.io.gfile.glob(f"{folder}/events.*")):
        for event in tf1.train.summary_iterator(path):
            if event.HasField("session_log"):
                found.append((event.step, "session", event.session_log.status))
            for value in event.summary.value:
                is_rate = value.tag.endswith("/sec")
                content = "" if is_rate else hash_of(value.SerializeToString())
                found.append((event.step, value.tag, content))
    return found


def hash_of(content):
    return hashlib.sha1(content).hexdigest()[:12]


@pytest.fixture
def training():
    """A training of 20 steps of a linear model, to be changed with `replace`."""
    return Training()


@pytest.fixture(params=["stock", "TensorFlow's threads", "the calling thread"])
def monitored(request, monkeypatch):
    """MonitoredSession: TensorFlow's, and ours on either kind of thread."""
    if request.param == "stock":
        return tf1.train.MonitoredSession

    class Settled(threads.ThreadChoice):
        def __init__(self, clock):
            super().__init__(clock)
            self.is_caller = request.param == "the calling thread"

    monkeypatch.setattr(hooked, "ThreadChoice", Settled)
    return LoopSession
