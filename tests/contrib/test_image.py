"""Images are moved as their transformations say."""

import numpy as np
import pytest
import tensorflow as tf

from estimator_runtime.contrib import image
from estimator_runtime.errors import ConfigError

tf1 = tf.compat.v1
_IMAGE = np.arange(1.0, 13.0, dtype=np.float32).reshape(3, 4)
_SQUARE = _IMAGE[:, :3]


def _run(function):
    with tf1.Graph().as_default(), tf1.Session() as session:
        return session.run(function())


@pytest.mark.parametrize(("turns", "angle"), [(1, np.pi / 2), (2, np.pi), (3, -1.5708)])
def test_an_image_is_turned_counterclockwise(turns, angle):
    turned = _run(lambda: image.rotate(_SQUARE, angle))
    np.testing.assert_array_equal(turned, np.rot90(_SQUARE, turns))


def test_each_image_of_a_batch_is_turned_by_its_angle():
    batch = np.stack([_SQUARE, _SQUARE])[:, :, :, np.newaxis]
    turned = _run(lambda: image.rotate(batch, [0.0, np.pi / 2], "BILINEAR"))
    np.testing.assert_allclose(turned[0], batch[0], rtol=1e-5)
    np.testing.assert_allclose(turned[1, :, :, 0], np.rot90(_SQUARE), rtol=1e-5)


def test_an_image_is_moved_right_and_down():
    moved = _run(lambda: image.translate(_IMAGE, [1, 2]))
    expected = np.zeros_like(_IMAGE)
    expected[2:, 1:] = _IMAGE[:1, :3]
    np.testing.assert_array_equal(moved, expected)


def test_an_output_can_have_another_shape():
    double = [0.5, 0, 0, 0, 0.5, 0, 0, 0]
    large = _run(lambda: image.transform(_IMAGE, double, output_shape=[6, 8]))
    assert large.shape == (6, 8)
    np.testing.assert_array_equal(large[::2, ::2], _IMAGE)


def test_transformations_are_composed_from_the_first():
    right, down = [1, 0, -1, 0, 1, 0, 0, 0], [1, 0, 0, 0, 1, -1, 0, 0]
    turn = _run(lambda: image.angles_to_projective_transforms(np.pi / 2, 3, 3))[0]

    def composed():
        return image.transform(
            _SQUARE, image.compose_transforms(right, turn.tolist(), down)
        )

    by_turns = _SQUARE
    for each in (right, turn, down):
        by_turns = _run(lambda x=by_turns, t=each: image.transform(x, t))
    found = _run(composed)
    # What a step moves out of the image is lost by turns only.
    kept = by_turns != 0
    np.testing.assert_array_equal(found[kept], by_turns[kept])
    assert kept.sum() == 6


def test_what_is_no_image_is_refused():
    with pytest.raises(ConfigError, match=r"images have the shape \(5,\)"):
        image.transform(np.zeros(5), [0] * 8)
    with pytest.raises(ConfigError, match="at least one"):
        image.compose_transforms()
