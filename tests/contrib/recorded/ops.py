"""Computes ops of `tf.contrib` that were in libraries in C++, and writes the results.

ops.json was written with TensorFlow 1.15.5; test_ops.py runs it in TensorFlow 1 mode.

    python ops.py FILE
"""

import json
import sys

import numpy as np
import tensorflow as tf
from tensorflow.contrib import image, resampler, seq2seq
from tensorflow.contrib.image.python.ops import distort_image_ops
from tensorflow.contrib.layers.python.ops import sparse_feature_cross_op
from tensorflow.contrib.reduce_slice_ops.python.ops import reduce_slice_ops


def crosses():
    cross = sparse_feature_cross_op.sparse_feature_cross
    texts = tf.SparseTensor(
        [[0, 0], [0, 1], [1, 0], [2, 0]], ["a", "b", "c", "a"], [3, 2]
    )
    numbers = tf.SparseTensor(
        [[0, 0], [1, 0], [1, 1]], np.array([7, -1, 12345678901], np.int64), [3, 2]
    )
    dense = tf.constant([["x"], ["y"], ["z"]])
    ints = tf.constant([[5], [6], [7]], tf.int64)
    key = sparse_feature_cross_op.SPARSE_FEATURE_CROSS_DEFAULT_HASH_KEY
    return {
        "texts and dense": cross([texts, dense], True, 20),
        "texts and numbers": cross([texts, numbers], True, 1000),
        "all": cross([dense, texts, ints, numbers], True, 0),
        "second hash": cross([texts, dense], True, 20, hash_key=key),
        "not hashed": cross([texts, ints]),
    }


def others():
    data = tf.constant(np.sin(np.arange(48)).reshape(2, 4, 3, 2), tf.float32)
    points = [[[0.5, 1.25], [2, 3]], [[-0.5, -0.5], [2.75, 3.5]]]
    warp = tf.constant([*points], tf.float32)
    rows = tf.constant(np.cos(np.arange(24)).reshape(4, 3, 2), tf.float32)
    slices = tf.constant([[0, 2], [1, 1], [2, 9]])
    made = {
        "resampler": resampler.resampler(data, warp),
        "hsv": distort_image_ops.adjust_hsv_in_yiq(
            tf.abs(data[..., :1] * [0.2, 0.5, 1]), 0.3, 2, 0.7
        ),
        "rotate": image.rotate(data, [0.1, -0.5], "BILINEAR"),
        "gather_tree": seq2seq.gather_tree(
            tf.constant(
                [[[1, 2, 3], [4, 2, 6]], [[5, 7, 6], [2, 4, 8]], [[9, 7, 6], [3, 5, 8]]]
            ),
            tf.constant(
                [[[0, 0, 0], [0, 0, 0]], [[0, 1, 1], [2, 1, 0]], [[2, 1, 2], [1, 0, 0]]]
            ),
            [3, 2],
            7,
        ),
        "resampler's gradient": tf.gradients(
            resampler.resampler(data, warp) ** 2, [data, warp]
        ),
    }
    for kind in ("sum", "prod", "max", "min"):
        op = getattr(reduce_slice_ops, "reduce_slice_" + kind)
        made["slices, " + kind] = op(rows, slices, 0)
        made["slices of columns, " + kind] = op(rows, tf.constant([[0, 2], [2, 3]]), 1)
    return made


def main():
    with tf.Session() as session:
        found = session.run({**crosses(), **others()})
    result = {}
    for name, value in found.items():
        parts = value if isinstance(value, (list, tuple)) else [value]
        result[name] = [
            [x.decode() if isinstance(x, bytes) else x for x in np.ravel(part).tolist()]
            for part in parts
        ]
    with open(sys.argv[1], "w") as file:
        json.dump(result, file, indent=1, sort_keys=True)


if __name__ == "__main__":
    main()
