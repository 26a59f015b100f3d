"""Jobs whose tasks share one GPU: they train, come back and stop with a save."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "digits.py"
TF1_PROGRAM = """
import tensorflow as tf
x = tf.placeholder(tf.float32, [None, 4])
loss = tf.reduce_mean(tf.square(tf.layers.dense(x, 1) - 1.0))
train = tf.train.AdamOptimizer(0.1).minimize(loss)
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for _ in range(200):
        _, value = session.run([train, loss], {x: [[1.0, 2.0, 3.0, 4.0]]})
print("loss below 0.01:", value < 0.01)
"""
FRACTION = """
import tensorflow as tf
from estimator_runtime.contrib import learn
options = learn.RunConfig(gpu_memory_fraction=0.25).tf_config.gpu_options
with tf.compat.v1.Session(config=tf.compat.v1.ConfigProto(gpu_options=options)) as s:
    s.run(tf.constant(1.0) + 1.0)
if tf.config.list_physical_devices("GPU"):
    import subprocess
    query = ["nvidia-smi", "--query-gpu=memory.used,memory.total"]
    line = subprocess.check_output([*query, "--format=csv,noheader,nounits"], text=True)
    used, total = map(float, line.splitlines()[0].split(","))
    assert used < 0.35 * total, line
"""


@pytest.fixture
def start(tmp_path):
    """Return a function that starts `estimator-runtime run`, and returns the process."""
    started = []

    def start(*arguments):
        command = [sys.executable, "-m", "estimator_runtime", "run", *arguments]
        with (tmp_path / "log").open("w") as log:
            process = subprocess.Popen(
                list(map(str, command)), cwd=tmp_path, stdout=log, stderr=log
            )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def wait_for(folder, pattern, secs=120):
    """Wait until the log has what a pattern matches, and return the match."""
    deadline = time.monotonic() + secs
    while time.monotonic() < deadline:
        if found := re.search(pattern, (folder / "log").read_text()):
            return found
        time.sleep(0.1)
    pytest.fail(f"no {pattern!r} in {(folder / 'log').read_text()[-3000:]}")


def pid_of(task, job):
    """Return the pid of a task, as `estimator-runtime ps` lists it."""
    command = [sys.executable, "-m", "estimator_runtime", "ps", "--json"]
    jobs = json.loads(subprocess.check_output(command, text=True, timeout=60))
    [tasks] = [each["tasks"] for each in jobs if each["pid"] == job.pid]
    [pid] = [each["pid"] for each in tasks if each["name"] == task]
    return pid


def test_a_job_with_an_evaluator_shares_the_gpu_and_survives_its_chief(
    start, tmp_path, device
):
    job = start(
        *("--workers", 1, "--ps", 1, "--evaluator", "--progress", "plain", EXAMPLE),
        *("--model_dir", tmp_path / "model", "--max_steps", 3000),
    )
    wait_for(tmp_path, r"chief.*training")
    os.kill(pid_of("chief", job), signal.SIGKILL)
    assert job.wait(240) == 0
    log = (tmp_path / "log").read_text()
    assert re.search(r"held-out accuracy 0\.9\d+ after 3\d\d\d steps", log)
    if device == "GPU":
        assert "GPUs of the tasks: ps 0: none, chief: 0, worker 0: 0" in log


def test_sigterm_saves_the_current_step(start, tmp_path, device):
    run = start(
        *("--progress", "plain", EXAMPLE, "--model_dir", tmp_path / "model"),
        *("--max_steps", 1000000),
    )
    wait_for(tmp_path, r"loss = ")
    run.send_signal(signal.SIGTERM)
    assert run.wait(60) == 143
    saved = max(
        int(path.suffixes[0].partition("-")[2])
        for path in (tmp_path / "model").glob("model.ckpt-*.index")
    )
    assert saved % 500


@pytest.mark.parametrize(
    ("arguments", "program", "expected"),
    [
        (["--tf1"], TF1_PROGRAM, "loss below 0.01: True"),
        ([], FRACTION, ""),
    ],
    ids=["a program of TensorFlow 1", "gpu_memory_fraction of contrib.learn"],
)
def test_a_program_trains(start, tmp_path, arguments, program, expected):
    (tmp_path / "program.py").write_text(program)
    status = start(*arguments, tmp_path / "program.py").wait(120)
    log = (tmp_path / "log").read_text()
    assert status == 0, log
    assert expected in log


def test_the_parent_of_all_tasks_opens_no_gpu(start, tmp_path):
    job = start(
        *("--workers", 1, "--ps", 1, "--progress", "plain", EXAMPLE),
        *("--model_dir", tmp_path / "model", "--max_steps", 1000000),
    )
    wait_for(tmp_path, r"chief.*training")
    status = pathlib.Path(f"/proc/{pid_of('chief', job)}/status").read_text()
    parent = re.search(r"PPid:\t(\d+)", status)[1]
    files = [str(fd.readlink()) for fd in pathlib.Path(f"/proc/{parent}/fd").iterdir()]
    assert files
    assert not [each for each in files if "nvidia" in each]
