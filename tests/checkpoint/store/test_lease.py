"""A checkpoint that somebody reads is not deleted, by whoever else."""

import contextlib
import subprocess
import sys
import textwrap

import pytest
import tensorflow as tf

import estimator_runtime as er
from estimator_runtime.checkpoint.checkpoint import checkpoints_in
from estimator_runtime.checkpoint.store import locks
from estimator_runtime.checkpoint.store.state_file import read_state
from estimator_runtime.config.paths import step_of

er.install()

tf1 = tf.compat.v1
train = tf1.train


def steps_on_disk(folder):
    return [each.step for each in checkpoints_in(folder) if each.problem() is None]


def test_readers_share_a_checkpoint_and_keep_it_from_whoever_deletes(ckpt):
    prefix = str(ckpt / "model.ckpt-10")
    with locks.reading(prefix) as first, locks.reading(prefix) as second:
        assert first and second
        with locks.deleting(prefix) as is_free:
            assert not is_free
    with locks.deleting(prefix) as is_free, locks.reading(prefix) as is_there:
        assert is_free
        assert not is_there
    with locks.reading(prefix) as is_there:
        assert is_there


def test_a_lease_ends_with_the_outermost_together(ckpt):
    prefix = str(ckpt / "model.ckpt-10")
    assert not locks.is_together()
    with locks.together():
        with locks.together():
            assert locks.hold(prefix)
        with locks.deleting(prefix) as is_free:
            assert not is_free
    with locks.deleting(prefix) as is_free:
        assert is_free


def test_a_reader_that_dies_keeps_nothing(ckpt):
    prefix = str(ckpt / "model.ckpt-10")
    reader = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from estimator_runtime.checkpoint.store import locks as lease\n"
            "with lease.reading(sys.argv[1]): print('reads', flush=True); input()",
            prefix,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with reader:
        assert reader.stdout.readline() == "reads\n"
        with locks.deleting(prefix) as is_free:
            assert not is_free
        reader.kill()
        reader.wait(60)
    with locks.deleting(prefix) as is_free:
        assert is_free


@pytest.mark.parametrize("kind", ["reading", "deleting"])
def test_a_forked_child_keeps_nothing_when_its_parent_has_left(run_python, ckpt, kind):
    # With no TensorFlow, whose threads do not outlive a fork.
    program = """
        import os, sys
        from estimator_runtime.checkpoint.store import locks as lease
        pipe, end = os.pipe()
        with getattr(lease, sys.argv[2])(sys.argv[1]) as first:
            child = os.fork()
            if not child:
                os.close(end)
                os.read(pipe, 1)
                os._exit(0)
        with lease.deleting(sys.argv[1]) as second:
            print(first, second)
        os.close(end)
        os.waitpid(child, 0)
    """
    prefix = str(ckpt / "model.ckpt-10")
    done = run_python("-c", textwrap.dedent(program), prefix, kind)
    assert (done.stdout, done.stderr) == ("True True\n", "")


def test_a_forked_child_that_leaves_does_not_end_the_lease_of_its_parent(
    run_python, ckpt
):
    program = """
        import os, sys
        from estimator_runtime.checkpoint.store import locks as lease
        with lease.reading(sys.argv[1]):
            child = os.fork()
            if child:
                os.waitpid(child, 0)
                with lease.deleting(sys.argv[1]) as is_free:
                    print(is_free)
    """
    prefix = str(ckpt / "model.ckpt-10")
    done = run_python("-c", textwrap.dedent(program), prefix)
    assert (done.stdout, done.stderr) == ("False\n", "")


def save(folder, *steps, **settings):
    """Save steps with one Saver, without a training."""
    with tf.Graph().as_default(), tf1.Session() as session:
        tf1.get_variable("v", initializer=0.0)
        session.run(tf1.global_variables_initializer())
        saver = train.Saver(**settings)
        for step in steps:
            saver.save(session, str(folder / "model.ckpt"), global_step=step)


def test_what_is_saved_anew_is_not_deleted_for_an_older_one_of_its_name(tmp_path):
    with tf.Graph().as_default(), tf1.Session() as session:
        tf1.get_variable("v", initializer=0.0)
        session.run(tf1.global_variables_initializer())
        saver = train.Saver(max_to_keep=1)
        saver.save(session, str(tmp_path / "model.ckpt"), global_step=1)
        with locks.reading(str(tmp_path / "model.ckpt-1")):
            saver.save(session, str(tmp_path / "model.ckpt"), global_step=2)
        assert steps_on_disk(tmp_path) == [1, 2]
    # The next training in the folder comes by the same step.
    for path in tmp_path.iterdir():
        path.unlink()
    save(tmp_path, 0, 1, max_to_keep=1)
    assert steps_on_disk(tmp_path) == [1]


def test_what_is_about_to_be_deleted_is_not_read_but_what_is_named_next(ckpt):
    paths = {step: str(ckpt / f"model.ckpt-{step}") for step in (20, 30)}
    latest = [paths[20]]

    def pause(secs):
        """Name the newer one, as whoever deletes the older does next."""
        latest[:] = [paths[30]]

    with contextlib.ExitStack() as deleting, locks.together():
        assert deleting.enter_context(locks.deleting(paths[20]))
        found = locks.hold_newest(lambda: latest[0], pause=pause)
        assert found == paths[30]
        with locks.deleting(paths[30]) as is_free:
            assert not is_free


def test_who_would_read_does_not_wait_for_ever_for_whoever_deletes(ckpt, caplog):
    prefix, now = str(ckpt / "model.ckpt-30"), [0.0]

    def pause(secs):
        now[0] += secs

    with locks.deleting(prefix), locks.together():
        found = locks.hold_newest(lambda: prefix, clock=lambda: now[0], pause=pause)
    assert (found, 30 <= now[0] < 31) == (prefix, True)
    assert caplog.messages == [
        f"Reading {prefix} although another process has been about to delete it "
        "for 30 s"
    ]


class _Reading(train.SessionRunHook):
    """Begins to read one checkpoint after a step, and stops after another."""

    def __init__(self, prefix, first, last):
        self._prefix, self._first, self._last = prefix, first, last
        self._lease = contextlib.ExitStack()
        self._steps = 0

    def after_run(self, run_context, run_values):
        self._steps += 1
        if self._steps == self._first:
            assert self._lease.enter_context(locks.reading(self._prefix))
        if self._steps == self._last:
            self._lease.close()


@pytest.mark.parametrize("is_async", [True, False])
def test_training_deletes_it_after_its_reader_has_left(tmp_path, is_async, monkeypatch):
    monkeypatch.setenv("ESTIMATOR_RUNTIME_ASYNC_CHECKPOINT", str(int(is_async)))
    read = str(tmp_path / "model.ckpt-2")
    seen = {}

    class Listener(train.CheckpointSaverListener):
        def before_save(self, session, step):
            seen[step] = steps_on_disk(tmp_path)

    with tf.Graph().as_default():
        step = train.get_or_create_global_step().assign_add(1).op
        saver = train.CheckpointSaverHook(
            str(tmp_path),
            save_steps=2,
            scaffold=train.Scaffold(saver=train.Saver(max_to_keep=1)),
            listeners=[Listener()],
        )
        hooks = [
            saver,
            _Reading(read, first=3, last=9),
            train.StopAtStepHook(last_step=12),
        ]
        with er.MonitoredTrainingSession(
            checkpoint_dir=str(tmp_path),
            save_checkpoint_secs=None,
            hooks=hooks,
            log_step_count_steps=None,
        ) as session:
            while not session.should_stop():
                session.run(step)
    # Before each save: what the ones before have left.
    assert seen == {0: [], 2: [0], 4: [2], 6: [2, 4], 8: [2, 6], 10: [2, 8], 12: [10]}
    assert steps_on_disk(tmp_path) == [12]


EVALUATE = """\
import sys
import tensorflow as tf
import estimator_runtime as er
er.install()
tf1 = tf.compat.v1

def model_fn(features, labels, mode):
    w = tf1.get_variable("w", [])
    loss = tf.reduce_mean(tf.square(w - features["x"]))
    predictions = {"w": tf.identity(w) + 0 * features["x"]}
    step = tf1.train.get_or_create_global_step()
    train_op = tf.group(step.assign_add(1), w.assign_add(1.0))
    return tf.estimator.EstimatorSpec(
        mode, loss=loss, train_op=train_op, predictions=predictions,
        export_outputs={"serving_default": tf.estimator.export.PredictOutput(
            predictions)})

def input_fn():
    return tf.data.Dataset.from_tensors({"x": [0.0]})

class Gate(tf1.train.SessionRunHook):
    def after_create_session(self, session, coord):
        print("restored", flush=True)
        input()

class Exporter(tf.estimator.Exporter):
    name = "exporter"
    def export(self, estimator, export_path, checkpoint_path, **others):
        print("exports", flush=True)
        input()
        def receiver():
            x = {"x": tf1.placeholder(tf.float32, [None])}
            return tf.estimator.export.ServingInputReceiver(x, x)
        return estimator.export_saved_model(
            export_path, receiver, checkpoint_path=checkpoint_path)

estimator = tf.estimator.Estimator(model_fn, model_dir=sys.argv[1])
"""


def program(body, folder):
    """Run a program that reads checkpoints, and speaks with us line by line."""
    return subprocess.Popen(
        [sys.executable, "-c", EVALUATE + textwrap.dedent(body), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def train_on(folder, last):
    """Train on, keeping one checkpoint."""
    with tf.Graph().as_default():
        w = tf1.get_variable("w", [], initializer=tf1.zeros_initializer())
        step = train.get_or_create_global_step()
        train_op = tf.group(step.assign_add(1), w.assign_add(1.0))
        with er.MonitoredTrainingSession(
            checkpoint_dir=str(folder),
            save_checkpoint_steps=1,
            scaffold=train.Scaffold(saver=train.Saver(max_to_keep=1)),
            hooks=[train.StopAtStepHook(last_step=last)],
            log_step_count_steps=None,
        ) as session:
            while not session.should_stop():
                session.run(train_op)


READERS = {
    "predict": (
        "list(estimator.predict(input_fn, hooks=[Gate()]))",
        ["restored"],
    ),
    "evaluate and export": (
        """
        from tensorflow_estimator.python.estimator import training
        spec = tf.estimator.EvalSpec(
            input_fn, hooks=[Gate()], exporters=[Exporter()], throttle_secs=0)
        evaluator = training._TrainingExecutor._Evaluator(estimator, spec, None)
        evaluator.evaluate_and_export()
        """,
        ["restored", "exports"],
    ),
}


@pytest.mark.parametrize("reader", READERS)
def test_what_another_process_reads_is_not_deleted(tmp_path, reader):
    body, gates = READERS[reader]
    train_on(tmp_path, 2)
    with program(body, tmp_path) as reading:
        last = 2
        for gate in gates:
            while (line := reading.stdout.readline()) not in (f"{gate}\n", ""):
                pass
            assert line
            last += 3
            train_on(tmp_path, last)
            assert steps_on_disk(tmp_path) == [2, last]
            reading.stdin.write("\n")
            reading.stdin.flush()
        reading.stdout.read()
        assert reading.wait(120) == 0
    assert [step_of(p) for p in read_state(tmp_path).paths] == [2, last]
    train_on(tmp_path, last + 1)
    assert steps_on_disk(tmp_path) == [last + 1]
