"""TensorFlow's own Estimators keep their graphs by default, if they are made from data."""

import functools
import glob
import threading

import numpy as np
import pytest

import estimator_runtime as er

er.install()

import tensorflow as tf  # noqa: E402

from estimator_runtime.estimator.reuse import cache  # noqa: E402

tf1 = tf.compat.v1
fc = tf.feature_column
_ROWS = 10
_DRAW = np.random.RandomState(0)
_FEATURES = {
    "x": _DRAW.rand(_ROWS, 3).astype("f"),
    "age": _DRAW.randint(0, 9, _ROWS).astype("f"),
    "word": _DRAW.choice(["a", "b", "c", "d"], _ROWS),
    "city": _DRAW.choice(["p", "q", "r"], _ROWS),
    "place": _DRAW.randint(0, 5, _ROWS),
    "weight": _DRAW.rand(_ROWS).astype("f"),
}
_CLASSES = _DRAW.randint(0, 3, _ROWS)
_NUMBERS = _DRAW.rand(_ROWS).astype("f")
_word = fc.categorical_column_with_vocabulary_list("word", ["a", "b", "c"])
_city = fc.categorical_column_with_hash_bucket("city", 7)
_place = fc.categorical_column_with_identity("place", 5)
WIDE = [_word, _city, fc.crossed_column(["word", "city"], 11)]
DEEP = [
    fc.numeric_column("x", [3], dtype=tf.float32, default_value=0.5),
    fc.bucketized_column(fc.numeric_column("age"), list(np.linspace(1.0, 8.0, 3))),
    fc.embedding_column(_word, 4, combiner="sqrtn", max_norm=2.0),
    fc.embedding_column(_place, 2, initializer=tf1.ones_initializer()),
    fc.indicator_column(_city),
]
_DNN = {"feature_columns": DEEP, "hidden_units": [5, 3]}
_LINEAR = {"feature_columns": WIDE, "optimizer": "Ftrl"}
_BOTH = {
    "linear_feature_columns": WIDE,
    "dnn_feature_columns": DEEP,
    "dnn_hidden_units": [5, 3],
    "dnn_activation_fn": tf.nn.tanh,
}
FAMILIES = {"DNN": _DNN, "Linear": _LINEAR, "DNNLinearCombined": _BOTH, "Baseline": {}}
KINDS = ("Classifier", "Regressor", "Estimator")
NAMES = [f"{family}{kind}" for family in FAMILIES for kind in KINDS]


def input_fn(features=_FEATURES, labels=_CLASSES):
    return tf.data.Dataset.from_tensor_slices((features, labels)).batch(4)


def arguments(name, api):
    """Return the arguments of the Estimator of a name, and labels for it."""
    family, kind = next((f, k) for k in KINDS for f in FAMILIES if f"{f}{k}" == name)
    given, labels = dict(FAMILIES[family]), _CLASSES
    if kind == "Classifier":
        given |= {"n_classes": 3, "weight_column": "weight"}
    elif kind == "Regressor":
        labels = _NUMBERS
    elif api is tf1.estimator:
        from tensorflow_estimator.python.estimator.canned import head

        given["head"] = head._multi_class_head_with_softmax_cross_entropy_loss(3)
    else:
        given["head"] = tf.estimator.MultiHead(
            [
                tf.estimator.MultiClassHead(3, name="one"),
                tf.estimator.PoissonRegressionHead(name="two"),
            ]
        )
        labels = {"one": _CLASSES, "two": _NUMBERS}
    return given, labels


def rows(estimator, data):
    """Predict all rows, and copy them."""
    return [{k: np.array(v) for k, v in r.items()} for r in estimator.predict(data)]


def results(estimator, data, name):
    """Evaluate, and predict all rows."""
    return [estimator.evaluate(data, name=name), rows(estimator, data)]


def events(folder):
    """Return what the summaries in a folder hold, without their times."""
    found = []
    for path in sorted(glob.glob(f"{folder}/events*")):
        for event in tf1.train.summary_iterator(path):
            found += [
                (event.step, each.SerializeToString()) for each in event.summary.value
            ]
    return found


@pytest.fixture
def built(monkeypatch):
    """Return a list, to which each call of a model_fn adds its mode."""
    modes = []
    base = tf1.estimator.Estimator
    call = base._call_model_fn

    def counting(self, features, labels, mode, config):
        modes.append(mode)
        return call(self, features, labels, mode, config)

    monkeypatch.setattr(base, "_call_model_fn", counting)
    return modes


@pytest.mark.parametrize("api", [tf.estimator, tf1.estimator], ids=["v2", "v1"])
@pytest.mark.parametrize("name", NAMES)
def test_each_canned_estimator_has_stocks_results(
    name, api, tmp_path, assert_equal, built
):
    given, labels = arguments(name, api)
    features = _FEATURES
    if name.startswith("Baseline"):  # TensorFlow's fails with a second feature
        names = ("age", "weight") if "weight_column" in given else ("age",)
        features = {each: _FEATURES[each] for each in names}
    data = functools.partial(input_fn, features, labels)

    def estimator(**options):
        config = er.RunConfig(tmp_path, tf_random_seed=3, **options)
        return getattr(api, name)(config=config, **given)

    stock, kept = estimator(reuse_graphs=False), estimator()
    builds = []
    for _ in range(2):
        stock.train(data, steps=3)
        expected = [results(stock, data, "stock") for _ in range(3)]
        built.clear()
        assert_equal([results(kept, data, "kept") for _ in range(3)], expected)
        builds.append(list(built))
        assert events(kept.eval_dir("kept")) == events(stock.eval_dir("stock"))
    assert builds == [["eval", "infer"], []]


def own(x):
    return x


def own_initializer(shape, dtype=None, partition_info=None):
    return tf.zeros(shape, dtype or tf.float32)


class Subclass(tf.estimator.DNNRegressor):
    """An Estimator of the program."""


class OwnSGD(tf.keras.optimizers.legacy.SGD):
    """An optimizer of the program."""


class OwnHead(tf.estimator.RegressionHead):
    """A head of the program."""


_X = [fc.numeric_column("x", [3])]
_LAYERS = {"feature_columns": _X, "hidden_units": [2]}
CODE_OF_THE_PROGRAM = {
    "subclass": lambda: Subclass(**_LAYERS),
    "normalizer_fn": lambda: tf.estimator.DNNRegressor(
        [2], [fc.numeric_column("x", [3], normalizer_fn=own)]
    ),
    "initializer": lambda: tf.estimator.DNNRegressor(
        [2], [fc.embedding_column(_place, 2, initializer=own_initializer)]
    ),
    "activation_fn": lambda: tf.estimator.DNNRegressor(**_LAYERS, activation_fn=own),
    "activation_fn with state": lambda: tf.estimator.DNNRegressor(
        **_LAYERS, activation_fn=tf.keras.layers.PReLU()
    ),
    "part of a function": lambda: tf.estimator.DNNRegressor(
        **_LAYERS, activation_fn=functools.partial(tf.nn.leaky_relu, alpha=0.1)
    ),
    "optimizer": lambda: tf.estimator.DNNRegressor(**_LAYERS, optimizer=OwnSGD(0.1)),
    "optimizer as a function": lambda: tf.estimator.DNNRegressor(
        **_LAYERS, optimizer=lambda: "SGD"
    ),
    "head": lambda: tf.estimator.DNNEstimator(OwnHead(), **_LAYERS),
    "loss_fn": lambda: tf.estimator.DNNEstimator(
        tf.estimator.RegressionHead(loss_fn=lambda labels, logits: labels - logits),
        **_LAYERS,
    ),
    "generator of columns": lambda: tf.estimator.LinearRegressor(iter(_X)),
    "model_fn": lambda: tf.estimator.Estimator(own_model_fn),
    "metrics": lambda: tf.estimator.add_metrics(
        tf.estimator.DNNRegressor(**_LAYERS), lambda labels: {}
    ),
}


def own_model_fn(features, labels, mode):
    return tf.estimator.EstimatorSpec(mode)


@pytest.mark.parametrize("name", CODE_OF_THE_PROGRAM)
def test_code_of_the_program_keeps_no_graph_by_default(name):
    assert cache.cache_of(CODE_OF_THE_PROGRAM[name]()) is None


def test_another_model_fn_of_a_canned_estimator_keeps_no_graph():
    estimator = tf.estimator.DNNRegressor(**_LAYERS)
    assert cache.cache_of(estimator) is not None
    estimator._model_fn = own_model_fn
    assert cache.cache_of(estimator) is None


@pytest.mark.parametrize(
    "optimizer", ["Adam", tf.keras.optimizers.legacy.Adam(0.1)], ids=["name", "object"]
)
def test_optimizers_of_tensorflow_are_data(optimizer):
    estimator = tf.estimator.DNNRegressor(**_LAYERS, optimizer=optimizer)
    assert cache.cache_of(estimator) is not None


def test_an_argument_that_changes_makes_another_graph(tmp_path, built):
    columns = [fc.numeric_column("age")]
    estimator = tf.estimator.LinearRegressor(columns, tmp_path)
    data = functools.partial(input_fn, labels=_NUMBERS)
    estimator.train(data, steps=1)
    built.clear()
    for _ in range(2):
        estimator.evaluate(data)
    columns.append(fc.numeric_column("weight"))
    with pytest.raises(tf.errors.NotFoundError, match="linear_model/weight"):
        estimator.evaluate(data)
    columns.pop()
    estimator.evaluate(data)
    assert built == ["eval"] * 3


@pytest.mark.parametrize("kind", [set, frozenset, tuple])
def test_columns_may_come_in_any_collection(kind):
    estimator = tf.estimator.LinearRegressor(kind(WIDE))
    assert cache.cache_of(estimator) is not None


def test_columns_may_be_the_values_of_a_dict():
    estimator = tf.estimator.LinearRegressor({"x": _X[0]}.values())
    assert cache.cache_of(estimator) is not None


def test_a_policy_of_keras_that_changes_makes_another_graph(tmp_path, assert_equal):
    def estimator(**options):
        config = er.RunConfig(tmp_path, **options)
        return tf.estimator.DNNClassifier([8], _X, n_classes=3, config=config)

    stock, kept = estimator(reuse_graphs=False), estimator()
    stock.train(input_fn, steps=1)
    policies, found = tf.keras.mixed_precision, []
    before = policies.global_policy()
    try:
        for policy in (before, "mixed_bfloat16", before):
            policies.set_global_policy(policy)
            found.append(rows(stock, input_fn))
            assert_equal(rows(kept, input_fn), found[-1])
    finally:
        policies.set_global_policy(before)
    logits = [[row["logits"].tolist() for row in each] for each in found]
    assert logits[0] == logits[2] != logits[1]


def test_a_vocabulary_file_that_changes_is_read_again(tmp_path, assert_equal):
    file = tmp_path / "words"
    file.write_text("a\nb\nc\n")
    column = fc.categorical_column_with_vocabulary_file("word", str(file), 3)

    def estimator(**options):
        config = er.RunConfig(tmp_path / "model", **options)
        return tf.estimator.LinearClassifier([column], n_classes=3, config=config)

    stock, kept = estimator(reuse_graphs=False), estimator()
    stock.train(input_fn, steps=3)
    before = rows(stock, input_fn)
    assert_equal(rows(kept, input_fn), before)
    (tmp_path / "new").write_text("c\nb\nx\n")
    (tmp_path / "new").replace(file)
    after = rows(stock, input_fn)
    assert_equal(rows(kept, input_fn), after)
    logits = [[row["logits"].tolist() for row in each] for each in (before, after)]
    assert logits[0] != logits[1]


def test_only_the_last_few_estimators_keep_graphs_by_default(tmp_path, built):
    data = functools.partial(input_fn, labels=_NUMBERS)
    estimators = [
        tf.estimator.LinearRegressor(
            [fc.numeric_column("age")], config=er.RunConfig(tmp_path)
        )
        for _ in range(cache.MAX_ESTIMATORS + 1)
    ]
    estimators[0].train(data, steps=1)
    built.clear()
    first, second, *others = estimators
    for each in (first, second, first, *others):  # the last one takes second's place
        each.evaluate(data)
    assert len(built) == len(estimators)
    first.evaluate(data)
    assert len(built) == len(estimators)
    second.evaluate(data)
    assert len(built) == len(estimators) + 1


def test_an_estimator_that_builds_a_graph_is_not_waited_for(tmp_path):
    data = functools.partial(input_fn, labels=_NUMBERS)
    first, second, *others = (
        tf.estimator.LinearRegressor(
            [fc.numeric_column("age")], config=er.RunConfig(tmp_path)
        )
        for _ in range(cache.MAX_ESTIMATORS + 1)
    )
    first.train(data, steps=1)
    begun, may_end, built = threading.Event(), threading.Event(), []

    def build():
        begun.set()
        built.append(may_end.wait(30))
        return object()

    kept = cache.cache_of(first)
    thread = threading.Thread(target=kept.model, args=("slow", build))
    thread.start()
    assert begun.wait(30)
    for each in (second, *others):
        each.evaluate(data)
    assert built == []
    may_end.set()
    thread.join(30)
    second.evaluate(data)
    assert (built, len(kept)) == ([True], 0)


def numpy_rows(features, batch_size):
    return tf1.estimator.inputs.numpy_input_fn(
        features, batch_size=batch_size, num_epochs=1, shuffle=False
    )


def slices(features, size, **options):
    return lambda: tf.data.Dataset.from_tensor_slices(features).batch(size, **options)


IN_MEMORY = {
    "NumPy": numpy_rows(_FEATURES, 4),
    "NumPy, objects": numpy_rows(
        {
            name: each.astype(object) if each.dtype.kind == "U" else each
            for name, each in _FEATURES.items()
        },
        3,
    ),
    "tensors": lambda: tf.data.Dataset.from_tensors(_FEATURES),
    "tensors, labels": lambda: tf.data.Dataset.from_tensors((_FEATURES, _CLASSES)),
    "slices": slices(_FEATURES, 4),
    "slices, labels": lambda: input_fn(),
    "slices, no rest": slices(_FEATURES, 4, drop_remainder=True),
    "TensorFlow 1": lambda: tf1.data.Dataset.from_tensor_slices(_FEATURES).batch(4),
}
IN_SESSION = {
    "several epochs": tf1.estimator.inputs.numpy_input_fn(
        _FEATURES, batch_size=4, num_epochs=2, shuffle=False
    ),
    "map": lambda: input_fn().map(lambda features, labels: features),
    "slices of slices": lambda: input_fn().unbatch().batch(3),
    "shuffle": lambda: slices(_FEATURES, 4)().shuffle(1),
}


@pytest.mark.parametrize("name", [*IN_MEMORY, *IN_SESSION])
def test_rows_in_memory_are_predicted_without_a_session_of_the_inputs(
    name, tmp_path, assert_equal, monkeypatch
):
    def estimator(**options):
        config = er.RunConfig(tmp_path, **options)
        return tf.estimator.DNNClassifier([3], DEEP, n_classes=3, config=config)

    data = {**IN_MEMORY, **IN_SESSION}[name]
    stock, kept = estimator(reuse_graphs=False), estimator()
    stock.train(input_fn, steps=1)
    expected = [rows(stock, data) for _ in range(2)]
    sessions = []
    init = tf1.train.MonitoredSession.__init__

    def counting(self, *args, **kwargs):
        sessions.append(self)
        init(self, *args, **kwargs)

    monkeypatch.setattr(tf1.train.MonitoredSession, "__init__", counting)
    assert_equal([rows(kept, data) for _ in range(2)], expected)
    assert len(sessions) == (0 if name in IN_MEMORY else 2)


def test_a_large_model_is_not_kept_by_default(tmp_path, built, monkeypatch, refusals):
    monkeypatch.setattr(cache, "MAX_VALUES", 2)
    estimator = tf.estimator.LinearRegressor([fc.numeric_column("age")], tmp_path)
    data = functools.partial(input_fn, labels=_NUMBERS)
    estimator.train(data, steps=1)
    built.clear()
    for _ in range(2):
        estimator.evaluate(data)
    assert built == ["eval", "eval"]
    assert refusals == [
        "evaluate builds a graph of its own, because the checkpoint has more than 2 "
        "values; give reuse_graphs=True to keep them in memory"
    ]
