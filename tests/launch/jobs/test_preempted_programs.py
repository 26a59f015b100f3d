"""Programs that are told to end while they train in one process: real signals."""

import fcntl
import operator
import os
import re
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
import tensorflow as tf

_NAME = operator.attrgetter("name")
_PROGRAM = str(Path(__file__).parents[1] / "programs" / "preempted.py")
_STOPPING = (
    r"{}: stopping after this step, with a checkpoint of it; the same again ends"
)


@pytest.fixture
def program(launch):
    """Return a function that starts the script, of (arguments, options, environment)."""

    def start(*arguments, options=(), **environ):
        return launch(*options, _PROGRAM, *arguments, **environ)

    return start


def _send(run, number):
    # The same signal again within a tenth of a second is the same request.
    time.sleep(0.15)
    run.process.send_signal(number)


def _end(run):
    """Wait for the end; return the exit status as a shell does."""
    status = run.end()
    return status if status >= 0 else 128 - status


def _last_step(run):
    """Return the last step that it has printed."""
    return int(re.findall(r"^step (\d+)$", run.text, re.M)[-1])


def _wait_for_first_checkpoint(run, tmp_path):
    deadline = time.monotonic() + 90
    while not (tmp_path / "model" / "checkpoint").exists():
        assert run.process.poll() is None, run.text
        assert time.monotonic() < deadline, run.text
        time.sleep(0.02)


@pytest.mark.parametrize(
    "arguments, options",
    [
        (("--only_train",), ()),
        ((), ("--steps-per-run", "7")),
        (("--only_train",), ("--loop", "stock")),
    ],
    ids=["train", "train_and_evaluate, fused", "train, TensorFlow's loop"],
)
@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT], ids=_NAME
)
def test_a_signal_ends_the_program_when_the_last_step_is_saved(
    program, saved_step, number, arguments, options
):
    run = program(*arguments, options=options)
    run.wait_for(r"^step \d+$")
    _send(run, number)
    assert _end(run) == 128 + number, run.text
    assert saved_step() == _last_step(run), run.text
    assert "done" not in run.text.splitlines()
    assert "Traceback" not in run.text
    name, step = signal.Signals(number).name, _last_step(run)
    assert run.text.splitlines()[-2:] == [
        f"estimator-runtime: stopped by {name} at step {step}; it is saved in "
        f"model/model.ckpt-{step}",
        "estimator-runtime: run the same command again to go on from there",
    ]


def test_a_signal_in_a_run_of_slow_steps_ends_it_within_the_grace(program, saved_step):
    run = program(
        *("--only_train", "--data_secs", "0.4", "--step_secs", "0"),
        options=("--steps-per-run", "100", "--grace", "15"),
    )
    run.wait_for(r"^step 1$")
    _send(run, signal.SIGTERM)
    assert _end(run) == 143, run.text
    assert saved_step() == _last_step(run), run.text
    assert "did not end" not in run.text


def test_a_terminal_that_closes_ends_the_program_when_the_last_step_is_saved(tmp_path):
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    ours, theirs = os.openpty()
    with (tmp_path / "steps").open("wb") as steps:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "estimator_runtime", "run", "--progress=bar"),
                *(_PROGRAM, "--only_train"),
            ],
            cwd=tmp_path,
            env={**inherited, "TF_CPP_MIN_LOG_LEVEL": "3"},
            stdin=theirs,
            stdout=steps,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: _take_terminal(theirs),
        )
    os.close(theirs)
    try:
        shown = b""
        while b"step/s" not in shown:  # the bar is up
            assert select.select([ours], [], [], 60)[0], shown
            shown += os.read(ours, 65536)
        os.close(ours)  # the kernel sends SIGHUP; what is written from now on fails
        process.wait(60)
    finally:
        process.kill()
        process.wait()
    last_step = int((tmp_path / "steps").read_text().split()[-1])
    saved = tf.train.load_checkpoint(str(tmp_path / "model"))
    assert saved.get_tensor("global_step") == last_step > 0
    # Python's own, where it cannot flush at its exit what was written to the terminal.
    assert process.returncode == 120


def _take_terminal(terminal):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)


@pytest.mark.smoke
def test_a_later_run_goes_on_from_the_step_at_which_a_signal_has_stopped(program):
    first = program("--at", "step 5")
    assert _end(first) == 143, first.text
    later = program("--only_train", "--steps", "7")
    assert later.end() == 0, later.text
    steps = re.findall(r"^step (\d+)$", later.text, re.M)
    assert steps == ["6", "7"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=_NAME)
def test_a_signal_while_the_model_is_built_ends_the_program_at_once(
    program, tmp_path, number
):
    run = program("--at", "model_fn train", "--signal", number.name)
    assert _end(run) == 128 + number, run.text
    assert run.text.splitlines()[-2:] == [
        f"estimator-runtime: stopped by {number.name}; no step was under way here",
        "estimator-runtime: run the same command again to go on",
    ]
    assert not list(tmp_path.glob("model/*.index"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=_NAME)
def test_a_signal_during_an_evaluation_ends_it_soon(
    program, tmp_path, saved_step, number
):
    # The evaluation's data has no end, and nor has the evaluation.
    run = program("--save_steps", "5", "--at", "evaluation", "--signal", number.name)
    assert _end(run) == 128 + number, run.text
    assert saved_step() == _last_step(run) == 5
    assert run.text.splitlines().count("evaluation") == 1
    assert "the evaluation was ended, because the training has to stop" in run.text
    assert not list(tmp_path.glob("model/eval/events.*"))


def test_a_signal_in_the_evaluation_after_the_last_step_still_says_so(
    program, saved_step
):
    run = program("--steps", "3", "--at", "evaluation")
    assert _end(run) == 143, run.text
    assert saved_step() == _last_step(run) == 3
    assert "done" not in run.text.splitlines()


def test_a_second_sigterm_ends_a_step_that_hangs(program, tmp_path, saved_step):
    run = program("--hang", "tensorflow", "--only_train")
    run.wait_for("^hangs$")
    _wait_for_first_checkpoint(run, tmp_path)
    _send(run, signal.SIGTERM)
    run.wait_for(_STOPPING.format("SIGTERM"))
    _send(run, signal.SIGTERM)
    assert _end(run) == 143, run.text
    assert saved_step() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=_NAME)
def test_a_step_that_hangs_ends_with_the_grace(program, number):
    run = program(
        *("--hang", "tensorflow", "--only_train"),
        ESTIMATOR_RUNTIME_STOP_GRACE_SECS="0.1",
    )
    run.wait_for("^hangs$")
    _send(run, number)
    assert _end(run) == 128 + number, run.text
    assert (
        f"the training did not end within 0.1 s after {number.name}, not counting the "
        "time of saves; exiting without its last step"
    ) in run.text


@pytest.mark.parametrize(
    "arguments", [("--only_train",), ()], ids=["alone", "listened"]
)
def test_a_save_that_takes_longer_than_the_grace_is_finished(
    program, saved_step, arguments
):
    run = program(
        *(*arguments, "--save_steps", "5", "--slow_save_secs", "4"),
        ESTIMATOR_RUNTIME_STOP_GRACE_SECS="3",
    )
    run.wait_for("^saves model.ckpt-5$")
    _send(run, signal.SIGTERM)
    assert _end(run) == 143, run.text
    assert saved_step() == _last_step(run), run.text


def test_a_second_ctrl_c_does_not_wait_for_the_step(program, tmp_path, saved_step):
    run = program(
        *("--hang", "python", "--only_train"), ESTIMATOR_RUNTIME_STOP_GRACE_SECS="0"
    )
    run.wait_for("^step 5$")
    _wait_for_first_checkpoint(run, tmp_path)
    _send(run, signal.SIGINT)
    run.wait_for(_STOPPING.format("SIGINT"))
    _send(run, signal.SIGINT)
    assert _end(run) == 130, run.text
    assert "did not end" not in run.text  # that is for SIGTERM
    assert "Traceback" not in run.text
    assert run.text.splitlines()[-2] == (
        "estimator-runtime: stopped by a second SIGINT; the last step was not saved"
    )
    assert saved_step() == 0
