"""Small models, trained by stock and by this runtime, and all there is to compare."""

import contextlib
import dataclasses
import hashlib
import importlib.util
import logging
import pathlib
import re
import tempfile

import pytest

import estimator_runtime as er

er.install()

import tensorflow as tf  # noqa: E402 (after install, as a program would)
from tensorflow.python.training import monitored_session, training_util  # noqa: E402
from tensorflow_estimator.python.estimator import estimator as frozen  # noqa: E402

from estimator_runtime.config import options  # noqa: E402
from estimator_runtime.loop import caller_thread  # noqa: E402
from estimator_runtime.loop.run_length import RunLength  # noqa: E402
from estimator_runtime.loop.session import LoopSession  # noqa: E402
from estimator_runtime.output.training_log import TRAINING_LOG  # noqa: E402

_spec = importlib.util.spec_from_file_location(
    "loop_models", pathlib.Path(__file__).with_name("models.py")
)
models = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(models)

tf1 = tf.compat.v1
STOCK = monitored_session.MonitoredTrainingSession
BATCH = 8
# Summaries of the canned linear model: in stock, nothing but luck lets them read the
# variables before the step changes them.
READ_AT_ANY_TIME = {"linear/bias", "linear/fraction_of_zero_weights"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a training left, as plain data that can be compared.

    Attributes:
        variables: Name to type, shape and digest of each variable of the last
            checkpoint, optimizers' slots included.
        checkpoints: Steps of all checkpoints.
        summaries: (step, tag, content) of each event in file order, but for those of
            checkpoints; "" for what the clock or chance decides.
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
        model: One of `models.MODELS`, or a function of features that gives predictions.
        optimizer: One of `models.OPTIMIZERS`.
        batches: Batches of data; None for no end.
        train: Arguments of `Estimator.train`, or a function of the Estimator that
            gives them.
        config: Further arguments of `RunConfig`.
        hooks: Gives the model's hooks, of (loss).
        make_train_op: Gives the train op, of (optimizer, loss, global step).
        change_data: Changes the dataset.
    """

    model: object = "linear"
    optimizer: str = "SGD"
    batches: int | None = None
    train: dict = dataclasses.field(default_factory=lambda: {"steps": 20})
    config: dict = dataclasses.field(default_factory=dict)
    hooks: object = lambda loss: []
    make_train_op: object = lambda optimizer, loss, step: optimizer.minimize(loss, step)
    change_data: object = lambda data: data

    def replace(self, **changes):
        return dataclasses.replace(self, **changes)

    def stock(self, folder=None):
        """Return the outcome with TensorFlow's own session."""
        with stock_session():
            return self._outcome(folder)

    def ours(self, steps_per_run, folder=None):
        """Return the outcome with this runtime's session."""
        return self.replace(
            config={"steps_per_run": steps_per_run, **self.config}
        )._outcome(folder)

    def _outcome(self, folder):
        def run(folder):
            estimator = self._estimator(folder)
            given = self.train(estimator) if callable(self.train) else self.train
            estimator.train(self._input_fn, **given)

        return outcome_of(run, folder)

    def _estimator(self, folder):
        arguments = {
            "tf_random_seed": 11,
            "save_checkpoints_steps": 1000,
            "save_summary_steps": 1000,
            "checkpoint_save_graph_def": False,
            "log_step_count_steps": 1000,
            "keep_checkpoint_max": 100,
        }
        config = tf.estimator.RunConfig(folder, **{**arguments, **self.config})
        if self.model == "wide and deep":
            return models.wide_and_deep(models.OPTIMIZERS[self.optimizer](), config)
        return tf.estimator.Estimator(self._model_fn, config=config)

    def _model_fn(self, features, labels, mode):
        model = models.MODELS.get(self.model, self.model)
        loss = tf.reduce_mean(tf.square(model(features) - labels))
        step = tf1.train.get_global_step()
        optimizer = models.OPTIMIZERS[self.optimizer]()
        train_op = self.make_train_op(optimizer, loss, step)
        return tf.estimator.EstimatorSpec(
            mode, loss=loss, train_op=train_op, training_hooks=self.hooks(loss)
        )

    def _input_fn(self):
        data = tf.data.Dataset.from_tensor_slices(models.rows())
        data = data.repeat().batch(BATCH)
        data = data if self.batches is None else data.take(self.batches)
        data = self.change_data(data)
        if "train_distribute" in self.config:  # a strategy wants datasets
            return data
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


@contextlib.contextmanager
def stock_session():
    """Train with TensorFlow's own session."""
    seam = frozen.training
    ours = seam.MonitoredTrainingSession
    seam.MonitoredTrainingSession = STOCK
    try:
        yield
    finally:
        seam.MonitoredTrainingSession = ours


@pytest.fixture
def outcome_of_program():
    """Return a function from a program, which trains in a folder, to its outcome."""

    def outcome(program, is_stock=False):
        with stock_session() if is_stock else contextlib.nullcontext():
            return outcome_of(program)

    return outcome


def outcome_of(run, folder=None):
    """Return the outcome of `run(folder)`, in a folder of its own if none is given."""
    with contextlib.ExitStack() as stack:
        folder = str(folder or stack.enter_context(tempfile.TemporaryDirectory()))
        log = stack.enter_context(captured_log())
        error = None
        try:
            run(folder)
        except (RuntimeError, ValueError, tf.errors.OpError) as raised:
            error = f"{type(raised).__name__}: {str(raised).splitlines()[0]}"
        with tf.Graph().as_default():  # for a training that failed before it had one
            tf1.summary.FileWriterCache.get(folder).flush()
        return Outcome(
            variables=variables(folder),
            checkpoints=checkpoint_steps(folder),
            summaries=summaries(folder),
            log=[plain(line, folder) for line in log if not is_about_code(line)],
            error=error,
        )


@contextlib.contextmanager
def captured_log():
    """Collect TensorFlow's log lines from INFO on, without those that only we have."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    handler.addFilter(lambda record: record.name != TRAINING_LOG.name)
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
    """Return whether a line is logged once, or depends on what is compared."""
    return line.startswith(("From ", "Using config: "))


def plain(line, folder):
    """Return a log line without what the clock and the folder decide."""
    line = line.replace(str(folder), "FOLDER")
    line = re.sub(r"\(\d+\.\d+ sec\)", "(SECS)", line)
    line = re.sub(r"/sec: .*", "/sec: RATE", line)
    line = re.sub(r"((Start|Finish)\w+ evaluation at|Inference Time :) .*", r"\1", line)
    return re.sub(r" at 0x\w+", "", line)


def variables(folder):
    """Return type, shape and digest of each variable in the newest checkpoint."""
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
    """Return (step, tag, content) of all events but the graph's and the checkpoints'."""
    found = []
    for path in sorted(tf.io.gfile.glob(f"{folder}/events.*")):
        for event in tf1.train.summary_iterator(path):
            # A checkpoint's event is written when it is on the disk: where among the
            # others is up to the disk.
            is_saved = event.session_log.status == tf1.SessionLog.CHECKPOINT
            if event.HasField("session_log") and not is_saved:
                found.append((event.step, "session", event.session_log.status))
            for value in event.summary.value:
                if value.tag.startswith("checkpoint/"):  # what they cost: not stock's
                    continue
                is_chance = value.tag.endswith("/sec") or value.tag in READ_AT_ANY_TIME
                content = "" if is_chance else hash_of(value.SerializeToString())
                found.append((event.step, value.tag, content))
    return found


def hash_of(content):
    return hashlib.sha1(content).hexdigest()[:12]


class FullRuns(RunLength):
    """Runs that no clock ends."""

    def __init__(self, steps_per_run, grace_secs):
        super().__init__(steps_per_run, grace_secs)
        if not self.is_auto:
            self.secs = 3600.0


@pytest.fixture(autouse=True)
def run_length(monkeypatch):
    """Make runs have as many steps as were asked for, however slow the machine is."""
    monkeypatch.setattr("estimator_runtime.loop.session.RunLength", FullRuns)


@pytest.fixture
def graph():
    """Return a new default graph."""
    with tf.Graph().as_default() as graph:
        yield graph


@pytest.fixture
def training():
    """A training of 20 steps of a linear model, to be changed with `replace`."""
    return Training()


@pytest.fixture
def old_control_flow():
    """Build graphs as a program of TensorFlow 1 does: branches are Switch and Merge.

    Hooks then read the global step in such a branch.
    """
    tf1.disable_control_flow_v2()
    yield
    tf1.enable_control_flow_v2()


@pytest.fixture
def seen_steps(monkeypatch):
    """Return a list that gets the context of each step that the hooks see."""
    contexts, init = [], tf1.train.SessionRunContext.__init__

    def noting(self, *args, **kwargs):
        contexts.append(self)
        init(self, *args, **kwargs)

    monkeypatch.setattr(tf1.train.SessionRunContext, "__init__", noting)
    return contexts


@pytest.fixture(params=["stock", "TensorFlow's threads", "the calling thread"])
def monitored(request, monkeypatch):
    """MonitoredSession: TensorFlow's, and ours on either kind of thread."""
    if request.param == "stock":
        return tf1.train.MonitoredSession

    is_caller = request.param == "the calling thread"
    monkeypatch.setattr(caller_thread, "fits", lambda step: is_caller)
    return LoopSession


@pytest.fixture
def train_in_a_loop():
    """Return a function that trains in a loop of the program's own."""

    def train(build, steps_per_run=None, **arguments):
        """Return the outcome, and what the last call of the session gave.

        Args:
            build: Builds a model; gives the fetches of a step, and hooks.
            steps_per_run: None for stock's session.
            **arguments: Of MonitoredTrainingSession.
        """
        values = None

        def run(folder):
            nonlocal values
            make = STOCK if steps_per_run is None else er.MonitoredTrainingSession
            chosen = options.TrainingOptions(steps_per_run=steps_per_run or 1)
            with tf.Graph().as_default(), options.use(chosen):
                tf1.set_random_seed(11)
                fetches, hooks = build()
                with make(hooks=hooks, checkpoint_dir=folder, **arguments) as session:
                    while not session.should_stop():
                        values = session.run(fetches)

        return outcome_of(run), values

    return train
