"""What needs a graph of its own has it, with the same results, and says so once."""

import itertools

import numpy as np
import pytest

import estimator_runtime as er

er.install()

import tensorflow as tf  # noqa: E402

tf1 = tf.compat.v1
OWN = "builds a graph of its own, because"
_X = np.arange(30, dtype=np.float32).reshape(10, 3)


def input_fn():
    return tf.data.Dataset.from_tensor_slices(({"x": _X}, _X[:, 0])).batch(4)


class Counter(tf.estimator.SessionRunHook):
    """Counts the runs of a session."""

    def __init__(self):
        self.runs = 0

    def after_run(self, run_context, run_values):
        self.runs += 1


def spec(mode, predicted, **kwargs):
    """Return an EstimatorSpec whose loss is the mean prediction."""
    return tf.estimator.EstimatorSpec(
        mode,
        predictions={"y": predicted},
        loss=tf.reduce_mean(predicted),
        train_op=tf1.assign_add(tf1.train.get_global_step(), 1),
        **kwargs,
    )


def weighted(x):
    weight = tf1.get_variable("w", [], initializer=tf1.ones_initializer())
    return weight * tf.reduce_sum(x, 1)


def test_hooks_of_the_caller_see_the_session_of_the_model(pair, linear, rows, refusals):
    pair = pair(linear)
    pair.train(rows())
    counter = Counter()
    for _ in range(2):
        pair.kept.evaluate(rows(), hooks=[counter])
        list(pair.kept.predict(rows(), hooks=[counter]))
    assert counter.runs == 4 * 3
    assert refusals == [
        f"{call} {OWN} it is given hooks" for call in ("evaluate", "predict")
    ]
    assert pair.calls == ["eval", "infer"] * 2
    with pytest.raises(TypeError, match="Hooks must be a SessionRunHook"):
        pair.kept.evaluate(rows(), hooks=["none"])


def test_hooks_of_the_model(pair, rows, refusals):
    counter = Counter()

    def model_fn(features, labels, mode):
        return spec(
            mode,
            weighted(features["x"]),
            evaluation_hooks=[counter],
            prediction_hooks=[counter],
        )

    pair = pair(model_fn)
    pair.train(rows())
    pair.assert_equal(rows())
    assert counter.runs == 3 * 2 * 3
    assert refusals == [
        f"evaluate {OWN} its EstimatorSpec has evaluation_hooks",
        f"predict {OWN} its EstimatorSpec has prediction_hooks",
    ]
    # One call each to find out.
    assert sorted(pair.calls) == ["eval"] * 3 + ["infer"] * 3


@pytest.mark.parametrize(
    "part", ["init_fn", "local_init_op", "ready_op", "ready_for_local_init_op"]
)
def test_parts_of_a_scaffold(pair, rows, refusals, part):
    def model_fn(features, labels, mode):
        predicted = weighted(features["x"])
        parts = {
            "init_fn": lambda scaffold, session: None,
            "local_init_op": tf.no_op(),
            "ready_op": tf1.report_uninitialized_variables(),
            "ready_for_local_init_op": tf1.report_uninitialized_variables(
                tf1.global_variables()
            ),
        }
        scaffold = (
            None if mode == "train" else tf1.train.Scaffold(**{part: parts[part]})
        )
        return spec(mode, predicted, scaffold=scaffold)

    pair = pair(model_fn)
    pair.train(rows())
    pair.assert_equal(rows())
    assert refusals == [
        f"evaluate {OWN} its Scaffold has a {part}",
        f"predict {OWN} its Scaffold has a {part}",
    ]


def test_a_tensor_of_the_inputs_that_model_fn_takes_another_way(pair, refusals):
    x = np.arange(8, dtype="f").reshape(4, 2)
    taken = {}

    def input_fn():
        dataset = tf.data.Dataset.from_tensor_slices((x, x[:, 0])).batch(2)
        features, labels = tf1.data.make_one_shot_iterator(dataset).get_next()
        taken["labels"] = labels
        return {"x": features}, labels

    def model_fn(features, labels, mode):
        return spec(mode, weighted(features["x"]) + taken["labels"])

    pair = pair(model_fn)
    pair.train(input_fn)
    pair.assert_equal(input_fn)
    assert len(refusals) == 2
    assert refusals[0].startswith(
        f"evaluate {OWN} a graph with fed inputs cannot be built"
    )


@pytest.mark.parametrize(
    "case", ["variable", "step", "array", "resource", "collection"]
)
def test_inputs_that_cannot_be_fed(pair, refusals, case):
    x = np.arange(8, dtype="f").reshape(4, 2)

    def input_fn():
        dataset = tf.data.Dataset.from_tensor_slices(x).batch(2)
        features = {"x": tf1.data.make_one_shot_iterator(dataset).get_next()}
        if case == "variable":
            tf1.get_variable("of_input_fn", [])
        if case == "step":
            features["x"] *= tf.cast(tf1.train.get_global_step(), tf.float32)
        if case == "collection":
            tf1.add_to_collection("of_input_fn", features["x"])
        if case == "array":
            features["more"] = np.zeros(3)
        if case == "resource":
            features["more"] = (
                tf1.get_default_graph().get_collection("global_step")[0].handle
            )
        return features, None

    def model_fn(features, mode):
        return spec(mode, weighted(features["x"]))

    reason = {
        "variable": "input_fn makes variables",
        "step": "input_fn uses the global step",
        "array": "input_fn returns a ndarray, which cannot be fed",
        "collection": "input_fn adds to the collection 'of_input_fn', which model_fn "
        "may read",
        "resource": "input_fn returns 'global_step:0', which cannot be fed",
    }[case]
    pair = pair(model_fn, params=None)
    pair.train(input_fn)
    pair.assert_equal(input_fn)
    assert refusals == [f"evaluate {OWN} {reason}", f"predict {OWN} {reason}"]


def test_an_error_of_a_batch_is_raised_and_the_next_call_is_sound(pair, rows):
    fails = [False]

    def model_fn(features, labels, mode):
        def check(x):
            if fails[0]:
                raise ValueError("a bad batch")
            return x

        x = tf.numpy_function(check, [features["x"]], tf.float32)
        x.set_shape([None, 3])
        return spec(mode, weighted(x))

    pair = pair(model_fn)
    pair.train(rows())
    pair.assert_equal(rows())
    fails[0] = True
    for estimator in (pair.stock, pair.kept):
        with pytest.raises(tf.errors.OpError, match="a bad batch"):
            estimator.evaluate(rows())
        with pytest.raises(tf.errors.OpError, match="a bad batch"):
            next(estimator.predict(rows()))
    fails[0] = False
    pair.assert_equal(rows())


def test_an_estimator_of_a_class_of_its_own(linear, rows, tmp_path, refusals):
    class Own(tf.estimator.Estimator):
        def _assert_members_are_not_overridden(self):
            pass

        def _call_model_fn(self, *args, **kwargs):
            self.called = True
            return super()._call_model_fn(*args, **kwargs)

    own = Own(linear, config=er.RunConfig(tmp_path, reuse_graphs=True))
    own.train(rows(), steps=1)
    own.called = False
    own.evaluate(rows())
    assert own.called
    assert refusals == [f"evaluate {OWN} Own has a _call_model_fn of its own"]


def test_an_evaluation_with_a_strategy(pair, linear, rows, refusals):
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    pair = pair(linear, config={"eval_distribute": strategy})
    pair.train(rows())
    assert pair.kept.evaluate(rows()) == pair.stock.evaluate(rows())
    assert refusals == [f"evaluate {OWN} it has a strategy"]


def test_what_a_python_function_counts_begins_anew(pair, refusals):
    def model_fn(features, labels, mode):
        batches = itertools.count(1)  # of this graph

        def numbered(x):
            return x + np.float32(next(batches))

        x = tf.numpy_function(numbered, [features["x"]], tf.float32)
        return spec(mode, weighted(tf.ensure_shape(x, [None, 3])))

    pair = pair(model_fn)
    pair.train(input_fn)
    pair.assert_equal(input_fn)
    reason = "its graph calls Python functions, which may keep state"
    assert refusals == [f"{call} {OWN} {reason}" for call in ("evaluate", "predict")]


@pytest.mark.parametrize("seeds", [[7, 7], [7, 8]])
def test_a_seed_that_input_fn_sets_is_used_by_the_model(pair, refusals, seeds):
    def model_fn(features, labels, mode):
        return spec(mode, weighted(features["x"]) + tf.random.uniform([]))

    pair = pair(model_fn)
    pair.train(input_fn)
    for seed in seeds:

        def seeded_input_fn(seed=seed):
            tf1.set_random_seed(seed)
            return input_fn()

        pair.assert_equal(seeded_input_fn, times=1)
    assert "input_fn sets a seed" in refusals[0]


def test_a_learning_phase_that_input_fn_sets_is_used_by_the_model(pair, refusals):
    def model_fn(features, labels, mode):
        phase = tf.cast(tf.keras.backend.learning_phase(), tf.float32)
        return spec(mode, weighted(features["x"]) + phase)

    def training_input_fn():
        tf.keras.backend.set_learning_phase(1)
        return input_fn()

    pair = pair(model_fn)
    pair.train(training_input_fn)
    pair.assert_equal(training_input_fn)
    assert "learning phase" in refusals[0]


def test_a_scaffold_of_another_class_finalizes_itself(pair, refusals):
    class Filling(tf1.train.Scaffold):
        def finalize(self):
            reset = tf1.local_variables_initializer()
            with tf.control_dependencies([reset]):
                fill = [v.assign(100.0) for v in tf1.local_variables("filled")]
            tables = self.default_local_init_op()
            self._local_init_op = tf.group(reset, tables, *fill)
            return super().finalize()

    def model_fn(features, labels, mode):
        local = tf1.get_variable(
            "filled",
            initializer=0.0,
            trainable=False,
            collections=[tf1.GraphKeys.LOCAL_VARIABLES],
        )
        return spec(mode, weighted(features["x"]) + local, scaffold=Filling())

    pair = pair(model_fn)
    pair.train(input_fn)
    metrics, _ = pair.assert_equal(input_fn)
    assert metrics["loss"] > 100
    assert refusals[0] == f"evaluate {OWN} its Scaffold is a Filling"


def test_model_fn_may_look_at_the_value_of_a_constant(pair, refusals):
    def model_fn(features, labels, mode):
        known = tf.get_static_value(features["x"])
        return spec(mode, weighted(features["x"]) + (0 if known is None else known[0]))

    def constant_input_fn():
        return {"x": tf.constant([[1.0, 2.0, 3.0]])}, tf.constant([0.0])

    pair = pair(model_fn)
    pair.train(constant_input_fn)
    metrics = [e.evaluate(constant_input_fn, steps=1) for e in (pair.stock, pair.kept)]
    assert metrics[0] == metrics[1]
    assert "input_fn returns the constant" in refusals[0]


def test_a_metric_may_be_the_value_of_the_last_batch(pair, refusals):
    def model_fn(features, labels, mode):
        last = tf.reduce_mean(features["x"]), tf.no_op()
        return spec(mode, weighted(features["x"]), eval_metric_ops={"last": last})

    pair = pair(model_fn)
    pair.train(input_fn)
    endless = lambda: input_fn().repeat()  # noqa: E731
    metrics = [e.evaluate(endless, steps=3) for e in (pair.stock, pair.kept)]
    assert metrics[0] == metrics[1]
    assert refusals == [f"evaluate {OWN} the value of a metric depends on the batch"]


def local(name, start):
    keys = [tf1.GraphKeys.LOCAL_VARIABLES]
    return tf1.get_variable(name, initializer=start, trainable=False, collections=keys)


def calls(x):
    count = local("calls", 0.0)
    return count.value(), count.assign_add(1.0)


def mean_of_random_numbers(x):
    return tf1.metrics.mean(tf.random.uniform([], seed=3))


def calls_in_a_function(x):
    count = local("calls", 0.0)
    return count.value(), tf.function(lambda: count.assign_add(1.0))()


def first_number_after_all(x):
    drawn = tf.function(lambda: tf.random.uniform([], seed=3))()
    return drawn, tf.group(drawn)


def rows_of_a_table(x):
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 0.0)
    value = tf1.metrics.mean(x)[1]
    key = tf.cast(tf.timestamp() * 1e6, tf.int64)
    return tf.cast(table.size(), tf.float32), tf.group(value, table.insert(key, 1.0))


RANDOM = {mean_of_random_numbers, first_number_after_all}


@pytest.mark.parametrize(
    "metric",
    [
        calls,
        mean_of_random_numbers,
        calls_in_a_function,
        first_number_after_all,
        rows_of_a_table,
    ],
)
def test_a_metric_that_no_batch_reaches_is_updated_as_often_as_in_stock(
    metric, pair, refusals
):
    def model_fn(features, labels, mode):
        metrics = {"it": metric(features["x"])}
        return spec(mode, weighted(features["x"]), eval_metric_ops=metrics)

    pair = pair(model_fn)
    pair.train(input_fn)
    metrics, _ = pair.assert_equal(input_fn)
    # Three batches, and a call that finds no fourth.
    assert metrics["it"] == (4.0 if metric not in RANDOM else metrics["it"])
    assert refusals[0].startswith(f"evaluate {OWN} a metric is updated by '")
    assert refusals[0].endswith("', which does not depend on the batch")


def test_a_feature_that_the_model_does_not_use_is_not_computed(pair, refusals):
    def failing_input_fn():
        features, labels = tf1.data.make_one_shot_iterator(input_fn()).get_next()
        with tf.control_dependencies([tf1.assert_negative(features["x"])]):
            features["broken"] = tf.identity(labels)
        return features, labels

    def model_fn(features, labels, mode):
        return spec(mode, weighted(features["x"]))

    pair = pair(model_fn)
    pair.train(input_fn)
    pair.assert_equal(failing_input_fn)
    assert (refusals, pair.calls) == ([], ["eval", "infer"])


def test_exports_have_the_seeds_that_their_inputs_set(pair, tmp_path):
    def model_fn(features, labels, mode):
        predicted = weighted(features["x"]) + tf.random.uniform([])
        outputs = {
            "serving_default": tf.estimator.export.PredictOutput({"y": predicted})
        }
        return spec(mode, predicted, export_outputs=outputs)

    pair = pair(model_fn)
    pair.train(input_fn)
    found = []
    for seed in (1, 2):

        def receiver_fn(seed=seed):
            tf1.set_random_seed(seed)
            x = tf1.placeholder(tf.float32, [None, 3])
            return tf.estimator.export.ServingInputReceiver({"x": x}, {"x": x})

        path = pair.kept.export_saved_model(str(tmp_path / "export"), receiver_fn)
        with tf.Graph().as_default() as graph, tf1.Session() as session:
            tf1.saved_model.load(session, ["serve"], path.decode())
            ops = graph.get_operations()
        found += [op.get_attr("seed") for op in ops if op.type == "RandomUniform"]
    assert found == [1, 2]


def test_a_failure_of_model_fn_is_not_remembered(pair, refusals):
    failures = [OSError("the network is down")]

    def model_fn(features, labels, mode):
        if mode == tf.estimator.ModeKeys.PREDICT and failures:
            raise failures.pop()
        return spec(mode, weighted(features["x"]))

    pair = pair(model_fn)
    pair.train(input_fn)
    rows = [[row["y"] for row in pair.kept.predict(input_fn)] for _ in range(3)]
    assert rows[0] == rows[1] == rows[2]
    assert pair.calls == ["infer"] * 3  # twice in the first call
    assert refusals == [
        f"predict {OWN} a graph with fed inputs fails: OSError: the network is down"
    ]
