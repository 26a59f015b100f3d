"""Hooks act at the steps at which they act in stock, with any number of steps a run."""

import pytest
import tensorflow as tf
from tensorflow.python.training import monitored_session

import estimator_runtime as er
from estimator_runtime.config import options

tf1 = tf.compat.v1
train = tf1.train
FUSED = "estimator_runtime.loop.run_length"


class Watcher(train.SessionRunHook):
    """Writes down what it sees, through TensorFlow's log, which is compared."""

    def __init__(self, *tensors):
        self._tensors = list(tensors)

    def begin(self):
        self._step = train.get_global_step()

    def before_run(self, run_context):
        return train.SessionRunArgs([self._step, *self._tensors])

    def after_run(self, run_context, run_values):
        now = run_context.session.run(self._step)
        tf1.logging.info("%s saw %s, then %s", type(self).__name__, run_values, now)


def log_loss(loss, every_n_iter=6, **arguments):
    return train.LoggingTensorHook({"seen": loss}, every_n_iter, **arguments)


def fused_log(caplog):
    return [r.getMessage() for r in caplog.records if r.name == FUSED]


@pytest.mark.parametrize(
    "intervals",
    [
        {"save_checkpoints_steps": 9, "save_summary_steps": 5},
        {"save_checkpoints_steps": 1, "log_step_count_steps": 7},
        {"save_checkpoints_steps": None, "save_checkpoints_secs": 600},
    ],
)
def test_savers_act_at_stocks_steps(intervals, training):
    this = training.replace(config=intervals, train={"steps": 22})
    stock = this.stock()
    assert [this.ours(k) for k in (2, 7, 100)] == [stock, stock, stock]


@pytest.mark.parametrize(
    ("arguments", "last"),
    [({"steps": 1}, 1), ({"steps": 13}, 13), ({"max_steps": 8}, 8)],
)
def test_training_stops_at_the_step_that_it_was_given(arguments, last, training):
    this = training.replace(train=arguments)
    outcome = this.ours(5)
    assert outcome == this.stock()
    assert outcome.checkpoints == [0, last]


def test_max_steps_counts_the_steps_of_earlier_trainings(training, tmp_path):
    this = training.replace(train={"max_steps": 8})
    for folder, last in [("a", 8), ("b", 11)]:
        this.stock(tmp_path / folder)
        more = this.replace(train={"max_steps": last})
        assert more.ours(5, tmp_path / folder).checkpoints == sorted({0, 8, last})


HOOKS = {
    "logs each step": lambda loss: [log_loss(loss, 1)],
    "two logs": lambda loss: [log_loss(loss), log_loss(2 * loss, 4, at_end=True)],
    "logs by the clock": lambda loss: [log_loss(loss, None, every_n_secs=600)],
    "stops between": lambda loss: [log_loss(loss), train.StopAtStepHook(last_step=11)],
    "final ops": lambda loss: [train.FinalOpsHook(loss)],
    "each step": lambda loss: [Watcher(loss)],
}


@pytest.mark.parametrize("hooks", HOOKS.values(), ids=HOOKS)
def test_a_models_hooks_act_at_stocks_steps(hooks, training):
    this = training.replace(hooks=hooks, config={"log_step_count_steps": 9})
    assert this.ours(7) == this.stock()


def test_a_hook_that_says_nothing_sees_every_step_and_the_log_says_so_once(
    training, caplog
):
    outcome = training.replace(hooks=lambda loss: [Watcher(loss)]).ours(7)
    assert sum(line.startswith("Watcher saw ") for line in outcome.log) == 20
    assert fused_log(caplog) == [
        "steps_per_run=7: steps are run one by one, because the step must be seen by "
        "Watcher"
    ]


def test_steps_are_fused_if_only_hooks_have_control_flow_of_tensorflow_1(
    old_control_flow, train_in_a_loop, seen_steps, caplog
):
    def build():
        weights = tf1.get_variable("weights", [8])
        loss = tf.reduce_sum(tf.square(weights))
        step = train.get_or_create_global_step()
        train_op = train.AdamOptimizer(0.1).minimize(loss, step)
        return [train_op, loss], [train.StopAtStepHook(22), train.NanTensorHook(loss)]

    stock, last = train_in_a_loop(build)
    seen_steps.clear()
    ours, our_last = train_in_a_loop(build, 7)
    assert (ours.variables, our_last) == (stock.variables, last)
    assert (ours.error, ours.checkpoints) == (None, [0, 22])
    assert len(seen_steps) == 3  # the first two steps, and the last one
    assert fused_log(caplog) == []


def test_a_hook_that_is_given_twice_counts_each_step_twice(training, caplog):
    this = training.replace(hooks=lambda loss: [log_loss(loss, 10)] * 2)
    outcome = this.ours(7)
    assert outcome == this.stock()
    assert sum(line.startswith("seen = ") for line in outcome.log) == 8
    assert fused_log(caplog) == [
        "steps_per_run=7: steps are run one by one, because the step is seen twice by "
        "one LoggingTensorHook"
    ]


def test_profiles_are_taken_at_stocks_steps(training, tmp_path):
    def profiled(folder):
        folder.mkdir()
        return training.replace(
            hooks=lambda loss: [train.ProfilerHook(6, output_dir=str(folder))],
        )

    stock = profiled(tmp_path / "stock").stock()
    ours = profiled(tmp_path / "ours").ours(7)
    assert ours.variables == stock.variables
    for folder in ("stock", "ours"):
        timelines = sorted(path.name for path in (tmp_path / folder).glob("time*"))
        assert timelines == [f"timeline-{step}.json" for step in (12, 18, 6)]


def stop_at_third_look(estimator):
    looks = []
    return {
        "steps": 40,
        "hooks": [
            tf.estimator.experimental.make_early_stopping_hook(
                estimator,
                lambda: looks.append(1) or len(looks) == 3,
                run_every_secs=None,
                run_every_steps=6,
            )
        ],
    }


def test_early_stopping_stops_at_stocks_step(training, caplog):
    config = {"save_checkpoints_steps": 5}
    this = training.replace(train=stop_at_third_look, config=config)
    outcome = this.stock()
    assert [this.ours(4), this.ours(100)] == [outcome, outcome]
    assert outcome.checkpoints[-1] == 13
    assert fused_log(caplog) == []


def test_a_listener_that_asks_for_a_stop_gets_it_at_its_checkpoint(training):
    class Stops(train.CheckpointSaverListener):
        def after_save(self, session, global_step_value):
            return global_step_value == 12

    this = training.replace(
        train=lambda estimator: {"steps": 40, "saving_listeners": [Stops()]},
        config={"save_checkpoints_steps": 6},
    )
    outcome = this.ours(100)
    assert outcome == this.stock()
    assert outcome.checkpoints == [0, 6, 12]


def test_steps_that_are_trained_between_runs_count():
    def trained(make_session):
        with tf.Graph().as_default():
            step = train.get_or_create_global_step()
            with tf.control_dependencies([step._graph_element]):
                train_op = step.assign_add(1).op
            hooks = [train.StopAtStepHook(last_step=30)]
            with make_session(hooks=hooks) as session:
                raw = session._tf_sess()
                while not session.should_stop():
                    session.run(train_op)
                    if raw.run(step) <= 20:
                        raw.run(train_op)
                        raw.run(train_op)
                return raw.run(step)

    stock = trained(monitored_session.MonitoredTrainingSession)
    for steps_per_run in (4, 7, 100):
        with options.use(options.TrainingOptions(steps_per_run=steps_per_run)):
            assert trained(er.MonitoredTrainingSession) == stock
    assert stock == 30
