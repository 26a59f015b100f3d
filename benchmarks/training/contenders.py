"""The ways to train a model: TensorFlow's bare session, Estimators, and Keras.

Each trains once and gives what a step cost between two moments of one training: when
`Window.warm_up` steps were trained, and `Window.steps` later. Everything before (graph,
session, first checkpoint, threads and caches that warm up) and after is left out, for
all of them alike.
"""

import contextlib
import dataclasses
import itertools
import logging
import math
import os
import pathlib
import tempfile

import tensorflow as tf
from tensorflow.python.training import monitored_session
from tensorflow_estimator.python.estimator import estimator as frozen_estimator

from benchmarks.harness.measurement import Cost, Stamp
from estimator_runtime.patching.frozen import default_session_config

tf1 = tf.compat.v1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Window:
    """The steps that are measured.

    Attributes:
        warm_up: Steps before them; of hundreds, one more than a multiple, so that the
            measurement begins and ends at a step after which the default hooks act,
            and cuts no run of fused steps in two.
        steps: How many are measured.
        warm_up_calls: Calls of the session before them, where one call runs several
            steps. The runtime times both of its ways to run a step in the first ones.
        trainers: How many processes train together. They are measured once all of them
            have warmed up.
        meeting: Folder in which each of several trainers says that it has.
    """

    warm_up: int
    steps: int
    warm_up_calls: int = 0
    trainers: int = 1
    meeting: str | None = None

    @property
    def end(self):
        """Steps before the measurement's end, measured or not."""
        return self.warm_up + self.steps

    def is_open(self):
        """Return whether all trainers have warmed up, as this one has."""
        if self.meeting is None:
            return True
        folder = pathlib.Path(self.meeting)
        (folder / str(os.getpid())).touch()
        return len(list(folder.iterdir())) == self.trainers

    def after_calls_of(self, steps_per_call):
        """Return the window of a contender that runs several steps in one call."""
        warm_up = max(self.warm_up, self.warm_up_calls * steps_per_call + 1)
        return dataclasses.replace(self, warm_up=warm_up)


class Stopwatch:
    """Stamps the end of the step before the first measured one, and of the last one.

    Its hook is TensorFlow's own that logs: the runtime knows it like those that an
    Estimator has by default, and to TensorFlow's loop it is one more of them, of about
    a microsecond a step. Asked for its line, it reads the clocks.

    Attributes:
        hook: The hook.
        stamps: `Stamp` of the end of the warm-up, and of the last measured step.
    """

    def __init__(self, window):
        self.stamps = []
        # It logs after the first step, and then every so many.
        every = math.gcd(window.warm_up - 1, window.steps)
        steps = itertools.count(1, every)
        marks = []

        def line(values):
            step = next(steps)
            if not marks and step >= window.warm_up and window.is_open():
                marks.extend([step, step + window.steps])
            if step in marks:
                self.stamps.append(Stamp.now())
                if step == marks[1] and window.trainers > 1:
                    raise tf.errors.OutOfRangeError(None, None, "has been measured")
            return "the stopwatch"

        self.hook = tf1.train.LoggingTensorHook(
            ["global_step/Read/ReadVariableOp:0"], every_n_iter=every, formatter=line
        )


def session_run(model, window):
    """A loop of `Session.run([train_op, loss])`."""
    with _graph_of(model) as (session, step):
        return _time(lambda: session.run(step), window)


def make_callable(model, window):
    """A loop of what `Session.make_callable` gives for the same."""
    with _graph_of(model) as (session, step):
        return _time(session.make_callable(step), window)


def stock_estimator(model, window, **config):
    """`Estimator.train` with TensorFlow's own session."""
    with stock_sessions():
        return _train(model, window, **config)


def our_estimator(model, window, **config):
    """`Estimator.train` with this runtime's session; see RunConfig's arguments."""
    return _train(model, window, **config)


def keras_fit(model, window, steps_per_execution=1):
    """`Model.fit` of the equal Keras model, with nothing to log, save or summarize."""
    tf.keras.backend.clear_session()
    keras_model = model.keras(steps_per_execution)
    stamps = []
    # Called at the end of an epoch only: it costs the steps nothing.
    stamp = tf.keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: stamps.append(Stamp.now())
    )
    # An epoch to warm up, and one that is measured.
    keras_model.fit(
        model.input_fn(),
        epochs=2,
        steps_per_epoch=window.steps,
        verbose=0,
        callbacks=[stamp],
    )
    return Cost.between(*stamps, window.steps)


def _train(model, window, **config):
    stopwatch = Stopwatch(window)
    with tempfile.TemporaryDirectory() as folder, quiet_log() as notes:
        config = tf.estimator.RunConfig(folder, tf_random_seed=1, **config)
        estimator = model.estimator(config)
        # So that the last measured step is not the one that ends the training. Those
        # of several trainers are counted together, so there the stopwatch ends it.
        steps = window.end + 1 if window.trainers == 1 else None
        estimator.train(model.input_fn, max_steps=steps, hooks=[stopwatch.hook])
    return Cost.between(*stopwatch.stamps, window.steps, notes)


@contextlib.contextmanager
def _graph_of(model):
    """Return a session with the Estimator's own graph, and the fetches of its step."""
    with tempfile.TemporaryDirectory() as folder, tf.Graph().as_default():
        config = tf.estimator.RunConfig(folder, tf_random_seed=1)
        tf1.set_random_seed(config.tf_random_seed)
        tf1.train.create_global_step()
        iterator = tf1.data.make_initializable_iterator(model.input_fn())
        features, labels = iterator.get_next()
        spec = model.estimator(config).model_fn(
            features, labels, tf.estimator.ModeKeys.TRAIN, config
        )
        scaffold = tf1.train.Scaffold()
        scaffold.finalize()
        with tf1.Session(config=default_session_config()) as session:
            session.run([scaffold.init_op, iterator.initializer])
            session.run(scaffold.local_init_op)
            yield session, [spec.train_op, spec.loss]


def _time(step, window):
    for _ in range(window.warm_up):
        step()
    first = Stamp.now()
    for _ in range(window.steps):
        step()
    return Cost.between(first, Stamp.now(), window.steps)


@contextlib.contextmanager
def stock_sessions():
    """Make Estimators train in TensorFlow's MonitoredTrainingSession, as without us."""
    training = frozen_estimator.training
    ours = training.MonitoredTrainingSession
    training.MonitoredTrainingSession = monitored_session.MonitoredTrainingSession
    try:
        yield
    finally:
        training.MonitoredTrainingSession = ours


@contextlib.contextmanager
def quiet_log():
    """Write the log, all of it, to nowhere; give the list of the runtime's warnings."""
    notes = []
    collector = logging.Handler(logging.WARNING)
    collector.emit = lambda record: notes.append(record.getMessage())
    with contextlib.ExitStack() as stack, open(os.devnull, "w") as nowhere:
        nowhere_handler = logging.StreamHandler(nowhere)
        stack.enter_context(_handlers("tensorflow", [nowhere_handler]))
        stack.enter_context(
            _handlers("estimator_runtime", [nowhere_handler, collector])
        )
        yield notes


@contextlib.contextmanager
def _handlers(name, handlers):
    """Leave a logger only these handlers, at level INFO, as training programs do."""
    logger = logging.getLogger(name)
    before = logger.handlers, logger.level, logger.propagate
    logger.handlers, logger.propagate = handlers, False
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.handlers, level, logger.propagate = before
        logger.setLevel(level)
