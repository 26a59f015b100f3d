"""Progress is watched from beside: real sessions, whose steps know nothing of it."""

import threading

import pytest
import tensorflow as tf

import estimator_runtime as er
from estimator_runtime import reporting
from estimator_runtime.config import options
from estimator_runtime.loop.step_kind import StepKind
from estimator_runtime.session.hooks.progress import ProgressHook, WatchedHook

er.install()

train = tf.compat.v1.train
DEADLINE_SECS = 60


class Shown:
    """A display that keeps what it is shown, and tells who waits for it."""

    def __init__(self, first):
        self.all = [first]
        self.is_closed = False
        self._news = threading.Condition()

    def show(self, progress):
        with self._news:
            self.all.append(progress)
            self._news.notify_all()

    def close(self):
        self.is_closed = True

    def wait_for(self, seen):
        with self._news:
            assert self._news.wait_for(lambda: seen(self.all[-1]), DEADLINE_SECS)


class Displays:
    """Makes displays, and has the last one once it is made."""

    def __init__(self):
        self._made = threading.Event()
        self._last = None

    def __call__(self, first):
        self._last = Shown(first)
        self._made.set()
        return self._last

    @property
    def last(self):
        assert self._made.wait(DEADLINE_SECS)
        return self._last


def model():
    step = train.get_or_create_global_step()
    loss = tf.constant(0.5)
    return tf.group(step.assign_add(1), loss), loss


def hooks_of(loss, last_step, folder, *displays):
    hooks = [
        train.StopAtStepHook(last_step=last_step),
        train.LoggingTensorHook({"loss": loss}, every_n_iter=10),
    ]
    watched = WatchedHook(hooks, folder, displays, poll_secs=0.01)
    return [*hooks, watched]


@pytest.mark.parametrize("steps_per_run", [1, 25])
def test_steps_and_loss_are_shown_until_the_session_ends(tmp_path, steps_per_run):
    displays = Displays()
    with (
        tf.Graph().as_default() as graph,
        options.use(options.TrainingOptions(steps_per_run=steps_per_run), graph),
    ):
        train_op, loss = model()
        with er.MonitoredTrainingSession(
            checkpoint_dir=str(tmp_path),
            save_checkpoint_steps=50,
            hooks=hooks_of(loss, 100, str(tmp_path), displays),
        ) as session:
            while not session.should_stop():
                session.run(train_op)
    shown = displays.last
    assert shown.is_closed
    steps = [each.step for each in shown.all]
    assert steps == sorted(steps) and steps[-1] == 100
    assert (shown.all[-1].last_step, shown.all[-1].loss) == (100, 0.5)


def test_a_checkpoint_is_shown_when_it_is_written(tmp_path):
    displays = Displays()
    with tf.Graph().as_default():
        train_op, loss = model()
        with er.MonitoredTrainingSession(
            checkpoint_dir=str(tmp_path),
            save_checkpoint_steps=5,
            hooks=hooks_of(loss, 1000, str(tmp_path), displays),
        ) as session:
            for _ in range(7):
                session.run(train_op)
            displays.last.wait_for(lambda progress: progress.saved_step == 5)


class Broken:
    """A display whose stream cannot be written."""

    def __init__(self, first):
        pass

    def show(self, progress):
        raise BrokenPipeError

    def close(self):
        raise ValueError("I/O operation on closed file")


def test_a_display_that_cannot_be_written_does_not_disturb_another():
    displays = Displays()
    with tf.Graph().as_default():
        train_op, loss = model()
        hooks = hooks_of(loss, 7, None, displays, Broken)
        with er.MonitoredTrainingSession(hooks=hooks) as session:
            while not session.should_stop():
                session.run(train_op)
    assert displays.last.is_closed and displays.last.all[-1].step == 7


def test_a_training_that_fails_leaves_no_thread_behind():
    displays = Displays()
    with tf.Graph().as_default():
        train_op, loss = model()
        with pytest.raises(ZeroDivisionError):
            with er.MonitoredTrainingSession(
                hooks=hooks_of(loss, 1000, None, displays)
            ) as session:
                session.run(train_op)
                assert displays.last is not None
                raise ZeroDivisionError
    assert displays.last.is_closed
    names = [thread.name for thread in threading.enumerate()]
    assert "estimator_runtime progress" not in names


def test_a_launcher_gets_the_step_by_time_and_steps_in_between_call_no_hook(
    monkeypatch,
):
    reports, kinds = [], []
    monkeypatch.setattr(reporting, "progress", lambda **values: reports.append(values))
    with tf.Graph().as_default():
        step = train.get_or_create_global_step()
        with tf.control_dependencies([step._graph_element]):
            train_op = step.assign_add(1, read_value=False)
        hooks = [train.StopAtStepHook(500)]
        hooks.append(ProgressHook(hooks, "", trains_alone=True))
        options_ = {"log_step_count_steps": None, "hooks": hooks}
        with er.MonitoredTrainingSession(**options_) as session:
            while not session.should_stop():
                session.run(train_op)
                kinds.append(session.step_kind)
    steps = [each["step"] for each in reports if "step" in each]
    assert (steps[0], steps[-1]) == (0, 499)
    assert steps == sorted(steps) and len(steps) < 400
    assert kinds.count(StepKind.IDLE) > 100
    here = [each["steps_here"] for each in reports if "steps_here" in each]
    assert here == [each + 1 for each in steps[: len(here)]]
