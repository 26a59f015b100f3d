"""`estimator-runtime doctor` as a user runs it, on the TensorFlow that is installed."""

import json
import pathlib
import platform
import re

import pytest
import tensorflow as tf

from estimator_runtime.cli.doctor import probe
from estimator_runtime.errors import EstimatorRuntimeError

EXAMPLE = pathlib.Path(__file__).parents[3] / "examples" / "digits.py"


@pytest.fixture
def doctor(run_python, tmp_path):
    """Return a function that runs the doctor; it gives the status and the output."""

    def doctor(*arguments, **variables):
        command = ("-m", "estimator_runtime", "doctor", *arguments)
        done = run_python(*command, cwd=tmp_path, timeout=240, **variables)
        assert done.stderr == ""
        return done.returncode, done.stdout

    return doctor


def test_a_healthy_place_has_no_problem_and_says_what_is_there(doctor):
    status, output = doctor("--json", "--model-dir", "model", EXAMPLE)
    found = {each["about"]: each for each in json.loads(output)["findings"]}
    assert (status, json.loads(output)["problems"]) == (0, 0)
    assert list(found) == [
        "packages", "devices", "TF_CONFIG", "model dir", "activation", "script"
    ]  # fmt: skip
    assert found["packages"]["text"].startswith(
        f"python {platform.python_version()}, tensorflow {tf.__version__}, "
    )
    gpus = tf.config.list_physical_devices("GPU")
    assert ("no GPU" in found["devices"]["text"]) == (not gpus)
    assert "digits.py can be parsed, and uses tf.estimator." in found["script"]["text"]


def test_each_problem_is_a_line_with_its_remedy_and_the_status_is_1(doctor, tmp_path):
    (tmp_path / "train.py").write_text(
        "import no_such_module\n"
        "import tensorflow as tf\n"
        "from tensorflow.python.estimator import run_config\n"
        "from tensorflow.python.tpu import async_checkpoint, tpu_config\n"
        "tf.estimator.Estimator\n"
        "tf.estimator.Oracle\n"
        "tpu_config.RunConfig()\n"
        "tpu_config.Oracle\n"
        "tf.Session()\n"
        "tf.contrib.learn.RunConfig()\n"
        "tf.contrib.learn.Oracle()\n"
        "tf.layers.nosuch()\n"
    )
    (tmp_path / "file").touch()
    status, output = doctor(
        "--model-dir", "file/model", "train.py", TF_CONFIG='{"cluster":'
    )
    lines = [re.split("  +", line, maxsplit=2) for line in output.splitlines()[:-1]]
    problems = [
        f"{about}: {text}" for state, about, text in lines if state == "problem"
    ]
    expected = [
        "TF_CONFIG: not JSON (Expecting value: line 1 column 12 (char 11)): ",
        f"model dir: {tmp_path}/file/model cannot be written: Not a directory (",
        "script: train.py:1: there is no module no_such_module here; install the package",
        "script: train.py:9: names of TensorFlow 1 (tf.Session, "
        "tf.contrib.learn.RunConfig, tf.contrib.learn.Oracle): run it with --tf1",
        "script: train.py:6: there is no tf.estimator.Oracle in this TensorFlow; "
        "look for its new name, or take it out",
        "script: train.py:8: there is no tensorflow.python.tpu.tpu_config.Oracle in",
        "script: train.py:12: there is no tf.layers.nosuch in this TensorFlow; look for",
        "script: train.py:11: tf.contrib.learn.Oracle is of the original tf.contrib, "
        "which is not installed; install it with: estimator-runtime tf1 install",
    ]
    assert [text.startswith(start) for text, start in zip(problems, expected, strict=True)] == [True] * len(expected), output  # fmt: skip
    assert "train.py can be parsed, and uses tensorflow.python.estimator" in output
    assert (status, output.splitlines()[-1]) == (1, f"{len(expected)} problems")


@pytest.mark.parametrize(
    "variable",
    [
        "ESTIMATOR_RUNTIME_STOP_GRACE_SECS",
        "ESTIMATOR_RUNTIME_VERBOSE",  # which the probe of TensorFlow would refuse
    ],
)
def test_a_variable_that_run_would_refuse_is_a_problem(doctor, variable):
    status, output = doctor(**{variable: "soon"})
    assert status == 1
    problems = re.findall("^problem .*", output, re.M)
    assert len(problems) == 1
    assert re.match(rf"problem  settings +{variable} is 'soon'; give ", problems[0])


def test_a_tensorflow_that_hangs_when_imported_is_ended_at_the_deadline(tmp_path):
    (tmp_path / "tensorflow.py").write_text("import time\ntime.sleep(600)\n")
    with pytest.raises(
        EstimatorRuntimeError, match=r"took longer than 0\.5 s, and was"
    ):
        probe.ask([], first_path=str(tmp_path), timeout_secs=0.5)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("raise ImportError('no libcuda')", "fails: ImportError: no libcuda; see all"),
        (
            "import os, signal\nos.kill(os.getpid(), signal.SIGILL)",
            "ended its process by signal 4",
        ),
    ],
)
def test_a_tensorflow_that_fails_is_told_by_its_last_line(tmp_path, text, expected):
    (tmp_path / "tensorflow.py").write_text(text)
    with pytest.raises(EstimatorRuntimeError, match=expected):
        probe.ask([], first_path=str(tmp_path))


def test_a_program_for_tensorflow_1_is_read_as_one(doctor, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import tensorflow as tf\nsession = tf.Session()\n")
    for options, problems in (((), 1), (("--tf1",), 0)):
        status, output = doctor("--json", *options, script)
        assert (status, json.loads(output)["problems"]) == (problems, problems)
