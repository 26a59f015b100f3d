"""Estimators trained by real clusters: good ends, and the table of faults.

What is asserted are events, exit statuses and checkpoint steps, not seconds: those
depend on the machine.
"""

import itertools
import os
import re
import signal
import textwrap
from pathlib import Path

import pytest
import tensorflow as tf

pytestmark = pytest.mark.long("whole jobs lose tasks and start them again")

_PROGRAM = Path(__file__).parents[1] / "programs" / "train.py"
_PS = ("--workers", "1", "--ps", "1")
_MWMS = ("--workers", "1")


@pytest.fixture
def train(launch):
    """Return a function that starts a job of the program."""

    def start(options, *arguments, **environ):
        return launch(*options, _PROGRAM, *arguments, **environ)

    return start


def _pid(job, task, life=0):
    return int(job.wait_for(rf"^{task} *\| pid (\d+)$", count=life + 1)[1])


def _steps(job, task="chief"):
    return [int(n) for n in re.findall(rf"^{task} *\| step (\d+)$", job.text, re.M)]


def _kill_at_gate(job, task, others=("chief",), number=signal.SIGKILL):
    """Send a signal to a task when all are at the gate of step 40; give the step."""
    for each in {*others, task} - {"ps 0"}:
        job.wait_for(rf"^{each} *\| step [4-9]\d$")
    os.kill(_pid(job, task), number)
    return max(_steps(job))


def _saved_step(tmp_path):
    path = tf.train.latest_checkpoint(str(tmp_path / "model"))
    return int(tf.train.load_checkpoint(path).get_tensor("global_step"))


@pytest.mark.parametrize(
    "options, arguments",
    [
        pytest.param((*_PS, "--evaluator"), [], id="ps", marks=pytest.mark.smoke),
        pytest.param((*_PS, "--cold"), ["--strategy", "ps"], id="ps strategy, cold"),
        pytest.param(_PS, ["--sync", "2"], id="ps, synchronous"),
        pytest.param(
            (*_MWMS, "--evaluator"),
            ["--strategy", "mwms"],
            id="mwms",
            marks=pytest.mark.smoke,
        ),
        pytest.param(("--evaluator",), [], id="chief"),
    ],
)
def test_a_job_ends_by_itself_with_the_last_step_saved(
    train, tmp_path, options, arguments
):
    # TensorFlow would ask the proxy, at whose port nobody listens, for 127.0.0.1.
    job = train(options, *arguments, http_proxy="http://127.0.0.1:9")
    assert job.end() == 0, job.text
    assert _saved_step(tmp_path) >= 100
    if "--evaluator" in options:
        assert list(tmp_path.glob("model/export/last/*/saved_model.pb"))
        assert list(tmp_path.glob("model/eval/events.*"))
    logs = sorted(path.name for path in tmp_path.glob("model/logs/*"))
    assert logs[0] == "chief-0.log"
    assert "done\n" in (tmp_path / "model" / "logs" / "chief-0.log").read_text()


def test_a_last_checkpoint_whose_name_is_a_step_behind_its_values_ends_a_job_well(
    launch, tmp_path
):
    """Workers may take steps between the reads for the two; here a listener does."""
    program = tmp_path / "late_step.py"
    program.write_text(_LATE_STEP)
    job = launch("--ps", "1", program)
    assert job.end() == 0, job.text
    assert _saved_step(tmp_path) == 4
    assert (tmp_path / "model" / "model.ckpt-3.index").exists()
    assert "is done at step 3" in job.text


def test_a_program_may_change_its_folder_and_train_one_model_after_another(
    launch, tmp_path
):
    """Without a tensor `global_step` in its checkpoints, as of tf.train.Checkpoint."""
    (tmp_path / "elsewhere").mkdir()
    program = tmp_path / "two_models.py"
    program.write_text(_TWO_MODELS)
    job = launch("--evaluator", program)
    assert job.end() == 0, job.text
    for name in ("first", "second"):
        folder = tmp_path / "elsewhere" / name
        state = tf.train.latest_checkpoint(str(folder))
        assert state == str(folder / "model.ckpt-4")
        assert "global_step" not in dict(tf.train.list_variables(state))
    assert (tmp_path / "elsewhere" / "first" / "logs" / "chief-0.log").exists()
    assert not (tmp_path / "first").exists()


_TWO_MODELS = """
import os

import tensorflow as tf

v1 = tf.compat.v1
os.chdir("elsewhere")


def model_fn(features, labels, mode):
    weight = v1.get_variable("weight", initializer=0.0, use_resource=True)
    loss = tf.square(weight - 1.0)
    step = v1.train.get_or_create_global_step()
    train_op = v1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
    saver = tf.train.Checkpoint(step=step, weight=weight)
    scaffold = v1.train.Scaffold(saver=saver)
    return tf.estimator.EstimatorSpec(
        mode, loss=loss, train_op=train_op, scaffold=scaffold
    )


def input_fn():
    return tf.data.Dataset.from_tensors(([1.0], [1.0])).repeat()


for name in ("first", "second"):
    tf.estimator.train_and_evaluate(
        tf.estimator.Estimator(model_fn, name),
        tf.estimator.TrainSpec(input_fn, max_steps=4),
        tf.estimator.EvalSpec(input_fn, steps=1, throttle_secs=0, start_delay_secs=0),
    )
"""


_MODEL = """
def model_fn(features, labels, mode):
    weight = v1.get_variable("weight", initializer=0.0)
    loss = tf.square(weight - 1.0)
    optimizer = v1.train.GradientDescentOptimizer(0.1)
    train_op = optimizer.minimize(loss, v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def input_fn():
    return tf.data.Dataset.from_tensors(([1.0], [1.0])).repeat()
"""


_LATE_STEP = (
    """
import tensorflow as tf

v1 = tf.compat.v1


class OneMoreStep(v1.train.CheckpointSaverListener):
    def begin(self):
        with tf.control_dependencies(None):
            self.add = v1.train.get_or_create_global_step().assign_add(1).op

    def before_save(self, session, step):
        if step == 3:
            session.run(self.add)


"""
    + _MODEL
    + """


tf.estimator.train_and_evaluate(
    tf.estimator.Estimator(model_fn, "model"),
    tf.estimator.TrainSpec(input_fn, max_steps=3, saving_listeners=[OneMoreStep()]),
    tf.estimator.EvalSpec(input_fn, steps=1),
)
"""
)


@pytest.mark.parametrize(
    "task", ["worker 0", pytest.param("chief", marks=pytest.mark.smoke)]
)
def test_a_killed_trainer_comes_back_and_no_step_is_lost(train, tmp_path, task):
    job = train(
        _PS,
        *("--steps", "200", "--save_steps", "1000"),
        *("--gate", "40:rejoin", "--gate", "100:end"),
    )
    before = _kill_at_gate(job, task, ("chief", "worker 0"))
    job.wait_for(rf"^launcher +\| {task} was killed by SIGKILL: restarting it now")
    (tmp_path / "rejoin").touch()
    job.wait_for(rf"^{task} *\| step 1\d\d$")
    (tmp_path / "end").touch()
    assert job.end() == 0, job.text
    steps = _steps(job)
    assert steps == sorted(steps), "the global step fell"
    assert max(_steps(job, task)) > before
    assert _saved_step(tmp_path) >= 200
    if task == "chief":
        assert "the parameter servers are alive at step" in job.text


def test_a_killed_ps_comes_back_and_costs_one_save_interval_at_most(train, tmp_path):
    job = train(_PS, "--steps", "100", "--save_steps", "20", "--gate", "40:go_on")
    before = _kill_at_gate(job, "ps 0", ("chief", "worker 0"))
    (tmp_path / "go_on").touch()
    assert job.end() == 0, job.text
    assert "ps 0 was killed by SIGKILL: restarting it now (1 of 3)" in job.text
    assert _saved_step(tmp_path) >= 100
    steps = _steps(job)
    falls = [(a, b) for a, b in itertools.pairwise(steps) if b < a]
    # Two trainers may each be a step beyond the interval when it is saved.
    assert all(b > a - 2 * 20 - 2 for a, b in falls) and before < 100


def test_a_chief_that_is_killed_in_a_second_training_adopts_the_live_ps(
    launch, tmp_path
):
    """The first has left the note in the folder that a training has ended."""
    program = tmp_path / "two_trainings.py"
    program.write_text(_TWO_TRAININGS)
    job = launch("--ps", "1", program)
    job.wait_for(r"^chief *\| is at step 20$")
    os.kill(_pid(job, "chief"), signal.SIGKILL)
    job.wait_for(r"^launcher +\| chief was killed by SIGKILL: restarting it now")
    (tmp_path / "go_on").touch()
    assert job.end() == 0, job.text
    assert "ps 0 ended" not in job.text
    assert re.search(r"the parameter servers are alive at step 2\d;", job.text)
    assert _saved_step(tmp_path) == 40


_TWO_TRAININGS = (
    """
import os, time

import tensorflow as tf

v1 = tf.compat.v1
print("pid", os.getpid(), flush=True)


class Gate(v1.train.SessionRunHook):
    def begin(self):
        self.step = v1.train.get_global_step()

    def after_run(self, context, values):
        step = context.session.run(self.step)
        if step == 20:
            print("is at step", step, flush=True)
        deadline = time.monotonic() + 120
        while step >= 20 and not os.path.exists("go_on"):
            assert time.monotonic() < deadline
            time.sleep(0.02)


"""
    + _MODEL
    + """


estimator = tf.estimator.Estimator(
    model_fn, config=tf.estimator.RunConfig("model", save_checkpoints_steps=1000)
)
tf.estimator.train_and_evaluate(
    estimator,
    tf.estimator.TrainSpec(input_fn, max_steps=10),
    tf.estimator.EvalSpec(input_fn, steps=1),
)
estimator.train(input_fn, max_steps=40, hooks=[Gate()])
"""
)


@pytest.mark.parametrize("task", ["worker 0", "chief"])
def test_a_killed_task_of_a_mirrored_strategy_restarts_the_gang(train, tmp_path, task):
    job = train(_MWMS, "--strategy", "mwms", "--gate", "40:go_on")
    _kill_at_gate(job, task, ("chief", "worker 0"))
    killed = job.wait_for(
        rf"^launcher +\| {task} was killed by SIGKILL: restarting all trainers now"
    )
    (tmp_path / "go_on").touch()
    assert job.end() == 0, job.text
    assert _saved_step(tmp_path) == 100
    assert "(2 of 3)" not in job.text
    # TensorFlow warns of much when a program starts, and again when it is restarted.
    at_first = job.text.partition("| step ")[0].count("\n")
    told = job.text[killed.end() :].partition("| step ")[0].count("\n")
    assert told <= at_first + 50, job.text


def test_a_session_of_ones_own_names_where_the_logs_and_checkpoints_are(
    launch, tmp_path
):
    (tmp_path / "own.py").write_text(
        textwrap.dedent(
            """
            import tensorflow as tf
            from estimator_runtime import MonitoredTrainingSession

            with tf.Graph().as_default():
                train_op = tf.compat.v1.train.get_or_create_global_step().assign_add(1)
                with MonitoredTrainingSession(checkpoint_dir="model") as session:
                    while session.run(train_op) < 10:
                        pass
            print("trained", flush=True)
            raise KeyError("after it")
            """
        )
    )
    job = launch("--workers", "0", "--ps", "0", "--max-restarts", "0", "own.py")
    assert job.end() == 1
    assert job.text.endswith(
        f"whole log: {tmp_path}/model/logs/chief-0.log\n"
        f"newest good checkpoint: {tmp_path}/model/model.ckpt-10\n"
    )
    log = tmp_path / "model" / "logs" / "chief-0.log"
    assert "trained" in log.read_text().splitlines()


_CATCHES = """
try:
    train("model", [FailAt(3)])
except KeyError:
    logging.exception("a step failed")
"""

_LEAVES = """
class Leave(tf.estimator.SessionRunHook):
    def after_run(self, context, values):
        os._exit(0)


train("model", [Leave()])
"""

_OWN_LOOP = """
from estimator_runtime import MonitoredTrainingSession

try:
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step().assign_add(1)
        with MonitoredTrainingSession(checkpoint_dir="model") as session:
            while session.run(step) < 3:
                pass
            raise KeyError("of step 3")
except KeyError:
    logging.exception("a step failed")
"""

_TRIES_AGAIN = """
try:
    train("model", [FailAt(3)])
except KeyError:
    tf.estimator.Estimator(model_fn, "model").train(input_fn, max_steps=20)
    train("model")
    train("other")
os._exit(0)
"""

_TRIES_ANOTHER = """
try:
    train("model", [FailAt(3)])
except KeyError:
    train("other")
"""


@pytest.mark.parametrize(
    "program", [_CATCHES, _LEAVES, _OWN_LOOP], ids=["catches", "leaves", "own loop"]
)
def test_a_chief_that_exits_with_0_before_its_training_ended_has_failed(
    launch, tmp_path, program
):
    (tmp_path / "early.py").write_text(_EARLY + program)
    job = launch("--evaluator", "--max-restarts", "1", "early.py")
    assert job.end() == 1, job.text
    early = (
        f"chief exited with status 0 before its training in '{tmp_path}/model' had "
        "finished (does the program catch an error, or exit early? let the error "
        "propagate, or exit with another status): "
    )
    assert f"| {early}restarting it now (1 of 1)" in job.text
    # Either used up, or the same failure at the same step, if that was reported yet.
    assert f"\nestimator-runtime: {early}" in job.text


@pytest.mark.parametrize(
    "program", [_TRIES_AGAIN, _TRIES_ANOTHER], ids=["again", "another"]
)
def test_a_chief_that_exits_with_0_when_its_last_training_ended_is_done(
    launch, tmp_path, program
):
    (tmp_path / "again.py").write_text(_EARLY + program)
    job = launch("--max-restarts", "0", "--workers", "0", "--ps", "0", "again.py")
    assert job.end() == 0, job.text
    assert f"the job is done at step 20, in {tmp_path}/other/model.ckpt-20" in job.text


_EARLY = (
    """
import logging
import os

import tensorflow as tf

v1 = tf.compat.v1


class FailAt(tf.estimator.SessionRunHook):
    def __init__(self, step):
        self.step = step

    def before_run(self, context):
        return v1.train.SessionRunArgs(v1.train.get_global_step())

    def after_run(self, context, values):
        if values.results >= self.step:
            raise KeyError(f"of step {values.results}")


def train(folder, hooks=()):
    tf.estimator.train_and_evaluate(
        tf.estimator.Estimator(model_fn, folder),
        tf.estimator.TrainSpec(input_fn, max_steps=20, hooks=hooks),
        tf.estimator.EvalSpec(input_fn, steps=1, start_delay_secs=0, throttle_secs=0),
    )
"""
    + _MODEL
)


@pytest.mark.parametrize("task", ["chief", "ps 0"])
def test_a_task_that_is_gone_for_good_fails_the_job_and_is_named(train, tmp_path, task):
    job = train((*_PS, "--max-restarts", "0"), "--gate", "40:go_on")
    _kill_at_gate(job, task)
    (tmp_path / "go_on").touch()
    assert job.end() == 1
    saved = tf.train.latest_checkpoint(str(tmp_path / "model"))
    assert job.text[job.text.index("estimator-runtime: ") :].startswith(
        f"estimator-runtime: {task} was killed by SIGKILL: no restarts\n"
    )
    log = f"{task.replace(' ', '-') if ' ' in task else task + '-0'}.log"
    assert f"whole log: {tmp_path}/model/logs/{log}\n" in job.text
    assert job.text.endswith(f"newest good checkpoint: {saved}\n")


@pytest.mark.parametrize(
    "task, options, strategy",
    [
        ("worker 0", _PS, "none"),
        ("chief", _PS, "none"),
        ("ps 0", _PS, "none"),
        ("worker 0", _MWMS, "mwms"),
    ],
)
def test_a_stopped_task_is_named_then_killed_and_restarted(
    train, tmp_path, task, options, strategy
):
    job = train(
        (*options, "--heartbeat-timeout", "10"),
        *("--strategy", strategy, "--gate", "40:go_on"),
    )
    _kill_at_gate(job, task, ("chief", "worker 0"), signal.SIGSTOP)
    job.wait_for(rf"^launcher +\| {task} has given no sign of life for \d+ s \(is it")
    job.wait_for(rf"^launcher +\| {task} gave no sign of life for \d+ s: killing it$")
    assert _pid(job, task, life=1)
    (tmp_path / "go_on").touch()
    assert job.end() == 0, job.text
    assert _saved_step(tmp_path) >= 100


_BLOCKS = """
import itertools, json, os, sys, time

import tensorflow as tf

is_worker = json.loads(os.environ["TF_CONFIG"])["task"]["type"] == "worker"


def block():
    while not os.path.exists("go"):
        time.sleep(0.1)


def generate():
    for number in itertools.count():
        # The worker comes to its second step before the chief to the last of all.
        if number >= (1 if is_worker else 5):
            block()
        yield [1.0]


def input_fn():
    if is_worker and sys.argv[1] == "call":
        block()
    return tf.data.Dataset.from_generator(generate, tf.float32, [1]).map(
        lambda value: (value, value)
    )


def model_fn(features, labels, mode):
    loss = tf.reduce_mean(tf.compat.v1.get_variable("weight", initializer=0.0) * labels)
    step = tf.compat.v1.train.get_global_step()
    train_op = tf.compat.v1.train.GradientDescentOptimizer(0.01).minimize(loss, step)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


tf.estimator.train_and_evaluate(
    tf.estimator.Estimator(model_fn, "model"),
    tf.estimator.TrainSpec(input_fn, max_steps=20),
    tf.estimator.EvalSpec(input_fn, steps=1),
)
"""


@pytest.mark.parametrize(
    "place, where",
    [
        ("call", ""),
        ("generator", r"(?s:.*?)^launcher +\| and another of its threads at:\n"),
    ],
)
def test_an_input_that_blocks_is_named_with_where_it_does(
    launch, tmp_path, place, where
):
    program = tmp_path / "blocks.py"
    program.write_text(_BLOCKS)
    job = launch(*_PS, program, place, ESTIMATOR_RUNTIME_STALL_SECS="2")
    job.wait_for(
        r"^launcher +\| worker 0 has taken no step for \d+ s; it is at:\n"
        + where
        + r"(launcher +\|   \S.*\n)+?"
        + r"launcher +\|   \S*blocks\.py:11, in block$"
    )
    (tmp_path / "go").touch()
    assert job.end() == 0, job.text
    assert "killing it" not in job.text


def test_a_ps_for_a_mirrored_strategy_is_refused_in_one_line(train):
    job = train(_PS, "--strategy", "mwms")
    assert job.end() == 1
    assert "restarting" not in job.text
    assert re.search(
        r"^  estimator-runtime: error: \S+train\.py:\d+: TF_CONFIG: cluster has the job "
        r"'ps', and MultiWorkerMirroredStrategy keeps all variables in its workers; ",
        job.text,
        re.M,
    )


def test_a_killed_launcher_takes_a_warm_job_with_it(train):
    job = train((*_PS, "--evaluator"), "--steps", "100000", "--step_secs", "0.02")
    job.wait_for(r"^worker 0 *\| step \d+$")
    job.process.kill()
    assert job.end() == -signal.SIGKILL
