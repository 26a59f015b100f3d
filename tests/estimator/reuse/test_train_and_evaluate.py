"""A local train_and_evaluate reuses the graphs of its evaluations and exports."""

import pathlib

import estimator_runtime as er

er.install()

import tensorflow as tf  # noqa: E402

tf1 = tf.compat.v1


def serving():
    x = tf1.placeholder(tf.float32, [None, 3], name="x")
    return tf.estimator.export.ServingInputReceiver({"x": x}, {"x": x})


def run(model_fn, model_dir, rows, reuse_graphs):
    """Train for 6 steps with an evaluation at every second one."""
    calls = []

    def counting(features, labels, mode):
        calls.append(mode)
        return model_fn(features, labels, mode)

    config = er.RunConfig(
        model_dir,
        tf_random_seed=1,
        save_checkpoints_steps=2,
        keep_best=2,
        best_metric="loss",
        reuse_graphs=reuse_graphs,
    )
    metrics, _ = tf.estimator.train_and_evaluate(
        tf.estimator.Estimator(counting, config=config),
        tf.estimator.TrainSpec(lambda: rows()().repeat(), max_steps=6),
        tf.estimator.EvalSpec(
            rows(seed=1),
            steps=None,
            throttle_secs=0,
            start_delay_secs=0,
            exporters=[
                tf.estimator.BestExporter(serving_input_receiver_fn=serving),
                tf.estimator.LatestExporter("latest", serving),
                tf.estimator.FinalExporter("final", serving),
            ],
        ),
    )
    return metrics, calls


def events(folder):
    return [
        (event.step, value.tag, value.simple_value)
        for path in sorted(folder.glob("events*"))
        for event in tf1.train.summary_iterator(str(path))
        for value in event.summary.value
        if value.tag != "checkpoint_path"
    ]


def test_metrics_best_checkpoints_and_exports_are_equal(linear, rows, tmp_path):
    stock, kept = tmp_path / "stock", tmp_path / "kept"
    expected, as_ever = run(linear, stock, rows, False)
    found, calls = run(linear, kept, rows, True)
    assert found == expected
    assert events(kept / "eval") == events(stock / "eval")
    assert len(events(kept / "eval")) == 3 * 3
    for name in ("best", "export/best_exporter", "export/latest", "export/final"):
        assert len(list((kept / name).iterdir())) == len(list((stock / name).iterdir()))
    assert sorted(p.name for p in (kept / "best").glob("*.index")) == sorted(
        p.name for p in (stock / "best").glob("*.index")
    )
    assert as_ever.count("eval") == 3
    assert as_ever.count("infer") > 3
    assert calls.count("eval") == 1
    assert calls.count("infer") == 1


def test_an_evaluator_of_a_cluster_reuses_its_graph(
    linear, rows, tmp_path, set_tf_config, refusals
):
    calls = []

    def counting(features, labels, mode):
        calls.append(mode)
        return linear(features, labels, mode)

    trained = tf.estimator.Estimator(
        linear, config=er.RunConfig(tmp_path, save_checkpoints_steps=2)
    )
    trained.train(rows(), steps=2)
    set_tf_config(
        {
            "cluster": {"chief": ["127.0.0.1:1"]},
            "task": {"type": "evaluator", "index": 0},
        }
    )
    evaluator = tf.estimator.Estimator(
        counting, config=er.RunConfig(tmp_path, reuse_graphs=True)
    )

    class Train(tf.estimator.Exporter):
        """Trains on, as a chief would meanwhile, until step 6."""

        name = "train"

        def export(self, *, is_the_final_export, **others):
            if not is_the_final_export:
                trained.train(rows(), steps=2)

    tf.estimator.train_and_evaluate(
        evaluator,
        tf.estimator.TrainSpec(rows(), max_steps=6),
        tf.estimator.EvalSpec(
            rows(seed=1), start_delay_secs=0, throttle_secs=0, exporters=Train()
        ),
    )
    steps = {step for step, _, _ in events(pathlib.Path(tmp_path) / "eval")}
    assert steps == {2, 4, 6}
    assert calls == ["eval"]
    assert refusals == []
