"""The training interfaces of `tf.contrib.learn`, on top of `tf.estimator`."""
