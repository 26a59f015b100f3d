"""Random mixes of hooks see the same calls, results and files as on TensorFlow's.

Each mix is driven twice over a graph, on TensorFlow's MonitoredSession and on ours.
Whatever is random in a mix is drawn from its seed, at the call that needs it.
"""

import collections
import random
import re

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.training import training_util

from estimator_runtime.loop.session import LoopSession

tf1 = tf.compat.v1
train = tf1.train
Pair = collections.namedtuple("Pair", ["left", "right"])
MIXES_PER_GRAPH = 10
# Optimizing each request's graph would take most of the time.
CONFIG = tf1.ConfigProto()
CONFIG.graph_options.rewrite_options.disable_meta_optimizer = True


class Model:
    """A step, and what may be fetched and fed beside it."""

    def __init__(self, draw, batches=(6, 12, 1000, 1000)):
        tf1.set_random_seed(5)
        step = train.get_or_create_global_step()
        feeds = [
            tf1.placeholder_with_default(1.0, [], name=f"feed{i}") for i in range(4)
        ]
        weights = tf1.get_variable("weights", initializer=[1.0, 2.0, 3.0])
        # Where it is a reference variable, the calling thread runs no step.
        old = tf1.get_variable(
            "old", initializer=[0, 0], use_resource=draw.random() < 0.5
        )
        noise = tf.random.uniform([3], seed=draw.randrange(100))
        number = next_of(tf.data.Dataset.range(draw.choice(batches)))
        loss = tf.reduce_sum(tf.square(weights * noise)) * tf.add_n(feeds)
        tf1.summary.scalar("loss", loss)
        tf1.summary.histogram("weights", weights)
        self.feeds = feeds
        self.loss = loss
        self.values = [
            loss,
            loss.op,
            "feed0:0",
            tf.identity(weights),
            old + 0,
            noise,
            number,
            tf.as_string(number),
            tf.SparseTensor([[0, 1]], [number], [2, 2]),
            tf.IndexedSlices(noise[:1], tf.constant([2])),
            weights,
        ]
        # Hooks fetch the step's number from before its increase; whatever else they
        # fetch has no order either, unless it is given here.
        first = [
            training_util._get_or_create_global_step_read(),
            step._graph_element,
            weights._graph_element,
            tf1.summary.merge_all(),
            *[f for f in tf.nest.flatten(self.values, True) if tf.is_tensor(f)],
        ]
        with tf.control_dependencies(first):
            optimizer = train.AdamOptimizer(0.1)
            self.train_op = tf.group(
                optimizer.minimize(loss, step), tf1.assign_add(old, [1, 2]).op
            )

    def request(self, draw, depth=2):
        """Draw a structure of fetches."""
        kind = draw.randrange(9 if depth else 3)
        if kind < 3:
            return draw.choice(self.values)
        if kind == 3:
            return Pair(self.request(draw, depth - 1), self.request(draw, depth - 1))
        parts = [self.request(draw, depth - 1) for _ in range(draw.randrange(4))]
        if kind < 7:
            return draw.choice([list, tuple])(parts)
        named = {f"part{i}": part for i, part in enumerate(parts)}
        return draw.choice([dict, collections.OrderedDict])(named)


def next_of(data):
    iterator = tf1.data.make_initializable_iterator(data)
    tf1.add_to_collection(tf1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
    return iterator.get_next()


ERRORS = [
    lambda: ValueError("of a hook"),
    lambda: StopIteration("of a hook"),
    lambda: tf.errors.OutOfRangeError(None, None, "of a hook"),
    lambda: tf.errors.AbortedError(None, None, "of a hook"),
    lambda: tf.errors.UnavailableError(None, None, "of a hook"),
]


class Recorder(train.SessionRunHook):
    """Asks for this and that, and writes every call down."""

    def __init__(self, name, draw, model, calls):
        self.name, self.draw, self.model, self.calls = name, draw, model, calls
        self.fixed = [model.request(draw) for _ in range(2)]
        self.container = [model.loss]

    def note(self, method, *details):
        self.calls.append((self.name, method, *details))

    def begin(self):
        self.note("begin", tf1.get_default_graph().finalized)

    def after_create_session(self, session, coord):
        self.note("after_create_session", coord.should_stop())

    def before_run(self, run_context):
        args = run_context.original_args
        given = args.fetches, args.feed_dict
        self.note("before_run", described(given), args.options)
        self.act(run_context)
        draw = self.draw
        kind = draw.randrange(12)
        if kind < 2:
            return None
        fetches = draw.choice([None, *self.fixed * 3, self.container])
        if kind == 2:
            self.container.append(draw.choice(self.model.values))
        if kind == 3:
            fetches = self.model.request(draw)
        feeds = {draw.choice(self.model.feeds): draw.random()} if kind == 4 else None
        options = None
        if kind == 5:
            options = tf1.RunOptions(
                trace_level=draw.choice([0, 0, 1, 3]),
                timeout_in_ms=draw.choice([0, 60000]),
                output_partition_graphs=draw.random() < 0.3,
            )
        return train.SessionRunArgs(fetches, feeds, options)

    def after_run(self, run_context, run_values):
        metadata = run_values.run_metadata
        self.note(
            "after_run",
            described(run_values.results),
            str(run_values.options),
            bool(metadata.step_stats.dev_stats),
            len(metadata.partition_graphs),
        )
        self.act(run_context)
        for array in tf.nest.flatten(run_values.results):
            if isinstance(array, np.ndarray) and array.dtype == np.float32:
                array *= 0  # it is the hook's own

    def end(self, session):
        self.note("end", described(session.run(self.model.values[3:5])))

    def act(self, run_context):
        if self.draw.random() < 0.1:
            found = run_context.session.run(self.fixed[0])
            self.note("session.run", described(found))
        if self.draw.random() < 0.01:
            run_context.request_stop()
        if self.draw.random() < 0.01:
            raise self.draw.choice(ERRORS)()


def described(value):
    """Return fetches, feeds or results as plain data, with their types."""
    kind = type(value).__name__
    if isinstance(value, dict):
        return kind, [(described(k), described(v)) for k, v in value.items()]
    if isinstance(value, (list, tuple)):
        return kind, [described(each) for each in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return kind, str(value.dtype), value.shape, value.tolist()
    if isinstance(value, (tf.SparseTensor, tf.IndexedSlices)):
        return kind, value.values.name
    return kind, getattr(value, "name", value)


def makers_of_periodic_hooks(model, folder, every):
    """Return functions that make TensorFlow's hooks with an interval, asked of `every`."""
    return [
        lambda: train.StepCounterHook(every(), output_dir=folder),
        lambda: train.SummarySaverHook(
            every(), output_dir=folder, summary_op=tf1.summary.merge_all()
        ),
        lambda: train.CheckpointSaverHook(folder, save_steps=every()),
        lambda: train.LoggingTensorHook(
            {"loss": model.loss, "text": model.values[7]}, every_n_iter=every()
        ),
    ]


def hooks_of_tensorflow(draw, model, folder):
    """Draw some of TensorFlow's hooks, with intervals of their own."""
    every = lambda: draw.randint(1, 6)  # noqa: E731
    makers = [
        *makers_of_periodic_hooks(model, folder, every),
        lambda: train.LoggingTensorHook([model.loss], at_end=True),
        lambda: train.NanTensorHook(model.loss),
        lambda: train.StopAtStepHook(num_steps=draw.randint(1, 14)),
        lambda: train.StopAtStepHook(last_step=draw.randint(1, 14)),
        lambda: train.ProfilerHook(save_steps=every(), output_dir=folder),
        lambda: train.FeedFnHook(lambda: {model.feeds[3]: 2.0}),
        lambda: train.FinalOpsHook(model.values[3]),
        lambda: train.GlobalStepWaiterHook(0),
    ]
    return [make() for make in draw.sample(makers, draw.randint(0, 4))]


def drive(make_session, model, seed, folder):
    """Drive a mix to its end; give its calls."""
    draw = random.Random(seed)
    calls = []
    hooks = [
        Recorder(f"hook {i}", random.Random(f"{seed} {i}"), model, calls)
        for i in range(draw.choice([0, 1, 2, 3]))
    ]
    hooks += hooks_of_tensorflow(draw, model, str(folder))
    hooks += draw.choice([[], [], [], hooks[:1]])
    draw.shuffle(hooks)
    creator = train.ChiefSessionCreator(config=CONFIG, checkpoint_dir=str(folder))
    try:
        with make_session(creator, hooks) as session:
            for _ in range(16):
                if session.should_stop():
                    break
                calls.append(("caller", described(a_run(session, model, draw))))
        calls.append("closed")
    except (ValueError, RuntimeError, tf.errors.OpError) as error:
        calls.append((type(error).__name__, str(error).partition("\n")[0]))
    return calls


def a_run(session, model, draw):
    fetches = [model.train_op, model.loss]
    kind = draw.randrange(10)
    if kind == 0:
        fetches = model.request(draw)
    if kind == 1:
        return session.run(fetches, {model.feeds[0]: draw.random()})
    if kind == 2:
        metadata = tf1.RunMetadata()
        found = session.run(fetches, options=tf1.RunOptions(), run_metadata=metadata)
        return found, bool(metadata.step_stats.dev_stats)
    if kind == 3:
        return session.run_step_fn(
            lambda step_context: (
                step_context.session.run(model.values[3]),
                step_context.run_with_hooks(fetches),
            )
        )
    return session.run(fetches)


def files(folder):
    """Return the names of the files, and the summaries but for rates."""
    tf1.summary.FileWriterCache.clear()  # writes what hooks without an end have not
    names = sorted(
        re.sub(r"^events.*", "events", path.name) for path in folder.iterdir()
    )
    events = [
        (
            event.step,
            value.tag,
            "" if value.tag.endswith("/sec") else value.SerializeToString(),
        )
        for path in sorted(folder.glob("events.*"))
        for event in tf1.train.summary_iterator(str(path))
        for value in event.summary.value
    ]
    return names, events


def lines(messages, folder):
    """Return log lines without paths, seconds and what TensorFlow logs only once."""
    return [
        re.sub(r"\([\d.]+ sec\)|: [\d.e+-]+$", "", message.replace(str(folder), ""))
        for message in messages
        if not message.startswith(("From ", "It seems that global step"))
    ]


@pytest.mark.parametrize("first", range(0, 40, MIXES_PER_GRAPH))
def test_a_mix_of_hooks_makes_no_difference(first, tmp_path, caplog):
    def outcome(make_session, seed):
        folder = tmp_path / f"{seed} {make_session.__name__}"
        folder.mkdir()
        caplog.clear()
        calls = drive(make_session, model, seed, folder)
        return calls, lines(caplog.messages, folder), files(folder)

    caplog.set_level("INFO", logger="tensorflow")
    with tf.Graph().as_default():
        model = Model(random.Random(first))
        tf1.add_to_collection(tf1.GraphKeys.SAVERS, train.Saver(max_to_keep=99))
        for seed in range(first, first + MIXES_PER_GRAPH):
            stock = outcome(train.MonitoredSession, seed)
            ours = outcome(LoopSession, seed)
            for i, (expected, call) in enumerate(zip(stock[0], ours[0], strict=False)):
                assert call == expected, f"mix {seed}, call {i}"
            assert ours == stock, f"mix {seed}"


def waiting_hooks(draw, model, folder):
    """Draw TensorFlow's hooks that wait through most steps, to be given to a lull."""
    every = lambda: draw.randint(5, 20)  # noqa: E731
    makers = [
        *makers_of_periodic_hooks(model, folder, every),
        lambda: train.NanTensorHook(model.loss),
    ]
    hooks = [make() for make in draw.sample(makers, draw.randint(1, 4))]
    # Some hook has to fetch the global step.
    hooks.append(train.StopAtStepHook(last_step=draw.randint(30, 70)))
    draw.shuffle(hooks)
    return hooks


def drive_waiting(make_session, model, seed, folder):
    """Drive a mix of hooks that wait, 60 calls or to its end; give what they gave."""
    draw = random.Random(seed)
    hooks = waiting_hooks(draw, model, str(folder))
    creator = train.ChiefSessionCreator(config=CONFIG, checkpoint_dir=str(folder))
    calls = []
    with make_session(creator, hooks) as session:
        for _ in range(60):
            if session.should_stop():
                break
            fetches = {"op": model.train_op, "in": {"loss": model.loss}}
            kind = draw.randrange(20)
            if kind == 0:
                calls.append(session.run(model.values[3]).tolist())
            if kind == 1:
                fetches["more"] = model.loss
            if kind == 2:
                calls.append(session.run(fetches, {model.feeds[0]: draw.random()}))
            else:
                calls.append(session.run(fetches))
            changes = fetches.clear, fetches["in"].clear, fetches.popitem
            draw.choice(changes)()
    return [described(call) for call in calls]


@pytest.mark.parametrize("first", range(0, 20, MIXES_PER_GRAPH))
def test_a_mix_of_hooks_that_wait_makes_no_difference(
    first, tmp_path, caplog, seen_steps
):
    def outcome(make_session, seed):
        folder = tmp_path / f"{seed} {make_session.__name__}"
        folder.mkdir()
        caplog.clear()
        seen_steps.clear()
        calls = drive_waiting(make_session, model, seed, folder)
        logged = lines(caplog.messages, folder)
        return (calls, logged, files(folder)), len(seen_steps)

    caplog.set_level("INFO", logger="tensorflow")
    with tf.Graph().as_default():
        model = Model(random.Random(first), batches=[37, 1000])
        tf1.add_to_collection(tf1.GraphKeys.SAVERS, train.Saver(max_to_keep=99))
        for seed in range(first, first + MIXES_PER_GRAPH):
            stock, all_steps = outcome(train.MonitoredSession, seed)
            ours, steps = outcome(LoopSession, seed)
            assert ours == stock, f"mix {seed}"
            assert steps < all_steps, f"mix {seed}"
