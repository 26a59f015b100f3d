"""Estimators trained by real clusters: good ends, and the table of faults.

What is asserted are events, exit statuses and checkpoint steps, not seconds: those
depend on the machine.
"""

import itertools
import os
import re
import signal
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
    ],
)
def test_a_job_ends_by_itself_with_the_last_step_saved(
    train, tmp_path, saved_step, options, arguments
):
    # TensorFlow would ask the proxy, at whose port nobody listens, for 127.0.0.1.
    job = train(options, *arguments, http_proxy="http://127.0.0.1:9")
    assert job.end() == 0, job.text
    assert saved_step() >= 100
    if "--evaluator" in options:
        assert list(tmp_path.glob("model/export/last/*/saved_model.pb"))
        assert list(tmp_path.glob("model/eval/events.*"))
    logs = sorted(path.name for path in tmp_path.glob("model/logs/*"))
    assert logs[0] == "chief-0.log"
    assert "done\n" in (tmp_path / "model" / "logs" / "chief-0.log").read_text()


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


@pytest.mark.parametrize(
    "task", ["worker 0", pytest.param("chief", marks=pytest.mark.smoke)]
)
def test_a_killed_trainer_comes_back_and_no_step_is_lost(
    train, tmp_path, saved_step, task
):
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
    assert saved_step() >= 200
    if task == "chief":
        assert "the parameter servers are alive at step" in job.text


def test_a_killed_ps_comes_back_and_costs_one_save_interval_at_most(
    train, tmp_path, saved_step
):
    job = train(_PS, "--steps", "100", "--save_steps", "20", "--gate", "40:go_on")
    before = _kill_at_gate(job, "ps 0", ("chief", "worker 0"))
    (tmp_path / "go_on").touch()
    assert job.end() == 0, job.text
    assert "ps 0 was killed by SIGKILL: restarting it now (1 of 3)" in job.text
    assert saved_step() >= 100
    steps = _steps(job)
    falls = [(a, b) for a, b in itertools.pairwise(steps) if b < a]
    # Two trainers may each be a step beyond the interval when it is saved.
    assert all(b > a - 2 * 20 - 2 for a, b in falls) and before < 100


def test_a_chief_that_is_killed_in_a_second_training_adopts_the_live_ps(
    launch, tmp_path, saved_step
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
    assert saved_step() == 40


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
def test_a_killed_task_of_a_mirrored_strategy_restarts_the_gang(
    train, tmp_path, saved_step, task
):
    job = train(_MWMS, "--strategy", "mwms", "--gate", "40:go_on")
    _kill_at_gate(job, task, ("chief", "worker 0"))
    killed = job.wait_for(
        rf"^launcher +\| {task} was killed by SIGKILL: restarting all trainers now"
    )
    (tmp_path / "go_on").touch()
    assert job.end() == 0, job.text
    assert saved_step() == 100
    assert "(2 of 3)" not in job.text
    # TensorFlow warns of much when a program starts, and again when it is restarted.
    at_first = job.text.partition("| step ")[0].count("\n")
    told = job.text[killed.end() :].partition("| step ")[0].count("\n")
    assert told <= at_first + 50, job.text


_EARLY = (
    """
import logging
import os
import sys

import tensorflow as tf

v1 = tf.compat.v1


class Step3(tf.estimator.SessionRunHook):
    def before_run(self, context):
        return v1.train.SessionRunArgs(v1.train.get_global_step())

    def after_run(self, context, values):
        if values.results >= 3:
            if sys.argv[1] == "leaves":
                os._exit(0)
            raise KeyError("of step 3")


"""
    + _MODEL
    + """


try:
    tf.estimator.train_and_evaluate(
        tf.estimator.Estimator(model_fn, "model"),
        tf.estimator.TrainSpec(input_fn, max_steps=20, hooks=[Step3()]),
        tf.estimator.EvalSpec(input_fn, steps=1),
    )
except KeyError:
    logging.exception("a step failed")
"""
)


@pytest.mark.parametrize("program", ["catches", "leaves"])
def test_a_chief_that_exits_with_0_before_its_training_ended_has_failed(
    launch, tmp_path, program
):
    (tmp_path / "early.py").write_text(_EARLY)
    job = launch("--evaluator", "--max-restarts", "1", "early.py", program)
    assert job.end() == 1, job.text
    early = (
        f"chief exited with status 0 before its training in '{tmp_path}/model' had "
        "finished (does the program catch an error, or exit early? let the error "
        "propagate, or exit with another status): "
    )
    assert f"| {early}restarting it now (1 of 1)" in job.text
    # Either used up, or the same failure at the same step, if that was reported yet.
    assert f"\nestimator-runtime: {early}" in job.text


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
    assert f"log: {tmp_path}/model/logs/{log}\n" in job.text
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
    train, tmp_path, saved_step, task, options, strategy
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
    assert saved_step() >= 100


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


@pytest.mark.parametrize("place", ["call", "generator"])
def test_an_input_that_blocks_is_named_with_where_it_does(launch, tmp_path, place):
    program = tmp_path / "blocks.py"
    program.write_text(_BLOCKS)
    job = launch(*_PS, program, place, ESTIMATOR_RUNTIME_STALL_SECS="2")
    job.wait_for(
        r"^launcher +\| worker 0 has taken no step for \d+ s; what it writes next is "
        r"where each of its threads is\n(?s:.*?)"
        r"^worker 0 +\|   File \"\S*blocks\.py\", line 11 in block$"
    )
    (tmp_path / "go").touch()
    assert job.end() == 0, job.text
    assert "killing it" not in job.text


def test_a_ps_for_a_mirrored_strategy_is_refused_in_one_line(train):
    job = train(_PS, "--strategy", "mwms")
    assert job.end() == 1
    assert "restarting" not in job.text
    assert re.search(
        r"^  \S+train\.py:\d+: TF_CONFIG: cluster has the job "
        r"'ps', and MultiWorkerMirroredStrategy keeps all variables in its workers; ",
        job.text,
        re.M,
    )


def test_a_killed_launcher_takes_a_warm_job_with_it(train):
    job = train((*_PS, "--evaluator"), "--steps", "100000", "--step_secs", "0.02")
    job.wait_for(r"^worker 0 *\| step \d+$")
    job.process.kill()
    assert job.end() == -signal.SIGKILL
