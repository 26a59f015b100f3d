"""Whenever a run is killed, the next one goes on from the newest committed checkpoint.

This file, run as a script, forks runs that are killed right before each call that
changes the folder or waits for the disk, and others that are killed after some step,
wherever the writer is then. After each of them there is another run. The script has
imported TensorFlow when it forks, but executed nothing, so that forks are sound and quick.
"""

import functools
import json
import os
import pathlib
import random
import shutil
import signal
import sys
import traceback

import pytest

from estimator_runtime.checkpoint.checkpoint import checkpoints_in
from estimator_runtime.checkpoint.store import durable
from estimator_runtime.checkpoint.store.state_file import read_state
from estimator_runtime.config.paths import step_of

# One worker for all: what they look at takes longest to make.
pytestmark = pytest.mark.xdist_group("killed")

# By then there are as many as are kept: one has to go for it.
KILLED_STEP = 3
# After these steps others are killed.
ANY_STEPS = random.Random(5).sample(range(3, 40), 6)
CALLS = ("mkdir", "link", "fsync", "rename", "replace", "unlink")


def main(folder):
    """Print, for each point, what was there after the kill, and after a run more."""
    import estimator_runtime as er

    er.install()
    # Imported here, once.
    assert callable(er.MonitoredTrainingSession)
    points = calls_of_step(folder / "whole")
    # The one past the last is before the next checkpoint's first.
    points += [points[-1] + 1, "half", *(f"step {step}" for step in ANY_STEPS)]
    found = []
    for point in points:
        here = folder / str(point)
        status = in_child(functools.partial(train, here, last_of(point), kill_at=point))
        call = (here / "killed").read_text()
        state = os.path.basename(read_state(here).latest)
        found.append([call, status, state, sorted(os.listdir(here))])
    # These need no process each: no run knows of the one before.
    in_child(lambda: [train(folder / str(point), last_of(point)) for point in points])
    for point, each in zip(points, found, strict=True):
        each.append(json.loads((folder / str(point) / "restored").read_text()))
    print(json.dumps(found))


def calls_of_step(folder):
    """Train to the end; return the numbers of the calls for the step of the kills."""
    in_child(functools.partial(train, folder, last_of(folder.name), kill_at=-1))
    steps = enumerate(json.loads((folder / "calls").read_text()))
    return [number for number, step in steps if step == KILLED_STEP]


def last_of(name):
    """Return the step at which the run of a name ends, and the run after it."""
    kind, _, step = str(name).partition(" ")
    if kind == "step":
        return int(step) + 4
    return 4 if kind == "whole" else KILLED_STEP + 4


def in_child(function):
    """Run a function in a fork; give its exit status, or minus its signal."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            function()
            status = 0
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def train(folder, last_step, kill_at=None):
    """Train on; write down what was restored.

    Args:
        folder: The model directory.
        last_step: The global step at which training ends.
        kill_at: The number of the call before which the process is killed, "half" to
            kill it in the middle of a write, "step N" after that step, -1 to write down
            the step of each call, None for a run like any other.
    """
    import tensorflow as tf

    import estimator_runtime as er
    from estimator_runtime.checkpoint.tensor_bundle.writer import BundleWriter

    tf1 = tf.compat.v1
    os.makedirs(folder, exist_ok=True)
    calls, step_of_call = [], [None]

    def die(name):
        (folder / "killed").write_text(name)
        os.kill(os.getpid(), signal.SIGKILL)

    def counted(owner, name):
        original = getattr(owner, name)

        def call(*args, **kwargs):
            if name == "mkdir" and ".saving-" in str(args[0]):
                step_of_call[0] = step_of(str(args[0]).partition(".saving-")[0])
            if step_of_call[0] is not None:
                if len(calls) == kill_at:
                    die(name)
                calls.append(step_of_call[0])
            return original(*args, **kwargs)

        setattr(owner, name, call)

    def write_half(self, prefix, values):
        write(self, prefix, values)
        if step_of_call[0] == KILLED_STEP and kill_at == "half":
            [data] = pathlib.Path(prefix).parent.glob("*.data-*")
            os.truncate(data, data.stat().st_size // 2)
            die("half written")

    write = BundleWriter.write
    if kill_at is not None:
        BundleWriter.write = write_half
        for name in CALLS:
            counted(os, name)
        counted(BundleWriter, "write")
        counted(shutil, "rmtree")

    class Looks(tf1.train.SessionRunHook):
        def after_create_session(self, session, coord):
            restored = [int(value) for value in session.run(values)]
            (folder / "restored").write_text(json.dumps(restored))

        def after_run(self, run_context, run_values):
            if kill_at == f"step {run_context.session.run(values[0])}":
                die(kill_at)

    with tf.Graph().as_default():
        weight = tf1.get_variable("weight", initializer=[0.0] * 1000)
        with tf.control_dependencies([weight.assign_add([1.0] * 1000)]):
            step = tf1.train.get_or_create_global_step().assign_add(1).op
        values = [tf1.train.get_global_step().value(), weight[0], weight[999]]
        saver = tf1.train.Saver(max_to_keep=3, save_relative_paths=True)
        with er.MonitoredTrainingSession(
            checkpoint_dir=str(folder),
            save_checkpoint_steps=1,
            scaffold=tf1.train.Scaffold(saver=saver),
            hooks=[Looks(), tf1.train.StopAtStepHook(last_step=last_step)],
            save_summaries_steps=None,
            log_step_count_steps=None,
        ) as session:
            while not session.should_stop():
                session.run(step)
    (folder / "calls").write_text(json.dumps(calls))


@pytest.fixture(scope="module")
def runs(run_python, tmp_path_factory):
    """What `main` printed, and the folder with a folder for each run."""
    folder = tmp_path_factory.mktemp("killed")
    program = run_python(__file__, folder, timeout=400)
    assert program.returncode == 0, program.stderr
    return json.loads(program.stdout.splitlines()[-1]), folder


def test_a_kill_at_any_boundary_loses_nothing_that_was_committed(runs):
    found, _ = runs
    states = {}
    for call, status, state, _, restored in found:
        assert status == -signal.SIGKILL, call
        committed = step_of(state)
        assert restored == [committed] * 3, (call, state)
        states.setdefault(call, set()).add(committed)
    at_any = {
        call: states.pop(call) for call in list(states) if call.startswith("step")
    }
    assert set(states) == {*CALLS, "write", "rmtree", "half written"}
    assert set.union(*states.values()) == {2, 3}
    assert list(at_any) == [f"step {step}" for step in ANY_STEPS]
    for step in ANY_STEPS:
        # The save of the step before waits at most for one, and that for none.
        [committed] = at_any[f"step {step}"]
        assert step - 3 <= committed <= step


def test_a_run_after_a_kill_leaves_nothing_but_its_checkpoints(runs):
    found, folder = runs
    # There was something to be cleaned up.
    assert any(durable.is_temporary_name(n) for *_, left, _ in found for n in left)
    for here in folder.iterdir():
        state = read_state(here)
        assert step_of(state.latest) == last_of(here.name)
        assert len(state.paths) == 3
        good = [each.prefix for each in checkpoints_in(here) if each.problem() is None]
        assert good == list(state.paths), here
        assert {p.name for p in here.glob("model.ckpt-*")} == {
            f"{os.path.basename(path)}.{kind}"
            for path in good
            for kind in ("data-00000-of-00001", "index", "meta")
        }
        assert [p for p in here.iterdir() if durable.is_temporary_name(p.name)] == []


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
