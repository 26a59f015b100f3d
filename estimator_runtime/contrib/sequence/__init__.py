"""Models of sequences: `crf`, `rnn` and `seq2seq` of `tf.contrib`."""

from estimator_runtime.patching import install

# Their cells derive from RNNCell, which is found in the Keras that this chooses.
install()
