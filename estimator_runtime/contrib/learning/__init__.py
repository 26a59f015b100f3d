"""`tf.contrib.learn` on top of `tf.estimator`, and the HParams it is used with."""
