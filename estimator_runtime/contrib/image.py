"""`tf.contrib.image`: images moved by projective transformations.

A transformation is a vector of 8 numbers (a0, a1, a2, b0, b1, b2, c0, c1). The pixel at
(x, y) of the output is that of the input at ((a0 x + a1 y + a2) / k,
(b0 x + b1 y + b2) / k), where k = c0 x + c1 y + 1. Pixels from outside are 0.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from estimator_runtime.errors import ConfigError

__all__ = [
    "angles_to_projective_transforms",
    "compose_transforms",
    "rotate",
    "transform",
    "translate",
    "translations_to_projective_transforms",
]


def transform(
    images: Any,
    transforms: Any,
    interpolation: str = "NEAREST",
    output_shape: Any = None,
    name: str | None = None,
) -> Any:
    """Return transformed images.

    Args:
        images: [batch, rows, columns, channels], [rows, columns, channels] or
            [rows, columns], of uint8, int32, int64, float16, float32 or float64.
        transforms: One transformation, [8], or one for each image, [batch, 8].
        interpolation: "NEAREST" or "BILINEAR".
        output_shape: Rows and columns of the output; None for those of the input.
        name: Name of the ops.

    Raises:
        ConfigError: (a ValueError) If `images` have another rank.
    """
    with tf.compat.v1.name_scope(name, "transform", [images, transforms]):
        images = tf.convert_to_tensor(images)
        rank = images.shape.rank
        if rank not in (2, 3, 4):
            raise ConfigError(
                f"transform: images have the shape {images.shape}; give "
                "[batch, rows, columns, channels], or less without a batch or channels"
            )
        batch = images
        if rank == 2:
            batch = images[tf.newaxis, :, :, tf.newaxis]
        elif rank == 3:
            batch = images[tf.newaxis]
        flat = tf.convert_to_tensor(transforms, tf.float32)
        shape = tf.shape(batch)[1:3] if output_shape is None else output_shape
        moved = tf.raw_ops.ImageProjectiveTransformV2(
            images=batch,
            transforms=flat[tf.newaxis] if flat.shape.rank == 1 else flat,
            output_shape=tf.cast(shape, tf.int32),
            interpolation=interpolation.upper(),
        )
        if output_shape is None:
            moved.set_shape(batch.shape)
        if rank == 2:
            return moved[0, :, :, 0]
        return moved[0] if rank == 3 else moved


def rotate(
    images: Any, angles: Any, interpolation: str = "NEAREST", name: str | None = None
) -> Any:
    """Return images turned about their centres, counterclockwise.

    Args:
        images: See `transform`.
        angles: Radians: a number, or one for each image.
        interpolation: "NEAREST" or "BILINEAR".
        name: Name of the ops.
    """
    with tf.compat.v1.name_scope(name, "rotate", [images, angles]):
        images = tf.convert_to_tensor(images)
        axes = {2: (0, 1), 3: (0, 1)}.get(images.shape.rank, (1, 2))
        rows, columns = (tf.cast(tf.shape(images)[axis], tf.float32) for axis in axes)
        turned = angles_to_projective_transforms(angles, rows, columns)
        return transform(images, turned, interpolation)


def translate(
    images: Any,
    translations: Any,
    interpolation: str = "NEAREST",
    name: str | None = None,
) -> Any:
    """Return images moved to the right and down.

    Args:
        images: See `transform`.
        translations: (right, down) in pixels, [2], or one for each image, [batch, 2].
        interpolation: "NEAREST" or "BILINEAR".
        name: Name of the ops.
    """
    with tf.compat.v1.name_scope(name, "translate", [images, translations]):
        moved = translations_to_projective_transforms(translations)
        return transform(images, moved, interpolation)


def angles_to_projective_transforms(
    angles: Any, image_height: Any, image_width: Any, name: str | None = None
) -> Any:
    """Return the transformations, [batch, 8], that turn images counterclockwise.

    Args:
        angles: Radians: a number, or one for each image.
        image_height: Rows of an image.
        image_width: Columns of an image.
        name: Name of the ops.
    """
    with tf.compat.v1.name_scope(name, "angles_to_projective_transforms", [angles]):
        angles = tf.reshape(tf.convert_to_tensor(angles, tf.float32), [-1])
        x, y = ((tf.cast(n, tf.float32) - 1) / 2 for n in (image_width, image_height))
        cos, sin = tf.cos(angles), tf.sin(angles)
        zeros = tf.zeros_like(angles)
        # The centre stays where it is.
        right, down = x - (cos * x - sin * y), y - (sin * x + cos * y)
        return tf.stack([cos, -sin, right, sin, cos, down, zeros, zeros], 1)


def translations_to_projective_transforms(
    translations: Any, name: str | None = None
) -> Any:
    """Return the transformations, [batch, 8], that move images right and down.

    Args:
        translations: (right, down) in pixels, [2] or [batch, 2].
        name: Name of the ops.
    """
    scope = "translations_to_projective_transforms"
    with tf.compat.v1.name_scope(name, scope, [translations]):
        moves = tf.convert_to_tensor(translations, tf.float32)
        moves = tf.reshape(moves, [-1, 2])
        zeros, ones = tf.zeros_like(moves[:, 0]), tf.ones_like(moves[:, 0])
        rows = [ones, zeros, -moves[:, 0], zeros, ones, -moves[:, 1], zeros, zeros]
        return tf.stack(rows, 1)


def compose_transforms(*transforms: Any, name: str | None = None) -> Any:
    """Return the transformations, [batch, 8], that do the first, then the next ...

    Args:
        *transforms: Transformations, [8] or [batch, 8].
        name: Name of the ops.

    Raises:
        ConfigError: (a ValueError) If none is given.
    """
    if not transforms:
        raise ConfigError("compose_transforms: give at least one transformation")
    with tf.compat.v1.name_scope(name, "compose_transforms", transforms):
        matrices = [_matrices(each) for each in transforms]
        product = matrices[0]
        for each in matrices[1:]:
            product = product @ each
        flat = tf.reshape(product, [-1, 9])
        return flat[:, :8] / flat[:, 8:]


def _matrices(transforms: Any) -> Any:
    """Return the 3 by 3 matrices of transformations."""
    flat = tf.reshape(tf.convert_to_tensor(transforms, tf.float32), [-1, 8])
    ones = tf.ones([tf.shape(flat)[0], 1])
    return tf.reshape(tf.concat([flat, ones], 1), [-1, 3, 3])
