"""train_and_evaluate: its checked start, and a run on one machine."""

import pytest
import tensorflow as tf

import estimator_runtime as er
from estimator_runtime.errors import ConfigError
from estimator_runtime.patching.frozen import stock_train_and_evaluate


def model_fn(features, labels, mode):
    weight = tf.compat.v1.get_variable("weight", initializer=0.0)
    loss = tf.reduce_mean(tf.square(weight * features - labels))
    step = tf.compat.v1.train.get_global_step()
    train_op = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def input_fn():
    return tf.data.Dataset.from_tensors(([1.0], [2.0])).repeat()


def no_input():
    raise AssertionError("training or evaluation has begun")


def job(model_dir, input_fn, max_steps=1):
    """The three arguments of train_and_evaluate."""
    return (
        tf.estimator.Estimator(model_fn, model_dir),
        tf.estimator.TrainSpec(input_fn, max_steps=max_steps),
        tf.estimator.EvalSpec(input_fn, steps=1, start_delay_secs=0, throttle_secs=0),
    )


@pytest.mark.parametrize("task_type", ["chief", "worker", "ps"])
@pytest.mark.parametrize(
    "address, problem", [("127.0.0.1:0", "but"), ("two..dots:2222", "which")]
)
def test_no_task_of_a_cluster_that_could_only_hang_is_started(
    task_type, address, problem, set_tf_config, tmp_path
):
    cluster = {"chief": ["127.0.0.1:1"], "worker": ["127.0.0.1:2"], "ps": [address]}
    set_tf_config({"cluster": cluster, "task": {"type": task_type, "index": 0}})
    where = rf"cluster\['ps'\]\[0\] is '{address}', {problem}"
    with pytest.raises(ConfigError, match=where):
        tf.estimator.train_and_evaluate(*job(tmp_path / "model", no_input))
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("chief", ["chief", "master"])
def test_a_worker_that_shares_variables_with_nobody_is_refused(
    chief, set_tf_config, tmp_path
):
    cluster = {chief: ["127.0.0.1:1"], "worker": ["127.0.0.1:2"]}
    set_tf_config({"cluster": cluster, "task": {"type": "worker", "index": 0}})
    with pytest.raises(ConfigError) as refused:
        tf.estimator.train_and_evaluate(*job(tmp_path / "model", no_input))
    assert str(refused.value) == (
        "TF_CONFIG: the cluster has no ps, and the RunConfig no train_distribute, so "
        f"worker 0 would wait for ever for the variables of the {chief}; add a ps "
        "(estimator-runtime run --ps 1), leave the workers out, or give the RunConfig a "
        "MultiWorkerMirroredStrategy"
    )
    assert not (tmp_path / "model").exists()


def test_workers_of_a_strategy_need_addresses_too(set_tf_config, tmp_path):
    _, *specs = job(tmp_path, no_input)
    cluster = {"worker": ["127.0.0.1:1", "fake_worker"]}
    set_tf_config({"cluster": cluster, "task": {"type": "worker", "index": 0}})
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    config = er.RunConfig(tmp_path, train_distribute=strategy)
    with pytest.raises(ConfigError, match=r"is 'fake_worker', which is no address"):
        er.train_and_evaluate(tf.estimator.Estimator(model_fn, config=config), *specs)


@pytest.mark.parametrize("task_type", ["ps", "evaluator"])
def test_train_in_a_task_that_does_not_train_names_the_call_to_use(
    task_type, set_tf_config, tmp_path
):
    cluster = {"chief": ["127.0.0.1:1"], "ps": ["127.0.0.1:2"]}
    set_tf_config({"cluster": cluster, "task": {"type": task_type, "index": 0}})
    estimator = tf.estimator.Estimator(model_fn, tmp_path / "model")
    with pytest.raises(ConfigError) as refused:
        estimator.train(no_input)
    assert str(refused.value) == (
        f"Estimator.train is called in a task of the type {task_type!r}; call "
        "tf.estimator.train_and_evaluate, which gives each task of a cluster its part"
    )


def test_an_evaluator_needs_nobodys_address(set_tf_config, tmp_path):
    er.train_and_evaluate(*job(tmp_path, input_fn, max_steps=1))
    cluster = {"chief": ["nowhere.invalid:1"], "ps": ["nowhere.invalid:0"]}
    set_tf_config({"cluster": cluster, "task": {"type": "evaluator", "index": 0}})
    estimator, train_spec, eval_spec = job(tmp_path, input_fn, max_steps=1)
    evaluated = []

    class Exporter(tf.estimator.Exporter):
        name = "mine"

        def export(self, estimator, export_path, **about):
            evaluated.append(about["eval_result"]["global_step"])

    eval_spec = eval_spec._replace(exporters=(Exporter(),))
    # It ends with the first checkpoint of max_steps, which is there.
    er.train_and_evaluate(estimator, train_spec, eval_spec)
    assert evaluated == [1]


@pytest.mark.parametrize(
    ("position", "name"), [(0, "estimator"), (1, "train_spec"), (2, "eval_spec")]
)
@pytest.mark.parametrize(
    "jobs", [{}, {"chief": ["127.0.0.1:1"], "ps": ["127.0.0.1:2"]}]
)
def test_an_argument_of_the_wrong_type_gives_tensorflows_error(
    position, name, jobs, set_tf_config, tmp_path
):
    if jobs:
        set_tf_config({"cluster": jobs, "task": {"type": "chief", "index": 0}})
    arguments = list(job(tmp_path, no_input))
    arguments[position] = "wrong"
    with pytest.raises(TypeError) as stock:
        stock_train_and_evaluate(*arguments)
    with pytest.raises(TypeError, match=f"`{name}` must") as ours:
        er.train_and_evaluate(*arguments)
    assert str(ours.value) == str(stock.value)


def test_a_local_run_trains_evaluates_and_exports(tmp_path):
    exported = []

    class Exporter(tf.estimator.Exporter):
        name = "mine"

        def export(self, estimator, export_path, **about):
            exported.append(export_path)
            return "exported"

    estimator, train_spec, eval_spec = job(tmp_path, input_fn, max_steps=7)
    eval_spec = eval_spec._replace(exporters=(Exporter(),))
    metrics, exports = er.train_and_evaluate(estimator, train_spec, eval_spec)
    assert sorted(metrics) == ["global_step", "loss"]
    assert metrics["global_step"] == 7
    assert metrics["loss"] < 0.2  # 4 before the first step
    assert exports == ["exported"]
    assert exported == [f"{tmp_path}/export/mine"]


def test_a_cluster_of_one_trains_in_its_own_process(set_tf_config, tmp_path):
    set_tf_config(
        {
            "cluster": {"chief": ["nowhere.invalid:0"]},
            "task": {"type": "chief", "index": 0},
        }
    )
    estimator, train_spec, eval_spec = job(tmp_path, input_fn, max_steps=2)
    assert er.train_and_evaluate(estimator, train_spec, eval_spec) is None
    assert estimator.get_variable_value("global_step") == 2
