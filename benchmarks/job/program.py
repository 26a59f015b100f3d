"""The programs of the job benchmark that are no examples: a command each.

Run by plain python they are stock TensorFlow's; all but `row` through the predictor
know nothing of the runtime. The model has a number column and 20 embedding columns.
"""

import argparse
import ctypes
import functools
import gc
import os
import pathlib
import statistics
import time

import numpy as np
import tensorflow as tf

_WORD_COLUMNS = [f"word{i}" for i in range(20)]
_BUCKETS = 1000
_BATCH_ROWS = 32
_EVALUATED_ROWS = 1000


def main(arguments=None):
    """Run one of the commands."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    _add(commands, "import", lambda: tf.estimator.Estimator)
    command = _add(commands, "train", _train)
    command.add_argument("model_dir")
    command.add_argument("--steps", type=int, default=100)
    command = _add(commands, "loop", _loop)
    command.add_argument("model_dir")
    command.add_argument("--epochs", type=int, required=True)
    command.add_argument("--steps", type=int, required=True)
    command = _add(commands, "predict", _predict)
    command.add_argument("model_dir")
    command.add_argument("--calls", type=int, required=True)
    command = _add(commands, "row", _predict_rows)
    command.add_argument("model_dir")
    command.add_argument("--calls", type=int, required=True)
    command.add_argument("--through", choices=_WAYS, required=True)
    command = _add(commands, "memory", _call_often)
    command.add_argument("model_dir")
    command.add_argument("--call", choices=("evaluate", "predict"), required=True)
    command.add_argument("--calls", type=int, nargs="+", required=True)
    args = vars(parser.parse_args(arguments))
    args.pop("run")(**args)


def _add(commands, name, run):
    command = commands.add_parser(name)
    command.set_defaults(run=run)
    return command


def _train(model_dir, steps):
    """Train a model; `predict` and `row` predict with one."""
    _estimator(model_dir).train(_training_input_fn, max_steps=steps)


def _loop(model_dir, epochs, steps):
    """Train and evaluate in turn, as a script does that prints a line per epoch."""
    estimator = _estimator(model_dir)
    for _ in range(epochs):
        estimator.train(_training_input_fn, steps=steps)
        estimator.evaluate(lambda: _dataset(_EVALUATED_ROWS).batch(100))


def _predict(model_dir, calls):
    """Predict batch by batch, each with a call of `predict`."""
    estimator = _estimator(model_dir)

    def predict(columns):
        input_fn = tf.data.Dataset.from_tensors
        return list(estimator.predict(lambda: input_fn(columns)))

    _time(predict, calls, _BATCH_ROWS)


def _predict_rows(model_dir, calls, through):
    """Predict row by row, as a server does."""
    _WAYS[through](model_dir, calls)


def _through_predict(model_dir, calls):
    estimator = _estimator(model_dir)

    def predict(columns):
        input_fn = tf.data.Dataset.from_tensors
        [row] = estimator.predict(lambda: input_fn(columns))
        return row

    _time(predict, calls)


def _through_predictor(model_dir, calls):
    from estimator_runtime.contrib import predictor

    with predictor.from_estimator(
        _estimator(model_dir), _receiver, "predict"
    ) as predict:
        _time(predict, calls)


def _through_session(model_dir, calls):
    """Run the bare session of a predictor: what it costs without the predictor."""
    from estimator_runtime.contrib import predictor

    with predictor.from_estimator(
        _estimator(model_dir), _receiver, "predict"
    ) as predict:
        run, fetches = predict.session.run, predict.fetch_tensors
        feeds = predict.feed_tensors

        def predict_row(columns):
            return run(fetches, {feeds[key]: value for key, value in columns.items()})

        _time(predict_row, calls)


_WAYS = {
    "predict": _through_predict,
    "predictor": _through_predictor,
    "session": _through_session,
}


def _call_often(model_dir, call, calls):
    """Call again and again, and print the memory after some numbers of calls.

    Twice: as it is, and after the collection of garbage, without what the C library
    keeps of freed memory for the next calls.
    """
    estimator = _estimator(model_dir)
    for number in range(1, max(calls) + 1):
        if call == "evaluate":
            estimator.evaluate(lambda: _dataset(_EVALUATED_ROWS).batch(100))
        else:
            rows = _columns(_BATCH_ROWS, seed=number)
            input_fn = functools.partial(tf.data.Dataset.from_tensors, rows)
            list(estimator.predict(input_fn))
        if number in calls:
            as_it_is = _memory_mb()
            gc.collect()
            ctypes.CDLL(None).malloc_trim(0)
            print("memory_mb", number, as_it_is, _memory_mb(), flush=True)


def _memory_mb():
    """Return the memory of this process that is in use now, in MB."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _time(call, calls, rows=1):
    """Make the calls, each for rows of its own, and print what the median one takes."""
    inputs = [_columns(rows, seed=number) for number in range(calls)]
    secs = []
    for columns in inputs:
        start = time.perf_counter()
        call(columns)
        secs.append(time.perf_counter() - start)
    print("call_ms", statistics.median(secs) * 1000)


def _estimator(model_dir):
    column = tf.feature_column
    words = [
        column.embedding_column(
            column.categorical_column_with_hash_bucket(name, _BUCKETS), 8
        )
        for name in _WORD_COLUMNS
    ]
    config = tf.estimator.RunConfig(model_dir, tf_random_seed=1)
    return tf.estimator.DNNClassifier(
        [64, 32], [column.numeric_column("x", shape=[16]), *words], config=config
    )


def _columns(rows, seed=0):
    random = np.random.RandomState(seed)
    words = random.randint(0, _BUCKETS, (len(_WORD_COLUMNS), rows))
    return {
        "x": random.rand(rows, 16).astype(np.float32),
        **{
            name: np.array([b"word %d" % number for number in numbers], object)
            for name, numbers in zip(_WORD_COLUMNS, words, strict=True)
        },
    }


def _dataset(rows, seed=0):
    columns = _columns(rows, seed)
    labels = (columns["x"].sum(axis=1) > 8).astype(np.int32)
    return tf.data.Dataset.from_tensor_slices((columns, labels))


def _training_input_fn():
    return _dataset(3200).shuffle(3200).repeat().batch(_BATCH_ROWS)


def _receiver():
    placeholder = tf.compat.v1.placeholder
    features = {
        "x": placeholder(tf.float32, [None, 16]),
        **{name: placeholder(tf.string, [None]) for name in _WORD_COLUMNS},
    }
    return tf.estimator.export.ServingInputReceiver(features, features)


if __name__ == "__main__":
    main()
