"""Checkpoints are written while training goes on, and are what stock's would be."""

import errno
import os
import re
import signal
import threading
import time

import pytest
import tensorflow as tf
from tensorflow.python.training import monitored_session

import estimator_runtime as er
from estimator_runtime.checkpoint.hook import CheckpointHook
from estimator_runtime.checkpoint.save.writer import CheckpointWriter, wait_for_own
from estimator_runtime.checkpoint.store import series
from estimator_runtime.checkpoint.store.state_file import read_state
from estimator_runtime.config import options
from estimator_runtime.errors import CheckpointError

er.install()

tf1 = tf.compat.v1
train = tf1.train
STOCK = monitored_session.MonitoredTrainingSession
LONG_SECS = 60  # nothing here takes it, unless it hangs


@pytest.fixture(autouse=True)
def _graph():
    with tf.Graph().as_default():
        yield


@pytest.fixture
def may_write(around_writes):
    """An event before which no values are written; `begun` is when one waits for it."""
    event = threading.Event()
    event.begun = threading.Event()

    def wait(_):
        event.begun.set()
        assert event.wait(LONG_SECS)

    around_writes(before=wait)
    return event


def step_op():
    """Return an op that adds 1 to the global step, and to every element of a variable."""
    weight = tf1.get_variable("weight", initializer=[0.0] * 100)
    with tf.control_dependencies([weight.assign_add([1.0] * 100)]):
        return train.get_or_create_global_step().assign_add(1).op


def run(session, step, steps):
    for _ in range(steps):
        session.run(step)


def saved_steps(folder):
    # As another process finds them: TensorFlow's functions wait for those of this one.
    state = read_state(folder)
    paths = state.paths if state else []
    return [int(path.rpartition("-")[2]) for path in paths]


def weights(folder):
    """Return the step of each checkpoint, and the one value that `weight` has there."""
    found = {}
    for path in train.get_checkpoint_state(str(folder)).all_model_checkpoint_paths:
        reader = tf.train.load_checkpoint(path)
        [value] = set(reader.get_tensor("weight").tolist())
        found[int(reader.get_tensor("global_step"))] = value
    return found


def names(folder):
    return sorted(
        name for name in os.listdir(folder) if not name.startswith(("events", "graph"))
    )


def test_training_goes_on_while_a_checkpoint_is_written(tmp_path, may_write):
    step = step_op()
    with er.MonitoredTrainingSession(
        checkpoint_dir=str(tmp_path), save_checkpoint_steps=10
    ) as session:
        run(session, step, 19)  # that of step 0 is being written, that of 10 waits
        assert saved_steps(tmp_path) == []
        may_write.set()
        run(session, step, 6)
    assert weights(tmp_path) == {0: 0, 10: 10, 20: 20, 25: 25}


def test_of_those_that_go_by_the_clock_only_the_newest_waits(tmp_path, may_write, now):
    step = step_op()
    with er.MonitoredTrainingSession(
        checkpoint_dir=str(tmp_path), save_checkpoint_secs=60
    ) as session:
        assert may_write.begun.wait(LONG_SECS)
        for _ in range(4):
            run(session, step, 5)
            now[0] += 61
        may_write.set()
        for _ in range(2):
            wait_for_own()
            run(session, step, 5)
    # Of step 0, of 16 in the place of those of 6 and 11, of 21, and the last one.
    assert weights(tmp_path) == {0: 0, 16: 16, 21: 21, 30: 30}


def test_no_checkpoint_has_values_of_two_steps(tmp_path, around_writes):
    done, is_over = [0], threading.Event()
    has_changed = threading.Condition()

    class Counts(train.SessionRunHook):
        def after_run(self, run_context, run_values):
            with has_changed:
                done[0] += 1
                has_changed.notify_all()

        def end(self, session):
            with has_changed:
                is_over.set()
                has_changed.notify_all()

    def wait(prefix):
        """Write it only when another step has changed all variables."""
        step = int(prefix.rpartition("-")[2])
        with has_changed:
            assert has_changed.wait_for(
                lambda: done[0] > step or is_over.is_set(), LONG_SECS
            )

    around_writes(before=wait)
    variables = [tf1.get_variable(f"v{i}", [30_000]) for i in range(8)]
    initial = [v.assign(tf.zeros_like(v)) for v in variables]
    with tf.control_dependencies([v.assign_add(tf.ones_like(v)) for v in variables]):
        step = train.get_or_create_global_step().assign_add(1).op
    scaffold = train.Scaffold(
        saver=train.Saver(max_to_keep=100),
        init_op=tf.group(*initial, train.get_global_step().initializer),
    )
    with er.MonitoredTrainingSession(
        checkpoint_dir=str(tmp_path),
        save_checkpoint_steps=2,
        scaffold=scaffold,
        chief_only_hooks=[Counts()],
    ) as session:
        run(session, step, 61)
    assert saved_steps(tmp_path) == [*range(0, 61, 2), 61]
    for number in saved_steps(tmp_path):
        reader = tf.train.load_checkpoint(str(tmp_path / f"model.ckpt-{number}"))
        found = {v: set(reader.get_tensor(v).tolist()) for v in ("v0", "v3", "v7")}
        assert list(found.values()) == [{float(number)}] * 3


class Listener(train.CheckpointSaverListener):
    def __init__(self, folder, log, name="", stops_at=None):
        self._folder, self._log, self._name = folder, log, name
        self._stops_at = stops_at

    def begin(self):
        self._log.append((self._name, "begin"))

    def before_save(self, session, step):
        self._log.append((self._name, "before", int(step), saved_steps(self._folder)))

    def after_save(self, session, step):
        self._log.append((self._name, "after", int(step), saved_steps(self._folder)))
        return step == self._stops_at

    def end(self, session, step):
        self._log.append((self._name, "end", int(step), saved_steps(self._folder)))


@pytest.mark.parametrize("make", [er.MonitoredTrainingSession, STOCK])
def test_listeners_find_the_checkpoint_on_the_disk_as_in_stock(make, tmp_path):
    log = []
    hook = train.CheckpointSaverHook(
        str(tmp_path), save_steps=3, listeners=[Listener(tmp_path, log, stops_at=6)]
    )
    step = step_op()
    tf1.add_to_collection(tf1.GraphKeys.SAVERS, train.Saver())
    with make(
        hooks=[hook], checkpoint_dir=str(tmp_path), save_checkpoint_secs=None
    ) as s:
        run(s, step, 2)
        hook._listeners.append(Listener(tmp_path, log, "added later"))
        while not s.should_stop():
            s.run(step)
    added = "added later"
    assert log == [
        ("", "begin"),
        ("", "before", 0, []),
        ("", "after", 0, [0]),
        ("", "before", 3, [0]),
        (added, "before", 3, [0]),
        ("", "after", 3, [0, 3]),
        (added, "after", 3, [0, 3]),
        ("", "before", 6, [0, 3]),
        (added, "before", 6, [0, 3]),
        ("", "after", 6, [0, 3, 6]),
        (added, "after", 6, [0, 3, 6]),
        ("", "end", 6, [0, 3, 6]),
        (added, "end", 6, [0, 3, 6]),
    ]


@pytest.mark.parametrize("is_async", [True, False])
def test_the_option_says_which_hook_saves(is_async, tmp_path):
    class Mine(train.CheckpointSaverHook):
        pass

    step_op()
    tf1.add_to_collection(tf1.GraphKeys.SAVERS, train.Saver())
    folder = str(tmp_path)
    given = [train.CheckpointSaverHook(folder, 60), Mine(folder, 60)]
    with options.use(options.TrainingOptions(async_checkpoint=is_async)):
        with er.MonitoredTrainingSession(hooks=given, checkpoint_dir=folder) as session:
            kinds = [
                type(hook)
                for hook in session._hooks
                if isinstance(hook, train.CheckpointSaverHook)
            ]
    ours = CheckpointHook if is_async else train.CheckpointSaverHook
    assert kinds == [ours, ours, Mine]
    assert saved_steps(tmp_path) == [0]


def test_what_was_restored_is_not_written_again_but_listeners_are_called(tmp_path):
    log = []
    for last in (5, 8):
        with tf.Graph().as_default():
            step = step_op()
            hook = train.CheckpointSaverHook(
                str(tmp_path), 600, listeners=[Listener(tmp_path, log)]
            )
            tf1.add_to_collection(tf1.GraphKeys.SAVERS, train.Saver())
            before = {p.name: p.stat().st_ino for p in tmp_path.glob("model.ckpt-5.*")}
            with er.MonitoredTrainingSession(
                hooks=[hook, train.StopAtStepHook(last_step=last)],
                checkpoint_dir=str(tmp_path),
                save_checkpoint_secs=None,
            ) as session:
                while not session.should_stop():
                    session.run(step)
    after = {p.name: p.stat().st_ino for p in tmp_path.glob("model.ckpt-5.*")}
    assert (len(before), after) == (3, before)
    assert log[6:] == [
        ("", "begin"),
        ("", "before", 5, [0, 5]),
        ("", "after", 5, [0, 5]),
        ("", "before", 8, [0, 5]),
        ("", "after", 8, [0, 5, 8]),
        ("", "end", 8, [0, 5, 8]),
    ]


def test_a_checkpoint_of_that_step_that_was_not_restored_is_replaced(tmp_path):
    for _ in range(2):
        with tf.Graph().as_default():
            step = step_op()
            weight = tf1.global_variables()[0]
            random = tf.random.uniform([100])
            with tf.control_dependencies([step]):
                step = weight.assign(random).op
            tf1.add_to_collection(tf1.GraphKeys.SAVERS, train.Saver())
            hook = train.CheckpointSaverHook(str(tmp_path), 600)
            # Not the session's folder: nothing is restored from it.
            with er.MonitoredTrainingSession(hooks=[hook]) as session:
                session.run(step)
                value = session.run(weight).tolist()
        reader = tf.train.load_checkpoint(str(tmp_path / "model.ckpt-1"))
        assert reader.get_tensor("weight").tolist() == value
    assert saved_steps(tmp_path) == [0, 1]


def test_a_lost_session_goes_on_from_the_checkpoint_that_was_being_written(
    tmp_path, may_write, monkeypatch
):
    wait = CheckpointWriter.wait

    def let_it_write(self):
        may_write.set()
        wait(self)

    class Loses(train.SessionRunHook):
        def after_run(self, run_context, run_values):
            if run_context.session.run(train.get_global_step()) == 4 and not lost:
                lost.append(4)
                monkeypatch.setattr(CheckpointWriter, "wait", let_it_write)
                raise tf.errors.AbortedError(None, None, "lost")

        def after_create_session(self, session, coord):
            begun.append(int(session.run(train.get_global_step())))

    lost, begun = [], []
    step = step_op()
    hooks = [Loses(), train.StopAtStepHook(last_step=6)]
    with er.MonitoredTrainingSession(
        checkpoint_dir=str(tmp_path), save_checkpoint_steps=4, hooks=hooks
    ) as session:
        while not session.should_stop():
            session.run(step)
    assert (begun, saved_steps(tmp_path)) == ([0, 4], [0, 4, 6])


@pytest.mark.parametrize("make", [STOCK, er.MonitoredTrainingSession])
def test_a_program_may_save_out_of_turn_by_the_hook_that_it_has_given(make, tmp_path):
    saving = train.CheckpointSaverHook(str(tmp_path), save_steps=1000)

    class OutOfTurn(train.SessionRunHook):
        def after_run(self, run_context, run_values):
            if run_context.session.run(global_step) == 7:
                saving._save(run_context.session, 7)

    step = step_op()
    global_step = train.get_global_step()
    with make(save_checkpoint_secs=None, hooks=[saving, OutOfTurn()]) as session:
        run(session, step, 10)
    assert saved_steps(tmp_path) == [0, 7, 10]
    assert weights(tmp_path) == {0: 0.0, 7: 7.0, 10: 10.0}


def test_one_saver_may_save_to_two_folders_and_each_has_its_newest(tmp_path):
    step = step_op()
    scaffold = train.Scaffold(saver=train.Saver(max_to_keep=3))
    backup = train.CheckpointSaverHook(
        str(tmp_path / "backup"), save_steps=10, scaffold=scaffold
    )
    with er.MonitoredTrainingSession(
        checkpoint_dir=str(tmp_path / "model"),
        save_checkpoint_steps=5,
        scaffold=scaffold,
        hooks=[backup],
    ) as session:
        run(session, step, 60)
    for folder, steps in {"model": [50, 55, 60], "backup": [40, 50, 60]}.items():
        assert saved_steps(tmp_path / folder) == steps
        indexes = sorted((tmp_path / folder).glob("*.index"))
        assert [path.name for path in indexes] == [
            f"model.ckpt-{step}.index" for step in steps
        ]


def failing(around_writes, error, from_step, times=1000):
    """Fail the writes of checkpoints from a step on, a number of times."""
    left = [times]

    def fail(prefix):
        if int(prefix.rpartition("-")[2]) >= from_step and left[0]:
            left[0] -= 1
            raise error

    around_writes(after=fail)


NO_SPACE = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (NO_SPACE, "No space left on device"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "Disk quota exceeded"),
        (tf.errors.ResourceExhaustedError(None, None, "disk full\nat x"), "disk full"),
    ],
    ids=["no space", "quota", "of TensorFlow"],
)
@pytest.mark.parametrize("steps", [5, 20], ids=["at the end", "at the next save"])
def test_a_write_that_fails_is_raised_in_the_training_thread(
    tmp_path, around_writes, error, reason, steps
):
    failing(around_writes, error, from_step=4)
    step, done = step_op(), 0
    with pytest.raises(CheckpointError) as raised:
        with er.MonitoredTrainingSession(
            checkpoint_dir=str(tmp_path), save_checkpoint_steps=4
        ) as session:
            for _ in range(steps):
                session.run(step)
                wait_for_own()
                done += 1
    assert done == min(steps, 7)  # the 8th is the one that saves next
    message = str(raised.value)
    assert message.startswith(
        f"the checkpoint '{tmp_path}/model.ckpt-4' cannot be written: {reason}; it "
        "needs "
    )
    assert " bytes; " in message and " bytes are free. " in message
    assert names(tmp_path) == [
        "checkpoint",
        "model.ckpt-0.data-00000-of-00001",
        "model.ckpt-0.index",
        "model.ckpt-0.meta",
    ]
    assert weights(tmp_path) == {0: 0}


@pytest.mark.parametrize(
    ("interval", "failed", "steps", "saved"),
    [
        ({"save_checkpoint_secs": 600}, 0, 1, [1]),
        ({"save_checkpoint_steps": 2}, 0, 1, [1]),
        ({"save_checkpoint_steps": 4}, 4, 4, [0, 4]),
        ({"save_checkpoint_steps": 4}, 4, 20, [0, 8]),
    ],
    ids=["by the clock", "an older one", "the last one", "one is due again"],
)
def test_after_a_write_that_failed_one_more_is_made_before_it_is_raised(
    tmp_path, around_writes, interval, failed, steps, saved
):
    failing(around_writes, NO_SPACE, from_step=failed, times=1)
    step = step_op()
    error = rf"model\.ckpt-{failed}' cannot be written"
    with pytest.raises(CheckpointError, match=error):
        with er.MonitoredTrainingSession(
            checkpoint_dir=str(tmp_path), **interval
        ) as session:
            wait_for_own()
            for _ in range(steps):
                session.run(step)
                wait_for_own()
    assert weights(tmp_path) == {number: number for number in saved}


def test_the_programs_own_error_is_raised_when_a_write_has_failed_too(
    tmp_path, around_writes, caplog
):
    failing(around_writes, NO_SPACE, from_step=2)
    step = step_op()
    with pytest.raises(ZeroDivisionError):
        with er.MonitoredTrainingSession(
            checkpoint_dir=str(tmp_path), save_checkpoint_steps=2
        ) as session:
            run(session, step, 3)
            raise ZeroDivisionError
    assert saved_steps(tmp_path) == [0]
    [message] = [m for m in caplog.messages if "cannot be written" in m]
    assert "model.ckpt-2' cannot be written: No space left on device" in message


def test_a_training_after_a_second_ctrl_c_waits_for_the_write_that_was_left(
    tmp_path, may_write
):
    step = step_op()
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            with er.MonitoredTrainingSession(
                checkpoint_dir=str(tmp_path), save_checkpoint_steps=4
            ) as session:
                assert may_write.begun.wait(LONG_SECS)
                signal.raise_signal(signal.SIGINT)
                time.sleep(0.12)  # sooner it would be the same request
                signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, usual)
    assert saved_steps(tmp_path) == []
    with tf.Graph().as_default():
        step = step_op()
        threading.Timer(0.1, may_write.set).start()
        with er.MonitoredTrainingSession(
            checkpoint_dir=str(tmp_path), save_checkpoint_steps=4
        ) as session:
            assert saved_steps(tmp_path) == [0]
            run(session, step, 4)
    assert weights(tmp_path) == {0: 0, 4: 4}


def test_a_checkpoints_graph_is_stocks_and_is_written_once(tmp_path):
    contents = []
    for make in (er.MonitoredTrainingSession, STOCK):
        folder = tmp_path / make.__module__
        with tf.Graph().as_default():
            step = step_op()
            with make(checkpoint_dir=str(folder), save_checkpoint_steps=2) as session:
                run(session, step, 5)
        metas = [folder / f"model.ckpt-{number}.meta" for number in (0, 2, 4, 5)]
        texts = [str(tf1.MetaGraphDef.FromString(m.read_bytes())) for m in metas]
        # Functions are numbered through in the process, and have the order of their names.
        texts = [re.sub(r"(_cond_\w+?)_\d+", r"\1", text) for text in texts]
        contents.append([sorted(text.splitlines()) for text in texts])
        if make is er.MonitoredTrainingSession:
            assert len({meta.stat().st_ino for meta in metas}) == 1
    ours, stock = contents
    assert ours == stock


@pytest.mark.parametrize("is_blocking", [False, True])
def test_each_checkpoint_has_stocks_event(tmp_path, is_blocking):
    server = tf.distribute.Server.create_local_server()
    found = []
    for make in (er.MonitoredTrainingSession, STOCK):
        folder = tmp_path / make.__module__
        with tf.Graph().as_default():
            step = step_op()
            master = server.target if is_blocking else ""
            with make(
                master, checkpoint_dir=str(folder), save_checkpoint_steps=2
            ) as session:
                run(session, step, 5)
        tf1.summary.FileWriterCache.get(str(folder)).flush()
        events = [
            event
            for path in folder.glob("events.*")
            for event in train.summary_iterator(str(path))
            if event.session_log.status == tf1.SessionLog.CHECKPOINT
        ]
        paths = [e.session_log.checkpoint_path for e in events]
        assert paths == [str(folder / "model.ckpt")] * 4
        found.append([event.step for event in events])
    assert found == [[0, 2, 4, 5]] * 2


def test_where_there_are_no_links_the_graph_is_written_each_time(tmp_path, monkeypatch):
    def no_links(source, target):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(series.os, "link", no_links)
    step = step_op()
    with er.MonitoredTrainingSession(
        checkpoint_dir=str(tmp_path), save_checkpoint_steps=2
    ) as session:
        run(session, step, 3)
    metas = [tmp_path / f"model.ckpt-{number}.meta" for number in (0, 2, 3)]
    assert len({meta.stat().st_ino for meta in metas}) == 3
    assert len({meta.read_bytes() for meta in metas}) == 1


def test_what_is_being_written_when_the_program_fails_is_saved(tmp_path, may_write):
    step = step_op()
    with pytest.raises(ZeroDivisionError):
        with er.MonitoredTrainingSession(
            checkpoint_dir=str(tmp_path), save_checkpoint_steps=4
        ) as session:
            run(session, step, 5)
            threading.Thread(target=may_write.set).start()
            raise ZeroDivisionError
    assert weights(tmp_path) == {0: 0, 4: 4}
