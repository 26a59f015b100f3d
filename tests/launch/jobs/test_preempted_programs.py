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


class Program:
    """The script in a process of its own, and all it has written."""

    def __init__(self, folder, arguments, options=(), **environ):
        inherited = {k: v for k, v in os.environ.items() if k != "TF_USE_LEGACY_KERAS"}
        self.folder, self.output = folder, folder / f"{len(list(folder.iterdir()))}.out"
        # A background job ignores the signal, and whoever it starts would too.
        usual = signal.signal(signal.SIGINT, signal.SIG_DFL)
        # As one that nohup has started does with this one.
        usual_hangup = signal.signal(signal.SIGHUP, signal.SIG_DFL)
        try:
            with self.output.open("wb") as output:
                self.process = subprocess.Popen(
                    [
                        *(sys.executable, "-m", "estimator_runtime", "run", *options),
                        *(_PROGRAM, *arguments),
                    ],
                    cwd=folder,
                    env={**inherited, "TF_CPP_MIN_LOG_LEVEL": "3", **environ},
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
        finally:
            signal.signal(signal.SIGINT, usual)
            signal.signal(signal.SIGHUP, usual_hangup)

    @property
    def text(self):
        return self.output.read_text(errors="replace")

    def wait_for(self, pattern):
        self._wait_until(lambda: re.search(pattern, self.text, re.MULTILINE))

    def wait_for_first_checkpoint(self):
        self._wait_until(lambda: list(self.folder.glob("model/checkpoint")))

    def _wait_until(self, is_so):
        deadline = time.monotonic() + 90
        while not is_so():
            assert self.process.poll() is None, self.text
            assert time.monotonic() < deadline, self.text
            time.sleep(0.02)

    def send(self, number):
        # The same signal again within a tenth of a second is the same request.
        time.sleep(0.15)
        self.process.send_signal(number)

    def end(self):
        """Wait for the end; give the exit status as a shell does."""
        try:
            status = self.process.wait(90)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running:\n{self.text}")
        return status if status >= 0 else 128 - status

    @property
    def last_step(self):
        """The last step that it has printed."""
        return int(re.findall(r"^step (\d+)$", self.text, re.M)[-1])

    @property
    def saved_step(self):
        reader = tf.train.load_checkpoint(str(self.folder / "model"))
        return int(reader.get_tensor("global_step"))


@pytest.fixture
def program(tmp_path):
    """Return a function that starts the script, of (arguments, options, environment)."""
    started = []

    def start(*arguments, options=(), **environ):
        started.append(Program(tmp_path, arguments, options, **environ))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.wait()


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
    program, number, arguments, options
):
    run = program(*arguments, options=options)
    run.wait_for(r"^step \d+$")
    run.send(number)
    assert run.end() == 128 + number, run.text
    assert run.saved_step == run.last_step, run.text
    assert "done" not in run.text.splitlines()
    assert "Traceback" not in run.text
    name, step = signal.Signals(number).name, run.last_step
    assert run.text.splitlines()[-2:] == [
        f"estimator-runtime: stopped by {name} at step {step}; it is saved in "
        f"model/model.ckpt-{step}",
        "estimator-runtime: run the same command again to go on from there",
    ]


def test_a_signal_in_a_run_of_slow_steps_ends_it_within_the_grace(program):
    run = program(
        *("--only_train", "--data_secs", "0.4", "--step_secs", "0"),
        options=("--steps-per-run", "100", "--grace", "15"),
    )
    run.wait_for(r"^step 1$")
    run.send(signal.SIGTERM)
    assert run.end() == 143, run.text
    assert run.saved_step == run.last_step, run.text
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


def test_an_error_of_the_program_after_a_stop_has_its_traceback(program):
    run = program("--only_train", "--at", "step 5", "--signal", "SIGINT", "--raise")
    assert run.end() == 1, run.text
    assert run.text.splitlines()[-1] == "LookupError: of the program itself"
    assert run.saved_step == 5


@pytest.mark.smoke
def test_a_later_run_goes_on_from_the_step_at_which_a_signal_has_stopped(program):
    first = program("--at", "step 5")
    assert first.end() == 143, first.text
    later = program("--only_train", "--steps", "7")
    assert later.end() == 0, later.text
    assert re.findall(r"^step (\d+)$", later.text, re.M) == ["6", "7"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=_NAME)
def test_a_signal_while_the_model_is_built_ends_the_program_at_once(program, number):
    run = program("--at", "model_fn train", "--signal", number.name)
    assert run.end() == 128 + number, run.text
    assert run.text.splitlines()[-2:] == [
        f"estimator-runtime: stopped by {number.name}; no step was under way here",
        "estimator-runtime: run the same command again to go on",
    ]
    assert not list(run.folder.glob("model/*.index"))


def test_a_signal_before_the_first_step_ends_the_program_without_a_step(program):
    run = program("--at", "session")
    assert run.end() == 143, run.text
    assert not re.search(r"^step", run.text, re.MULTILINE)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=_NAME)
def test_a_signal_during_an_evaluation_ends_it_soon(program, number):
    # The evaluation's data has no end, and nor has the evaluation.
    run = program("--save_steps", "5", "--at", "evaluation", "--signal", number.name)
    assert run.end() == 128 + number, run.text
    assert run.saved_step == run.last_step == 5
    assert run.text.splitlines().count("evaluation") == 1
    assert "the evaluation was ended, because the training has to stop" in run.text
    assert not list(run.folder.glob("model/eval/events.*"))


def test_a_signal_in_the_evaluation_after_the_last_step_still_says_so(program):
    run = program("--steps", "3", "--at", "evaluation")
    assert run.end() == 143, run.text
    assert run.saved_step == run.last_step == 3
    assert "done" not in run.text.splitlines()


def test_a_second_sigterm_ends_a_step_that_hangs(program):
    run = program("--hang", "tensorflow", "--only_train")
    run.wait_for("^hangs$")
    run.wait_for_first_checkpoint()
    run.send(signal.SIGTERM)
    run.wait_for(_STOPPING.format("SIGTERM"))
    run.send(signal.SIGTERM)
    assert run.end() == 143, run.text
    assert run.saved_step == 0


def test_a_step_that_hangs_after_sighup_is_ended_by_the_second_sigterm(program):
    run = program("--hang", "tensorflow", "--only_train", options=("--grace", "60"))
    run.wait_for("^hangs$")
    run.wait_for_first_checkpoint()
    run.send(signal.SIGHUP)
    run.wait_for(_STOPPING.format("SIGHUP"))
    for number in (signal.SIGHUP, signal.SIGTERM):
        run.send(number)
    with pytest.raises(subprocess.TimeoutExpired):  # they are the same request
        run.process.wait(1)
    run.send(signal.SIGTERM)
    assert run.end() == 143, run.text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=_NAME)
def test_a_step_that_hangs_ends_with_the_grace(program, number):
    run = program(
        *("--hang", "tensorflow", "--only_train"),
        ESTIMATOR_RUNTIME_STOP_GRACE_SECS="0.1",
    )
    run.wait_for("^hangs$")
    run.send(number)
    assert run.end() == 128 + number, run.text
    assert (
        f"the training did not end within 0.1 s after {number.name}, not counting the "
        "time of saves; exiting without its last step"
    ) in run.text


@pytest.mark.parametrize(
    "arguments", [("--only_train",), ()], ids=["alone", "listened"]
)
def test_a_save_that_takes_longer_than_the_grace_is_finished(program, arguments):
    run = program(
        *(*arguments, "--save_steps", "5", "--slow_save_secs", "4"),
        ESTIMATOR_RUNTIME_STOP_GRACE_SECS="3",
    )
    run.wait_for("^saves model.ckpt-5$")
    run.send(signal.SIGTERM)
    assert run.end() == 143, run.text
    assert run.saved_step == run.last_step, run.text


def test_the_end_of_a_hook_that_saves_nothing_ends_with_the_grace(program):
    run = program(
        *("--hang", "end", "--only_train"), ESTIMATOR_RUNTIME_STOP_GRACE_SECS="0.2"
    )
    run.wait_for("^step 5$")
    run.send(signal.SIGTERM)
    assert run.end() == 143, run.text
    assert "did not end within 0.2 s after SIGTERM" in run.text


def test_a_second_ctrl_c_does_not_wait_for_the_step(program):
    run = program(
        *("--hang", "python", "--only_train"), ESTIMATOR_RUNTIME_STOP_GRACE_SECS="0"
    )
    run.wait_for("^step 5$")
    run.wait_for_first_checkpoint()
    run.send(signal.SIGINT)
    run.wait_for(_STOPPING.format("SIGINT"))
    run.send(signal.SIGINT)
    assert run.end() == 130, run.text
    assert "did not end" not in run.text  # that is for SIGTERM
    assert "Traceback" not in run.text
    assert run.text.splitlines()[-2] == (
        "estimator-runtime: stopped by a second SIGINT; the last step was not saved"
    )
    assert run.saved_step == 0


def test_a_second_ctrl_c_does_not_wait_for_the_last_checkpoint(program):
    run = program(
        *("--at", "step 5", "--signal", "SIGINT", "--only_train"),
        *("--slow_save_secs", "600"),
    )
    run.wait_for("^saves model.ckpt-5$")
    run.send(signal.SIGINT)
    assert run.end() == 130, run.text
    assert "Traceback" not in run.text
    assert run.text.splitlines()[-2] == (
        "estimator-runtime: stopped by a second SIGINT; the last step was not saved"
    )
    assert run.saved_step == 0
