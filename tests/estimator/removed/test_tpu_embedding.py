"""Embeddings for a TPU, in programs that run on a machine without one."""

import pickle

import tensorflow as tf

import estimator_runtime

estimator_runtime.install()

from tensorflow.python.tpu import tpu_embedding  # noqa: E402

tf1 = tf.compat.v1
PARAMETERS = tf1.tpu.experimental


def test_a_tpu_estimator_with_embedding_columns_trains_on_a_cpu(tmp_path):
    ids = tf.feature_column.categorical_column_with_identity("id", num_buckets=3)
    columns = [PARAMETERS.embedding_column(ids, dimension=2)]

    def model_fn(features, labels, mode, params):
        inputs = tf1.feature_column.input_layer(features, columns)
        score = tf.matmul(inputs, tf1.get_variable("w", [2, 1]))
        loss = tf1.losses.mean_squared_error(labels, score)
        optimizer = tf1.train.GradientDescentOptimizer(0.1)
        train_op = optimizer.minimize(loss, tf1.train.get_global_step())
        return tf1.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    def input_fn(params):
        data = {"id": [[0], [1], [2], [0]]}, [[1.0], [2.0], [3.0], [1.0]]
        dataset = tf.data.Dataset.from_tensor_slices(data).repeat()
        return dataset.batch(params["batch_size"], drop_remainder=True)

    estimator = tf1.estimator.tpu.TPUEstimator(
        model_fn,
        config=tf1.estimator.tpu.RunConfig(model_dir=str(tmp_path), tf_random_seed=1),
        use_tpu=False,
        train_batch_size=4,
        eval_batch_size=4,
        embedding_config_spec=tf1.estimator.tpu.experimental.EmbeddingConfigSpec(
            feature_columns=columns,
            optimization_parameters=PARAMETERS.AdagradParameters(learning_rate=0.1),
        ),
    )
    estimator.train(input_fn, max_steps=1)
    before = estimator.evaluate(input_fn, steps=1)["loss"]
    estimator.train(input_fn, max_steps=200)
    assert estimator.evaluate(input_fn, steps=1)["loss"] < before / 10


def test_a_feature_and_parameters_are_pickled_under_their_former_names():
    feature = tpu_embedding.FeatureConfig("t", 3)
    parameters = tpu_embedding.AdamParameters(0.1, beta1=0.8)
    assert pickle.loads(pickle.dumps(feature)) == feature
    assert vars(pickle.loads(pickle.dumps(parameters))) == vars(parameters)
