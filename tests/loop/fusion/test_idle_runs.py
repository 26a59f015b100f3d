"""Steps at which no hook acts run together, once that pays: steps_per_run="auto"."""

import logging
import signal
import threading
import time
import types

import pytest
import tensorflow as tf
from tensorflow.python.framework import config as framework_config
from tensorflow.python.training import training_util

import estimator_runtime as er
from estimator_runtime.loop.fusion import idle_runs
from estimator_runtime.loop.session import LoopSession
from estimator_runtime.loop.step_kind import StepKind

er.install()
tf1 = tf.compat.v1
train = tf1.train


@pytest.fixture(autouse=True)
def _graph():
    with tf.Graph().as_default():
        yield


def step_of(*needed):
    """Return an op that adds 1 to the global step, after what is needed."""
    read = train.get_or_create_global_step()._graph_element
    with tf.control_dependencies([read, *needed]):
        return training_util._increment_global_step(1).op


def trained(fetches, hooks=(), steps=2000, **arguments):
    """Train; return the way in which each call has run, and its value."""
    arguments = {"steps_per_run": "auto", **arguments}
    kinds, values = [], []
    hooks = [train.StopAtStepHook(steps), *hooks]
    with LoopSession(hooks=hooks, **arguments) as session:
        while not session.should_stop():
            values.append(session.run(fetches))
            kinds.append(session.step_kind)
    return kinds, values


def told(caplog):
    return [m for m in caplog.messages if "steps_per_run=" in m]


@pytest.fixture(autouse=True)
def _log(caplog):
    caplog.set_level(logging.INFO)


def test_steps_run_together_after_twenty_that_no_hook_saw(caplog):
    kinds, _ = trained(step_of())
    assert kinds[:22] == [StepKind.PLANNED] * 2 + [StepKind.IDLE] * 20
    assert StepKind.FUSED in kinds[22:25] and len(kinds) < 100
    assert kinds[-1] is StepKind.PLANNED  # at which the training stops
    (line,) = told(caplog)
    assert line.startswith("running several steps per session call from now on: up to")


def test_hooks_act_at_the_steps_of_single_steps(caplog):
    log = []

    def logged(values):
        log.append(int(values["step"]))
        return ""

    step = step_of()
    every = train.LoggingTensorHook(
        {"step": train.get_global_step()._graph_element}, 100, formatter=logged
    )
    kinds, _ = trained(step, [every])
    assert log == list(range(0, 2000, 100))
    assert StepKind.FUSED in kinds


@pytest.mark.parametrize(("steps", "is_fused"), [(1022, False), (1100, True)])
def test_a_training_that_ends_soon_is_not_worth_a_loop(steps, is_fused):
    kinds, _ = trained(step_of(), steps=steps)
    assert (StepKind.FUSED in kinds) == is_fused


@pytest.mark.parametrize(("steps", "is_fused"), [(1000, False), (2000, True)])
def test_a_training_without_a_known_end_is_expected_to_go_on_as_long_as_it_has(
    steps, is_fused, tmp_path
):
    data = tf.data.Dataset.range(steps)
    number = tf1.data.make_one_shot_iterator(data).get_next()
    loss = tf.cast(number, tf.float32)
    step, kinds = step_of(loss), []
    hooks = [train.StepCounterHook(10**6, output_dir=str(tmp_path))]
    with LoopSession(hooks=hooks, steps_per_run="auto") as session:
        while not session.should_stop():
            session.run([step, number])
            kinds.append(session.step_kind)
    assert (StepKind.FUSED in kinds) == is_fused


def test_long_steps_have_little_to_gain(monkeypatch):
    monkeypatch.setattr(idle_runs, "FEWEST_STEPS", 400)

    def slow(number):
        time.sleep(0.021)
        return number

    data = tf.data.Dataset.range(600).map(
        lambda n: tf.ensure_shape(tf1.py_func(slow, [n], tf.int64), [])
    )
    number = tf1.data.make_one_shot_iterator(data).get_next()
    kinds, _ = trained([step_of(number), number], steps=560)
    assert StepKind.FUSED not in kinds


def test_a_step_that_draws_random_numbers_runs_singly_and_the_log_says_so(caplog):
    noise = tf.random.normal([], seed=3, name="noise")
    kinds, _ = trained([step_of(), noise])
    assert StepKind.FUSED not in kinds
    assert told(caplog) == [
        "steps_per_run=auto: steps are run one by one, because the step draws random "
        "numbers, 'noise/RandomStandardNormal', whose generator the loop would start "
        "again"
    ]


class Watching(train.SessionRunHook):
    """A hook of a program, which sees each step."""

    steps = 0

    def after_run(self, run_context, run_values):
        self.steps += 1


def test_a_hook_of_a_program_sees_each_step_and_needs_no_line(caplog):
    hook = Watching()
    kinds, _ = trained(step_of(), [hook])
    assert kinds == [StepKind.PLANNED] * 2000
    assert (hook.steps, told(caplog)) == (2000, [])


@pytest.mark.parametrize("loop", ["plans", "stock"])
def test_the_other_loops_run_each_step_by_itself(loop, caplog):
    kinds, _ = trained(step_of(), loop=loop)
    assert len(kinds) == 2000 and StepKind.FUSED not in kinds
    assert told(caplog) == []


def told_error(error):
    """Return the type of an error, the op that it names, and its text without files."""
    lines = [line for line in error.message.splitlines() if "File " not in line]
    return type(error), error.op and error.op.name, lines


def trained_to_an_error(build, steps_per_run):
    """Return the number of calls, the last value, the global step, and the error."""
    with tf.Graph().as_default():
        fetches, values = build(), []
        hooks = [train.StopAtStepHook(5000)]
        try:
            with LoopSession(hooks=hooks, steps_per_run=steps_per_run) as session:
                try:
                    while True:
                        values.append(session.run(fetches)[1])
                finally:
                    raw = session._tf_sess()
                    trained = raw.run(train.get_global_step())
        except tf.errors.InvalidArgumentError as error:
            return len(values), values[-1], trained, told_error(error)
        return len(values), values[-1], trained, None


def ended_data():
    data = tf.data.Dataset.range(1234)
    number = tf1.data.make_one_shot_iterator(data).get_next()
    return [step_of(number), number]


def bad_number():
    data = tf.data.Dataset.range(5000)
    number = tf1.data.make_one_shot_iterator(data).get_next()
    inverse = tf.linalg.inv(tf.cast(tf.reshape(number - 1234, [1, 1]), tf.float32))
    return [step_of(inverse), number]


@pytest.mark.parametrize("build", [ended_data, bad_number])
def test_a_training_ends_as_with_single_steps(build):
    calls, *single = trained_to_an_error(build, 1)
    fewer, *together = trained_to_an_error(build, "auto")
    if build is bad_number:  # single steps have returned the value before the error
        single[0] = together[0] = None
    assert together == single
    assert fewer < calls


def test_the_end_of_the_data_is_that_of_the_programs_op():
    fetches = ended_data()
    with LoopSession(hooks=[train.StopAtStepHook(5000)], steps_per_run="auto") as s:
        with pytest.raises(tf.errors.OutOfRangeError) as raised:
            while True:
                s.run(fetches)
    assert raised.value.op is fetches[1].op
    assert "fused" not in raised.value.message


def test_hooks_see_the_step_of_a_nan():
    data = tf.data.Dataset.range(5000)
    number = tf1.data.make_one_shot_iterator(data).get_next()
    loss = tf.where(tf.equal(number, 1234), float("nan"), 1.0)
    step = step_of(loss)
    hook = train.NanTensorHook(loss, fail_on_nan_loss=False)
    kinds, values = trained([step, number], [hook], steps=5000)
    assert values[-1][1] == 1234
    assert StepKind.FUSED in kinds


def test_a_run_ends_by_the_clock_when_steps_become_slow():
    def slow(number):
        if number > 1000:
            time.sleep(0.01)
        return number

    data = tf.data.Dataset.range(5000).map(
        lambda n: tf.ensure_shape(tf1.py_func(slow, [n], tf.int64), [])
    )
    number = tf1.data.make_one_shot_iterator(data).get_next()
    step, secs, kinds = step_of(number), [], []
    with LoopSession(hooks=[train.StopAtStepHook(5000)], steps_per_run="auto") as s:
        last = 0
        while last < 1100:
            began = time.perf_counter()
            last = s.run([step, number])[1]
            secs.append(time.perf_counter() - began)
            kinds.append(s.step_kind)
    assert kinds[-1] is StepKind.FUSED
    assert max(secs) < 2  # of 4,000 steps that take 40 s


def test_a_clock_that_is_set_back_leaves_a_run_twice_the_steps_of_the_longest(
    monkeypatch,
):
    longest, last = 16, 0
    data = tf.data.Dataset.range(20_000)
    number = tf1.data.make_one_shot_iterator(data).get_next()
    step = step_of(number)
    # The deadline of each run is an hour away from the clock that the graph reads.
    ahead = types.SimpleNamespace(time=lambda: time.time() + 3600)
    monkeypatch.setattr(idle_runs, "time", ahead)
    with LoopSession(hooks=[train.StopAtStepHook(20_000)], steps_per_run="auto") as s:
        while not s.should_stop():
            steps = s.run([step, number])[1] + 1 - last
            assert steps <= 2 * longest
            longest, last = max(longest, steps), last + steps
    assert longest > 1000


def test_an_exception_during_a_run_leaves_hooks_that_have_counted_its_steps():
    class Interrupt(Exception):
        pass

    def interrupt(number, frame):
        raise Interrupt

    def nap(number):
        if number >= 1100:
            time.sleep(0.005)
        return number

    data = tf.data.Dataset.range(2000).map(
        lambda n: tf.ensure_shape(tf1.py_func(nap, [n], tf.int64), [])
    )
    number = tf1.data.make_one_shot_iterator(data).get_next()
    step, log = step_of(number), []
    every = train.LoggingTensorHook(
        {"number": number}, 1200, formatter=lambda v: log.append(v["number"]) or ""
    )
    before = signal.signal(signal.SIGALRM, interrupt)
    hooks = [train.StopAtStepHook(1250), every]
    try:
        with LoopSession(hooks=hooks, steps_per_run="auto") as session:
            while session._tf_sess().run(train.get_global_step()) < 1100:
                session.run(step)
            assert session.step_kind is StepKind.FUSED
            signal.setitimer(signal.ITIMER_REAL, 0.03)
            with pytest.raises(Interrupt):
                session.run(step)
            while not session.should_stop():
                session.run(step)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert log[1] - log[0] == 1200


def test_a_second_thread_makes_steps_run_singly(caplog):
    step = step_of()
    with LoopSession(hooks=[train.StopAtStepHook(10**8)], steps_per_run="auto") as s:
        for _ in range(40):
            s.run(step)
        assert s.step_kind is StepKind.FUSED
        thread = threading.Thread(target=lambda: s.run(step))
        thread.start()
        thread.join()
        before = s._tf_sess().run(train.get_global_step())
        s.run(step)
        assert s._tf_sess().run(train.get_global_step()) == before + 1
    assert "is run by several threads" in told(caplog)[-1]


def test_a_function_of_the_program_runs_single_steps():
    step = step_of()

    def run(step_context):
        return step_context.run_with_hooks(step)

    with LoopSession(hooks=[train.StopAtStepHook(1200)], steps_per_run="auto") as s:
        calls = 0
        while not s.should_stop():
            s.run_step_fn(run)
            calls += 1
    assert calls == 1200


def model_fn(features, labels, mode):
    weight = tf1.get_variable("weight", initializer=0.0)
    loss = tf.square(weight - features)
    optimizer = train.GradientDescentOptimizer(0.1)
    return tf.estimator.EstimatorSpec(
        mode,
        loss=loss,
        train_op=optimizer.minimize(loss, train.get_global_step()),
    )


@pytest.mark.parametrize(
    ("config", "is_fused"), [({}, True), ({"steps_per_run": 1}, False)]
)
def test_an_estimator_runs_steps_together_by_default_and_another_session_does_not(
    config, is_fused, tmp_path, caplog
):
    estimator = tf.estimator.Estimator(
        model_fn, config=tf.estimator.RunConfig(tmp_path, **config)
    )
    estimator.train(lambda: tf.data.Dataset.from_tensors(1.0).repeat(), steps=1200)
    assert bool(told(caplog)) == is_fused
    assert estimator.get_variable_value("global_step") == 1200
    step = step_of()
    hooks = [train.StopAtStepHook(1200)]
    with er.MonitoredTrainingSession(hooks=hooks, log_step_count_steps=None) as session:
        calls = 0
        while not session.should_stop():
            session.run(step)
            calls += 1
    assert calls == 1200


def test_a_session_that_a_listener_opens_in_a_training_runs_single_steps(
    tmp_path, monkeypatch
):
    class Pretraining(train.CheckpointSaverListener):
        def begin(self):
            with tf.Graph().as_default():
                step = step_of()
                count = train.get_global_step()
                with er.MonitoredTrainingSession() as session:
                    for _ in range(2000):
                        session.run(step)
                    self.trained = session.run(count)

    pretraining = Pretraining()
    estimator = tf.estimator.Estimator(model_fn, str(tmp_path))
    estimator.train(
        lambda: tf.data.Dataset.from_tensors(1.0).repeat(),
        steps=10,
        saving_listeners=[pretraining],
    )
    assert pretraining.trained == 2000


@pytest.fixture
def _deterministic():
    tf.config.experimental.enable_op_determinism()
    yield
    framework_config.disable_op_determinism()


@pytest.mark.usefixtures("_deterministic")
@pytest.mark.parametrize("steps_per_run", ["auto", 100])
def test_steps_run_singly_where_no_clock_may_be_read(steps_per_run, caplog):
    kinds, _ = trained(step_of(), steps_per_run=steps_per_run)
    assert StepKind.FUSED not in kinds
    assert told(caplog)[-1].endswith("cannot be timed (enable_op_determinism)")
