"""Each block of the documentation is executed by a test, or a reason is given here.

Those of docs/migrating.md have a test of their own.
"""

import functools
import os
import pathlib
import re
import shlex
import shutil
from importlib.util import find_spec

import pytest
from doc_blocks import BLOCKS, PYTHON

TESTS = pathlib.Path(__file__).parent


_NOX = "nox itself, which runs these tests"
# Page and the beginning of its block: the file whose tests do what it says, or why none
# does.
OTHERS = {
    "docs/preemption.md | #SBATCH": "launch/jobs/test_preempted_jobs.py",
    "CONTRIBUTING.md | python3 -m venv": _NOX,
    "README.md | $ python examples/digits.py": "end_to_end/test_main_job.py",
    "README.md | pip install": "pip itself; nox installs the package in the same way",
    "README.md | python3 -m venv": _NOX,
    "README.md | estimator-runtime doctor": "end_to_end/test_examples.py",
    "docs/start.md | estimator-runtime run train.py --your --flags     #": "test_snippets.py",
    "docs/start.md | estimator-runtime enable": "patching/injection/test_activation.py",
    "docs/start.md | estimator-runtime run train.py --your --flags                  ": "end_to_end/test_examples.py",
    "benchmarks/README.md | pip install": "benchmarks/test_steps_benchmark.py",
    'benchmarks/README.md | {"benchmark": "steps"': "the form of a file, cut short",
    "docs/architecture.md | ": "a picture; test_docs.py looks for its modules",
    "docs/checkpoints.md | estimator-runtime checkpoints": "test_snippets.py",
    "docs/clusters.md | estimator-runtime run --workers 2": "launch/jobs/test_training_jobs.py",
    "docs/how_do_i.md | # sbatch --nodes 4": "test_recipes.py",
    "docs/how_do_i.md | apiVersion: kubeflow.org/v1": "test_recipes.py",
    "docs/ray.md | imagePullSecrets": "launch/test_kubernetes.py",
    "docs/how_do_i.md | {": "a setting of VS Code; its command is that of all pages",
    "docs/how_do_i.md | docker run": "needs Docker, and says that it was not tested",
    "docs/life_of_a_task.md | stateDiagram": "test_generated_pages.py",
    "docs/doctor.md | estimator-runtime doctor": "the forms; the tests of cli/doctor use them",
    "docs/doctor.md | $ estimator-runtime doctor": "test_snippets.py",
    "docs/how_do_i.md | estimator-runtime run --metrics": "test_snippets.py",
    "docs/log.md | ps 0 ": "launch/terminal/test_screen.py",
    'docs/log.md | {"time"': "output/test_metrics_file.py",
    "docs/log.md | estimator-runtime: worker 1 started": "launch/jobs/test_shown_jobs.py",
    "docs/log.md | estimator-runtime: left out": "end_to_end/test_quiet_log.py",
    "docs/tensorflow1.md | estimator-runtime run --tf1": "tf1/test_mode.py",
    "docs/tensorflow1.md | estimator-runtime tf1": "contrib/test_wheel.py",
    "docs/tensorflow1_programs.md | ": "programs of others and their data, which are not in this repository",
    "docs/preemption.md | $ estimator-runtime run train.py & sleep": "launch/jobs/test_preempted_programs.py",
    "docs/preemption.md | $ estimator-runtime checkpoints": "test_snippets.py",
    "docs/clusters.md | launcher | GPUs of the tasks": "launch/local/test_gpus.py",
    "docs/clusters.md | [options.entry_points]": "launch/test_backend.py",
    "docs/ray.md | pip install": "several machines; launch/ray has nodes of its own",
    "docs/ray.md | estimator-runtime render": "launch/test_kubernetes.py",
    "docs/tensorboard.md | estimator-runtime run --tensorboard": "launch/jobs/test_tensorboard.py",
    "examples/README.md | python examples/digits.py": "end_to_end/test_main_job.py",
    "examples/README.md | held-out accuracy": "end_to_end/test_main_job.py",
    "examples/README.md | estimator-runtime run --workers 1": "end_to_end/test_examples.py",
    "examples/README.md | $ estimator-runtime run examples/preemption.py": "end_to_end/test_examples.py",
}


def test_each_block_has_a_test_that_executes_it_or_a_reason():
    shown = [
        f"{block.page} | {block.text}"
        for block in BLOCKS
        if block.language != "python" and block.page != "docs/migrating.md"
    ]
    unknown = [each for each in shown if not each.startswith(tuple(OTHERS))]
    gone = [key for key in OTHERS if not any(each.startswith(key) for each in shown)]
    assert (unknown, gone) == ([], [])


def test_each_of_these_files_is_there():
    files = [place for place in OTHERS.values() if place.endswith(".py")]
    assert [file for file in files if not (TESTS / file).exists()] == []


def test_each_python_block_is_executed_here_or_as_an_error_to_migrate_from():
    pages = {block.page for block in PYTHON} - {"docs/migrating.md"}
    assert pages == {
        "README.md",
        "docs/checkpoints.md",
        "docs/clusters.md",
        "docs/how_do_i.md",
        "docs/predictor.md",
        "docs/start.md",
        "docs/tensorflow1.md",
    }


def only(page):
    [block] = [each for each in PYTHON if each.page == page]
    return block


@pytest.fixture
def run(run_python, tmp_path):
    """Return a function that runs the text of a program; it returns the ended process."""

    def run(text):
        (tmp_path / "snippet.py").write_text(text)
        return run_python("snippet.py", cwd=tmp_path, timeout=200)

    return run


@pytest.fixture
def command(run_python, tmp_path):
    """Return a function that runs a command of ours; it returns the ended process."""
    return functools.partial(
        run_python, "-m", "estimator_runtime", cwd=tmp_path, timeout=200
    )


def test_the_readmes_snippet_puts_the_runtime_in_place(run):
    snippet = only("README.md").text
    assert snippet == only("docs/start.md").text
    done = run(snippet)
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr


def test_the_snippet_about_clusters_runs_a_job_to_its_end(run, tmp_path):
    program = TESTS / "launch" / "programs" / "train.py"
    shutil.copy(program, tmp_path / "train.py")
    _, snippet = (x.text for x in PYTHON if x.page == "docs/clusters.md")
    done = run(snippet)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"0 .+ \S+model\.ckpt-\d+", done.stdout.splitlines()[-1]), (
        done.stdout
    )


def test_the_snippet_about_a_gang_makes_a_config_with_its_strategy(run):
    snippet, _ = (x.text for x in PYTHON if x.page == "docs/clusters.md")
    shown = "print(config.train_distribute is strategy, config.model_dir)"
    program = ["import estimator_runtime as er, tensorflow as tf; er.install()"]
    done = run("\n".join([*program, snippet, shown]))
    assert done.stdout == "True model\n", done.stderr


def test_the_snippet_about_a_session_of_its_own_trains_as_a_cluster(command, tmp_path):
    (tmp_path / "own.py").write_text(only("docs/tensorflow1.md").text)
    done = command("run", "--tf1", "--workers", "1", "--ps", "1", "own.py")
    assert done.returncode == 0, done.stderr
    assert re.search(r"the job is done at step 1\d{3}, in \S+/model/", done.stderr), (
        done.stderr
    )


PREDICTED = """
import estimator_runtime as er
er.install()
import tensorflow as tf

columns = [tf.feature_column.numeric_column("x", shape=[2])]
estimator = tf.estimator.LinearClassifier(columns, "model")
batch = {"x": [[0.5, 1.5]]}
estimator.train(lambda: tf.data.Dataset.from_tensors((batch, [1])), steps=1)
"""


def test_the_snippet_about_predictors_gives_what_predict_gives(run):
    compared = (
        "[row] = estimator.predict(lambda: tf.data.Dataset.from_tensors(batch))\n"
        "print(outputs['logits'][0] == row['logits'])"
    )
    snippet = only("docs/predictor.md").text
    done = run("\n".join([PREDICTED, snippet, compared]))
    assert (done.stdout, done.returncode) == ("[ True]\n", 0), done.stderr


# MirroredStrategy gets these two for the GPUs of the page.
TWO_CPUS = """
import tensorflow as tf

two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], two)
"""
# Neither mlflow nor wandb is installed: these are the functions that the page calls.
MLFLOW = """
def log_metric(key, value, step):
    print("logged", step, key)

def log_metrics(metrics, step):
    print("logged", step, *sorted(metrics))
"""
WANDB = """
def init(project):
    pass

def log(values, step):
    print("logged", step, *values)
"""
# Stands in for TensorFlow Serving: answers each request by the newest export.
SERVING = """
from concurrent import futures

import grpc
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc


class Service(prediction_service_pb2_grpc.PredictionServiceServicer):
    def Predict(self, request, context):
        assert request.model_spec.name == "mine"
        path = sorted(tf.io.gfile.glob("serving/*"))[-1]
        function = tf.saved_model.load(path).signatures["serving_default"]
        given = {k: tf.constant(tf.make_ndarray(v)) for k, v in request.inputs.items()}
        answer = predict_pb2.PredictResponse()
        for name, value in function(**given).items():
            answer.outputs[name].CopyFrom(tf.make_tensor_proto(value.numpy()))
        return answer


server = grpc.server(futures.ThreadPoolExecutor(1))
prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(Service(), server)
port = server.add_insecure_port("127.0.0.1:0")
server.start()
"""
AFTER_THE_PAGE = """
import glob
import itertools
import numpy as np

names = ("hidden/kernel", "output/kernel")
kept, new = [
    np.array_equal(*(tf.train.load_variable(d, name) for d in ("early", "warm")))
    for name in names
]
assert kept and not new
files = ["timeline-20.json", "timeline-40.json", "plugins/profile/*/*.xplane.pb"]
assert all(glob.glob(f"profile/{name}") for name in files)
names = [name for name, _ in tf.train.list_variables("float16")]
assert "current_loss_scale" in names
assert glob.glob("exported/export/best_exporter/*/saved_model.pb")
assert os.path.exists(os.path.join(os.fsdecode(path), "saved_model.pb"))
rows = itertools.islice(make_estimator("exported").predict(input_fn), 16)
[features, _] = next(iter(input_fn()))
keras_3 = keras.saving.load_model("model.keras").predict(features["x"], verbose=0)
np.testing.assert_allclose(keras_3, [row["y"] for row in rows], rtol=1e-5, atol=1e-6)
"""


def test_the_answers_of_how_do_i_are_one_program_that_runs(
    command, run_python, tmp_path
):
    blocks = [each.text for each in PYTHON if each.page == "docs/how_do_i.md"]
    [follow] = [text for text in blocks if "import mlflow" in text]
    (tmp_path / "follow.py").write_text(follow)
    (tmp_path / "mlflow.py").write_text(MLFLOW)
    (tmp_path / "wandb.py").write_text(WANDB)
    optional = {
        "import optuna": "optuna",
        "from ray import tune": "pyarrow",
        "from tensorflow_serving": "tensorflow_serving",
    }
    left_out = [x for x, module in optional.items() if not find_spec(module)]
    program = [
        text
        for text in blocks
        if text != follow and not any(x in text for x in left_out)
    ]
    serves = [SERVING] if find_spec("tensorflow_serving") else []
    text = "\n".join([TWO_CPUS, "import os", *serves, *program, AFTER_THE_PAGE])
    text = text.replace('"localhost:8500"', 'f"127.0.0.1:{port}"')
    (tmp_path / "train.py").write_text(text)
    options = ("--progress", "none", "--metrics", "numbers.jsonl")
    done = command("run", *options, "train.py")
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    # The step is read while it is counted up: it may be one more.
    logged = [re.fullmatch(r"logged (\d+) loss:0", line) for line in said]
    assert [int(each[1]) // 10 for each in logged if each] == [0, 1, 2]
    shown = ("stopped early: True", "replicas: 2", "best rate: 0.05")
    assert {
        *shown,
        "served: ['y']",
        "resumed to step 120",
        "hidden/kernel [2, 8]",
    } <= set(said)
    numbers = (tmp_path / "numbers.jsonl").read_text()
    followed = run_python("follow.py", cwd=tmp_path, text=numbers)
    assert followed.returncode == 0, followed.stderr
    assert {"logged 100 loss", "logged 100 training loss"} <= set(
        followed.stdout.splitlines()
    )


BEST = """
import os
import estimator_runtime
estimator_runtime.install()
import tensorflow as tf

model_dir = "model"


def model_fn(features, labels, mode):
    weight = tf.compat.v1.get_variable("weight", initializer=0.0)
    loss = tf.reduce_mean(tf.square(weight - labels))
    step = tf.compat.v1.train.get_global_step()
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    return tf.estimator.EstimatorSpec(
        mode, loss=loss, train_op=optimizer.minimize(loss, step)
    )


def input_fn():
    return tf.data.Dataset.from_tensors(([1.0], [1.0])).repeat(5)


{}
tf.estimator.train_and_evaluate(
    tf.estimator.Estimator(model_fn, config=config.replace(save_checkpoints_steps=2)),
    tf.estimator.TrainSpec(input_fn, max_steps=4),
    tf.estimator.EvalSpec(input_fn, throttle_secs=0),
)
"""


def test_the_snippet_about_the_best_checkpoints_finds_one_and_starts_from_it(run):
    config, snippet = (x.text for x in PYTHON if x.page == "docs/checkpoints.md")
    path, estimator = snippet.splitlines()
    snippet = [BEST.format(config), f"print({path})", f"warm = {estimator}"]
    trains = "warm.train(input_fn, steps=1); print(warm.get_variable_value('weight'))"
    done = run("\n".join([*snippet, trains]))
    assert done.returncode == 0, done.stderr
    path, weight = done.stdout.split()
    assert path == os.path.join("model", "best", "model.ckpt-4")
    # Each step takes a fifth of what is missing to 1.
    assert float(weight) == pytest.approx(1 - 0.8**5, abs=1e-5)


@pytest.mark.parametrize("line", [0, 1])
def test_a_command_runs_the_script_with_its_own_flags(line, command, tmp_path):
    [block] = [x for x in BLOCKS if "# instead of: python -m package" in x.text]
    (tmp_path / "package").mkdir()
    for file in (tmp_path / "train.py", tmp_path / "package" / "train.py"):
        file.write_text(
            "import sys, tensorflow as tf; tf.estimator; print(sys.argv[1:])"
        )
    _, *words = shlex.split(block.text.splitlines()[line], comments=True)
    done = command(*words)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{words[-2:] if line == 0 else words[-1:]}\n"


def test_the_doctor_says_what_its_page_shows(command, tmp_path):
    [block] = [x for x in BLOCKS if x.text.startswith("$ estimator-runtime doctor")]
    shown, *lines = block.text.splitlines()
    (tmp_path / "train.py").write_text(
        "import tensorflow as tf\n\nconfig = tf.estimator.RunConfig()\ntf.Session()\n"
    )
    done = command(*shlex.split(shown)[2:])
    assert done.returncode == 1, done.stderr
    # What it looks at, and what it finds; versions, sizes and folders differ.
    assert [x[:20] for x in done.stdout.splitlines()] == [x[:20] for x in lines]
    assert done.stdout.splitlines()[-3:] == lines[-3:]


def test_the_checkpoints_are_listed_with_an_interval(run, command):
    config, _ = (x.text for x in PYTHON if x.page == "docs/checkpoints.md")
    done = run(BEST.format(config))
    assert done.returncode == 0, done.stderr
    [block] = [x for x in BLOCKS if x.text.startswith("estimator-runtime checkpoints")]
    words = block.text.replace("MODEL_DIR", "model").split()[1:]
    listed = command(*words)
    assert listed.returncode == 0, listed.stderr
    [shown] = [
        x for x in BLOCKS if x.text.startswith("$ estimator-runtime checkpoints")
    ]
    titles = shown.text.splitlines()[1]
    assert titles.split() == listed.stdout.splitlines()[0].split()
    assert re.search(r"^ +4 .* good; a restart goes on from here$", listed.stdout, re.M)
    assert "is lost with RunConfig(" in listed.stdout
