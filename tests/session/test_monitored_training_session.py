"""MonitoredTrainingSession makes the creator and hooks that TensorFlow's makes."""

import inspect
import os
import pathlib

import pytest
import tensorflow as tf
from tensorflow.python.distribute import distribute_coordinator
from tensorflow.python.training import basic_session_run_hooks, monitored_session

import estimator_runtime as er
from estimator_runtime.checkpoint.hook import CheckpointHook
from estimator_runtime.checkpoint.restore.session_creator import VerifiedSessionCreator
from estimator_runtime.errors import ConfigError, ConfigTypeError
from estimator_runtime.session.hooks.coordinated_stop import CoordinatedStopHook
from estimator_runtime.session.hooks.step_rate import StepRateHook

train = tf.compat.v1.train
STOCK = monitored_session.MonitoredTrainingSession
FOLDER = "<the test's folder>"


class Mine(train.SessionRunHook):
    pass


def build_model():
    weight = tf.compat.v1.get_variable("weight", initializer=1.0)
    tf.compat.v1.summary.scalar("weight", weight)
    optimizer = train.GradientDescentOptimizer(0.1)
    return optimizer.minimize(tf.square(weight), train.get_or_create_global_step())


def described(value):
    """Return what can be compared of a hook or creator: its type and its settings."""
    if value is None or isinstance(
        value, (bool, int, float, str, tf.compat.v1.ConfigProto)
    ):
        return value
    if isinstance(value, (list, tuple)):
        return [described(each) for each in value]
    if isinstance(value, (tf.Tensor, tf.Operation)):
        return value.name
    if isinstance(value, basic_session_run_hooks.SecondOrStepTimer):
        return {"every": (value._every_steps, value._every_secs)}
    if isinstance(value, tf.compat.v1.summary.FileWriter):
        return {"logdir": value.get_logdir()}
    if isinstance(value, (train.SessionRunHook, train.SessionCreator)):
        settings = {name: described(each) for name, each in vars(value).items()}
        kind = type(value)
        if kind is StepRateHook:  # TensorFlow's, with fewer warnings
            kind = train.StepCounterHook
            del settings["_step_before_last"]
        if kind is CheckpointHook:  # holds TensorFlow's, and trains on while it writes
            return described(value._stock)
        # TensorFlow's, which checks what it restores.
        if kind is VerifiedSessionCreator:
            kind = train.ChiefSessionCreator
            del settings["restored_prefix"]
        return {"type": kind, **settings}
    return type(value)


def made_by(function, arguments, folder):
    """Describe what `function` makes of the arguments, on a graph of its own."""
    folder.mkdir()
    arguments = {
        name: value.replace(FOLDER, str(folder)) if isinstance(value, str) else value
        for name, value in arguments.items()
    }
    with tf.Graph().as_default():
        build_model()
        try:
            session = function(**arguments)
        except ValueError as error:
            return str(error)
        with session:
            assert isinstance(session, train.MonitoredSession)
            creator = session._coordinated_creator
            found = {
                "hooks": [
                    described(hook)
                    for hook in session._hooks
                    if not isinstance(
                        hook, CoordinatedStopHook
                    )  # which TensorFlow lacks
                ],
                "creator": described(creator._session_creator),
                "stop_grace_period_secs": creator._stop_grace_period_secs,
            }
    return str(found).replace(str(folder), FOLDER)


def hook_types(**arguments):
    with tf.Graph().as_default():
        build_model()
        with er.MonitoredTrainingSession(**arguments) as session:
            return [type(hook).__name__ for hook in session._hooks]


def test_the_signature_is_tensorflows():
    def parameters(function):
        return [
            (p.name, p.kind, "not given" if type(p.default) is object else p.default)
            for p in inspect.signature(function).parameters.values()
        ]

    assert parameters(er.MonitoredTrainingSession) == parameters(STOCK)


IN_FOLDER = {"checkpoint_dir": FOLDER}


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        IN_FOLDER,
        {**IN_FOLDER, "save_checkpoint_secs": None},
        {**IN_FOLDER, "save_checkpoint_secs": 0},
        {**IN_FOLDER, "save_checkpoint_steps": 7},
        {**IN_FOLDER, "save_checkpoint_secs": None, "save_checkpoint_steps": 7},
        {**IN_FOLDER, "save_checkpoint_secs": 7, "save_checkpoint_steps": 7},
        {**IN_FOLDER, "save_summaries_steps": 0},
        {**IN_FOLDER, "save_summaries_steps": 7},
        {**IN_FOLDER, "save_summaries_steps": None, "save_summaries_secs": 7},
        {**IN_FOLDER, "save_summaries_steps": None, "save_summaries_secs": None},
        {**IN_FOLDER, "save_summaries_steps": 7, "save_summaries_secs": 7},
        {**IN_FOLDER, "log_step_count_steps": None},
        {**IN_FOLDER, "log_step_count_steps": 0},
        {**IN_FOLDER, "save_graph_def": False},
        {**IN_FOLDER, "summary_dir": FOLDER + "/summaries"},
        {"summary_dir": FOLDER + "/summaries"},
        {"summary_dir": FOLDER, "save_summaries_steps": 0, "log_step_count_steps": 0},
        {"save_checkpoint_secs": 7, "save_checkpoint_steps": 7},
        {**IN_FOLDER,
         "hooks": [Mine()], "chief_only_hooks": (train.StopAtStepHook(9),)},
        {"hooks": (Mine(),), "chief_only_hooks": [Mine()], "stop_grace_period_secs": 3},
        {"config": tf.compat.v1.ConfigProto(allow_soft_placement=True)},
    ],
    ids=lambda arguments: " ".join(
        f"{name}={value}" if value is None or isinstance(value, int) else name
        for name, value in arguments.items()
    ),
)  # fmt: skip
def test_equal_arguments_make_equal_hooks_and_creators(arguments, tmp_path):
    ours = made_by(er.MonitoredTrainingSession, arguments, tmp_path / "ours")
    assert ours == made_by(STOCK, arguments, tmp_path / "stock")


def test_the_chiefs_own_hooks_come_first_and_everyones_last(tmp_path):
    class ChiefOnly(train.SessionRunHook):
        pass

    hooks = {"hooks": [Mine()], "chief_only_hooks": [ChiefOnly()]}
    assert hook_types(checkpoint_dir=str(tmp_path), **hooks) == [
        "ChiefOnly",
        "StepRateHook",
        "SummarySaverHook",
        "CheckpointHook",
        "Mine",
    ]
    assert hook_types(**hooks) == ["ChiefOnly", "Mine"]


@pytest.mark.parametrize("function", [er.MonitoredTrainingSession, STOCK])
def test_hooks_may_come_from_an_iterator(function):
    with tf.Graph().as_default():
        step = train.get_or_create_global_step().assign_add(1)
        last = train.StopAtStepHook(last_step=3)
        mine, chiefs = Mine(), Mine()
        with function(
            hooks=filter(None, [mine, None, last]),
            chief_only_hooks=(hook for hook in [chiefs]),
        ) as session:
            assert session._hooks == [chiefs, mine, last]
            assert [session.run(step) for _ in range(3)] == [1, 2, 3]
            assert session.should_stop()


@pytest.mark.parametrize("function", [er.MonitoredTrainingSession, STOCK])
def test_a_task_that_is_not_chief_waits_and_has_only_everyones_hooks(
    function, tmp_path
):
    server = tf.distribute.Server.create_local_server()
    config = tf.compat.v1.ConfigProto(allow_soft_placement=True)
    mine = Mine()
    # A worker may be unable to write the chief's folder.
    (tmp_path / "file").touch()
    with tf.Graph().as_default():
        build_model()
        chief = er.MonitoredTrainingSession(server.target)
    with tf.Graph().as_default(), chief:
        build_model()
        with function(
            server.target,
            is_chief=False,
            checkpoint_dir=str(tmp_path / "file" / "model"),
            hooks=[mine],
            chief_only_hooks=[Mine()],
            config=config,
            max_wait_secs=50,
        ) as worker:
            creator = worker._coordinated_creator._session_creator
            assert worker._hooks == [mine]
            assert isinstance(creator, train.WorkerSessionCreator)
            assert (creator._master, creator._config) == (server.target, config)
            assert creator._max_wait_secs == 50


@pytest.mark.parametrize("task", [("chief", 0), ("worker", 0)])
def test_under_a_coordinator_the_task_decides_who_saves(task, tmp_path):
    cluster = tf.train.ClusterSpec({"chief": ["h0:1"], "worker": ["h1:1"]})

    class HereNotThere(distribute_coordinator._WorkerContext):
        def _get_master_target(self):
            return ""  # no servers in this test

    arguments = {**IN_FOLDER, "hooks": [Mine()], "chief_only_hooks": [Mine(), Mine()]}
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    with HereNotThere(strategy, cluster, *task, tf.compat.v1.ConfigProto()):
        ours = made_by(er.MonitoredTrainingSession, arguments, tmp_path / "ours")
        stock = made_by(STOCK, arguments, tmp_path / "stock")
    assert ours == stock
    assert ours.count("Mine") == {"chief": 3, "worker": 1}[task[0]]


def test_in_eager_mode_outside_a_graph_the_error_says_what_to_do():
    assert tf.executing_eagerly()
    with pytest.raises(RuntimeError, match=r"`with tf\.Graph\(\)\.as_default\(\):`"):
        er.MonitoredTrainingSession()


@pytest.mark.parametrize(
    ("path", "reason"), [("file", "File exists"), ("file/model", "Not a directory")]
)
@pytest.mark.parametrize("kind", [str, os.fsencode, os.fspath])
def test_a_checkpoint_dir_that_cannot_be_made_is_named(kind, path, reason, tmp_path):
    (tmp_path / "file").touch()
    folder = str(tmp_path / path)
    with tf.Graph().as_default(), pytest.raises(ConfigError) as refused:
        er.MonitoredTrainingSession(checkpoint_dir=kind(folder))
    assert str(refused.value) == (
        f"checkpoint_dir (an Estimator's model_dir) {folder!r} cannot be created: "
        f"{reason}; give a folder that this process may write"
    )


@pytest.mark.parametrize("kind", [str, os.fsencode, pathlib.Path])
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("a[1]", "has '[' in it, which TensorFlow reads as part of a pattern: "),
        ("*", "has '*' in it, which TensorFlow reads as part of a pattern: "),
        ("a\\b", "has '\\\\' in it, which TensorFlow reads as part of a pattern: "),
        ("\udcff", "is not UTF-8, and TensorFlow takes no other path; give one"),
    ],
)
def test_a_folder_whose_path_tensorflow_cannot_take_is_refused(
    kind, name, problem, tmp_path
):
    folder = f"{tmp_path}/{name}"
    with tf.Graph().as_default(), pytest.raises(ConfigError) as refused:
        er.MonitoredTrainingSession(checkpoint_dir=kind(folder))
    assert str(refused.value).startswith(
        f"checkpoint_dir (an Estimator's model_dir) {folder!r} {problem}"
    )
    estimator = tf.estimator.Estimator(lambda features: None, kind(folder))
    with pytest.raises(ConfigError) as refused:
        estimator.train(lambda: None)
    assert str(refused.value).startswith(f"model_dir {folder!r} {problem}")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_a_locale_without_its_characters_is_told_how_to_have_them(
    run_python,
):
    check = (
        "import sys; from estimator_runtime.config import paths; "
        "paths.check_utf8('model_dir', sys.argv[1])"
    )
    variables = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    refused = run_python("-c", check, "mod\u00e8le", **variables)
    assert refused.stderr.splitlines()[-1] == (
        r"estimator_runtime.errors.ConfigError: model_dir 'mod\udcc3\udca8le' is not "
        "UTF-8, and TensorFlow takes no other path; give one whose path is UTF-8, or "
        "set PYTHONUTF8=1 if the locale is not"
    )


@pytest.mark.parametrize(
    ("name", "value", "shown", "unit"),
    [
        ("save_checkpoint_secs", "600", "'600' (str)", "seconds"),
        ("save_checkpoint_steps", [5], "[5] (list)", "steps"),
        ("log_step_count_steps", "x", "'x' (str)", "steps"),
    ],
)
def test_an_interval_that_is_no_number_is_named(name, value, shown, unit):
    with tf.Graph().as_default(), pytest.raises(ConfigTypeError) as refused:
        er.MonitoredTrainingSession(**{name: value})
    assert str(refused.value) == (
        f"MonitoredTrainingSession: {name} is {shown}, but it should be a number of "
        f"{unit}, or None"
    )


_NOTHING_WRITTEN = {
    "save_checkpoint_secs": None,
    "save_summaries_steps": None,
    "log_step_count_steps": None,
}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_checkpoint_dir_that_cannot_be_written_may_be_restored_from(tmp_path):
    def value(**arguments):
        with tf.Graph().as_default():
            step = tf.compat.v1.train.get_or_create_global_step()
            add = step.assign_add(1)
            with er.MonitoredTrainingSession(
                checkpoint_dir=str(tmp_path), **arguments
            ) as session:
                return session.run(add)

    assert value() == 1
    tmp_path.chmod(0o555)
    assert value(**_NOTHING_WRITTEN) == 2


def test_folders_that_are_missing_are_made_and_may_be_path_objects(tmp_path):
    folder, summary_dir = tmp_path / "a" / "b", tmp_path / "c" / "d"
    hook_types(checkpoint_dir=folder, summary_dir=summary_dir)
    assert tf.train.latest_checkpoint(folder) == f"{folder}/model.ckpt-0"
    assert [path.name[:6] for path in summary_dir.iterdir()] == ["events"]


def test_a_remote_checkpoint_dir_is_left_to_tensorflow(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hook_types(checkpoint_dir="ram://remote/model")
    assert (
        tf.train.latest_checkpoint("ram://remote/model")
        == "ram://remote/model/model.ckpt-0"
    )
    assert list(tmp_path.iterdir()) == []
