"""Ops of `tf.contrib` that were in its libraries in C++.

Each is the op that TensorFlow has today under the same name, or made of other ops, with
the results of TensorFlow 1.15.5. The rest raise an error when they are called.
"""

import ast
import types
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from estimator_runtime.tf1.contrib.gone import INSTEAD, gone

_V1: Any = tf.compat.v1


def define(module: types.ModuleType, source: bytes) -> None:
    """Set the functions of a module of generated wrappers, of which only names count.

    Args:
        module: The module, such as tensorflow.contrib.image.ops.gen_image_ops.
        source: Its source.
    """
    folder = module.__name__.split(".")[2]
    names = [
        node.name
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    ]
    for name in names:
        setattr(module, name, _op(name, folder))


def _op(name: str, folder: str) -> Any:
    raw = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
    if found := _OPS.get(name) or getattr(tf.raw_ops, raw, None):
        return found
    remedy = INSTEAD.get(folder, "no TensorFlow since has it")
    return gone(f"tf.contrib.{folder}'s op {raw}", remedy)


def gather_tree(
    step_ids: Any,
    parent_ids: Any,
    max_sequence_lengths: Any,
    end_token: Any,
    name: str | None = None,
) -> Any:
    """Return the ids of beams from their start, by the parents of each step.

    Args:
        step_ids: The id of each step, example and beam.
        parent_ids: The beam of the step before, of the same shape.
        max_sequence_lengths: Number of steps of each example.
        end_token: The id after a sequence, also after its first such id.
        name: Name of the scope of the ops.
    """
    with tf.name_scope(name or "GatherTree"):
        step_ids = tf.convert_to_tensor(step_ids)
        parent_ids = tf.convert_to_tensor(parent_ids)
        end = tf.cast(end_token, step_ids.dtype)
        steps, examples, beams = tf.unstack(tf.shape(step_ids))
        is_within = tf.transpose(tf.sequence_mask(max_sequence_lengths, steps))

        def step_back(carry: tuple[Any, Any], step: tuple[Any, Any, Any]) -> Any:
            beam, _ = carry
            ids, parents, is_used = step
            ids, parents = (tf.gather(x, beam, batch_dims=1) for x in (ids, parents))
            is_used = is_used[:, None]
            return tf.where(is_used, parents, beam), tf.where(is_used, ids, end)

        start = tf.tile(tf.range(beams, dtype=parent_ids.dtype)[None], [examples, 1])
        _, ids = tf.scan(
            step_back,
            (step_ids, parent_ids, is_within),
            (start, tf.zeros([examples, beams], step_ids.dtype)),
            reverse=True,
        )
        is_end = tf.cast(tf.equal(ids, end), tf.int32)
        ids = tf.where(tf.cumsum(is_end, exclusive=True) > 0, end, ids)
        ids.set_shape(step_ids.shape)
        return ids


def zero_initializer(ref: Any, name: str | None = None) -> Any:
    """Return an op that sets a reference variable to zeros."""
    zeros = tf.zeros(tf.shape(ref), ref.dtype.base_dtype)
    return _V1.assign(ref, zeros, validate_shape=False, name=name)


def zero_var_initializer(
    var: Any, dtype: Any, shape: Any, name: str | None = None
) -> Any:
    """Return an op that sets a resource variable to zeros."""
    zeros = tf.zeros(shape, dtype)
    return tf.raw_ops.AssignVariableOp(resource=var, value=zeros, name=name)


def image_projective_transform(
    images: Any, transforms: Any, interpolation: str, name: str | None = None
) -> Any:
    """Return images of the same size, transformed."""
    size = tf.shape(images)[1:3]
    return image_projective_transform_v2(images, transforms, size, interpolation, name)


def image_projective_transform_v2(
    images: Any,
    transforms: Any,
    output_shape: Any,
    interpolation: str,
    name: str | None = None,
) -> Any:
    """Return images of a size, transformed."""
    return tf.raw_ops.ImageProjectiveTransformV2(
        images=images,
        transforms=transforms,
        output_shape=output_shape,
        interpolation=interpolation,
        name=name,
    )


def sparse_feature_cross_v2(
    indices: Sequence[Any],
    values: Sequence[Any],
    shapes: Sequence[Any],
    dense: Sequence[Any],
    hashed_output: bool,
    num_buckets: int,
    hash_key: int,
    out_type: Any,
    internal_type: Any,
    name: str | None = None,
) -> Any:
    """Return crosses of features, as TensorFlow's own op of today computes them."""
    return tf.raw_ops.SparseCross(
        indices=indices,
        values=values,
        shapes=shapes,
        dense_inputs=dense,
        hashed_output=hashed_output,
        num_buckets=num_buckets,
        hash_key=hash_key,
        out_type=out_type,
        internal_type=internal_type,
        name=name,
    )


_HASH_SEED = 0xDECAFCAFFE
_HASH_ADDEND = 0x9E3779B97F4A7800 - 2**64


def sparse_feature_cross(
    indices: Sequence[Any],
    values: Sequence[Any],
    shapes: Sequence[Any],
    dense: Sequence[Any],
    hashed_output: bool,
    num_buckets: int,
    out_type: Any,
    internal_type: Any,
    name: str | None = None,
) -> Any:
    """Return crosses of features, with the buckets of the older hash.

    Today's op has another hash. It crosses the positions of the features here, and the
    hashes at those positions are combined as TensorFlow 1.15.5 does.
    """
    if not hashed_output:
        key = _HASH_SEED  # has no effect
        return sparse_feature_cross_v2(
            *(indices, values, shapes, dense, hashed_output, num_buckets, key),
            *(out_type, internal_type, name),
        )
    columns = [*values, *(tf.reshape(each, [-1]) for each in dense)]
    positions = [tf.as_string(tf.range(tf.size(each))) for each in columns]
    crossed = sparse_feature_cross_v2(
        indices,
        positions[: len(values)],
        shapes,
        [
            tf.reshape(flat, tf.shape(each))
            for flat, each in zip(positions[len(values) :], dense, strict=True)
        ],
        *(False, 0, _HASH_SEED, tf.string, tf.string, name),
    )
    parts = tf.strings.split(crossed.output_values, "_X_").flat_values
    at = tf.reshape(tf.strings.to_number(parts, tf.int32), [-1, len(columns)])
    combined = tf.constant(_HASH_SEED, tf.int64)
    for number, column in enumerate(columns):
        hashes = tf.gather(_fingerprints(column), at[:, number])
        combined = _hash_combine(combined, hashes)
    buckets = tf.constant(num_buckets or tf.int64.max, tf.uint64)
    output = tf.math.floormod(tf.bitcast(combined, tf.uint64), buckets)
    output = tf.cast(output, tf.int64)
    return type(crossed)(crossed.output_indices, output, crossed.output_shape)


def _fingerprints(values: Any) -> Any:
    """Return 64 bits for each feature; a number is its own."""
    if values.dtype != tf.string:
        return tf.cast(values, tf.int64)
    return tf.bitcast(tf.fingerprint(values[:, None]), tf.int64)


def _hash_combine(a: Any, b: Any) -> Any:
    left = tf.bitwise.left_shift(a, tf.constant(10, tf.int64))
    right = tf.bitwise.right_shift(a, tf.constant(4, tf.int64))  # keeps the sign
    return tf.bitwise.bitwise_xor(a, b + _HASH_ADDEND + left + right)


def resampler(data: Any, warp: Any, name: str | None = None) -> Any:
    """Return images at points, interpolated linearly; 0 outside of them.

    Args:
        data: Images, with a shape of [batch, height, width, channels].
        warp: Points (x, y) of each image, in the last dimension.
        name: Name of the scope of the ops.
    """
    with tf.name_scope(name or "Resampler"):
        data, warp = tf.convert_to_tensor(data), tf.convert_to_tensor(warp)
        size = tf.shape(data)[1:3]
        low = tf.floor(warp)
        fraction = warp - low
        result: Any = 0
        for corner in ([0, 0], [0, 1], [1, 0], [1, 1]):
            weights = tf.where(tf.equal(corner, 1), fraction, 1 - fraction)
            weight = tf.reduce_prod(weights, axis=-1, keepdims=True)
            at = tf.reverse(tf.cast(low, tf.int32) + corner, [-1])  # (y, x)
            is_inside = tf.reduce_all((at >= 0) & (at < size), axis=-1, keepdims=True)
            found = tf.gather_nd(data, tf.where(is_inside, at, 0), batch_dims=1)
            result += tf.where(is_inside, found * weight, 0)
        return result


# From RGB to YIQ and back.
_YIQ = ((0.299, 0.587, 0.114), (0.596, -0.274, -0.322), (0.211, -0.523, 0.312))
_RGB = (
    (1.0, 0.95617069, 0.62143257),
    (1.0, -0.2726886, -0.64681324),
    (1.0, -1.103744, 1.70062309),
)


def adjust_hsv_in_yiq(
    images: Any, delta_h: Any, scale_s: Any, scale_v: Any, name: str | None = None
) -> Any:
    """Return images with another hue, saturation and value.

    Args:
        images: RGB in the last dimension.
        delta_h: Angle by which the hue is turned.
        scale_s: Factor of the saturation.
        scale_v: Factor of the value.
        name: Name of the scope of the ops.
    """
    with tf.name_scope(name or "AdjustHsvInYiq"):
        given = (delta_h, scale_s, scale_v)
        angle, saturation, value = (tf.cast(each, tf.float32) for each in given)
        turned = value * saturation * tf.cos(angle)
        crossed = value * saturation * tf.sin(angle)
        zero = tf.zeros([])
        rows = ((value, zero, zero), (zero, turned, -crossed), (zero, crossed, turned))
        matrix = tf.constant(_RGB) @ tf.stack([*map(tf.stack, rows)]) @ _YIQ
        return tf.tensordot(images, matrix, [[-1], [1]])


def _reduce_slice(segment: Callable[..., Any]) -> Callable[..., Any]:
    """Return an op that reduces slices of a dimension, each into one element.

    Args:
        segment: Reduces rows by the number of their segment.
    """

    def reduce_slice(
        data: Any, indices: Any, axis: Any, name: str | None = None
    ) -> Any:
        with tf.name_scope(name or "ReduceSlice"):
            data, indices = tf.convert_to_tensor(data), tf.convert_to_tensor(indices)
            rank = tf.rank(data)
            # The dimension first, and back; that is the same permutation.
            swap = tf.tensor_scatter_nd_update(
                tf.range(rank), [[0], [axis]], tf.stack([axis, 0])
            )
            rows = tf.transpose(data, swap)
            count = tf.shape(rows, indices.dtype)[0]
            start, end = (tf.clip_by_value(indices[:, n], 0, count) for n in (0, 1))
            ranges = tf.ragged.range(start, tf.maximum(start, end))
            reduced = segment(
                tf.gather(rows, ranges.flat_values),
                ranges.value_rowids(),
                tf.shape(indices)[0],
            )
            return tf.transpose(reduced, swap)

    return reduce_slice


def _or_infinity(segment: Callable[..., Any], sign: int) -> Callable[..., Any]:
    """Return the function with an infinite result for a segment without rows."""

    def reduce(rows: Any, segments: Any, count: Any) -> Any:
        found = segment(rows, segments, count)
        if not rows.dtype.is_floating:
            return found
        least = sign * rows.dtype.max  # of a segment without rows
        return tf.where(tf.equal(found, least), sign * float("inf"), found)

    return reduce


_OPS: dict[str, Callable[..., Any]] = {
    "adjust_hsv_in_yiq": adjust_hsv_in_yiq,
    "gather_tree": gather_tree,
    "image_projective_transform": image_projective_transform,
    "image_projective_transform_v2": image_projective_transform_v2,
    "reduce_slice_max": _reduce_slice(_or_infinity(tf.math.unsorted_segment_max, -1)),
    "reduce_slice_min": _reduce_slice(_or_infinity(tf.math.unsorted_segment_min, 1)),
    "reduce_slice_prod": _reduce_slice(tf.math.unsorted_segment_prod),
    "reduce_slice_sum": _reduce_slice(tf.math.unsorted_segment_sum),
    "resampler": resampler,
    "sparse_feature_cross": sparse_feature_cross,
    "sparse_feature_cross_v2": sparse_feature_cross_v2,
    "zero_initializer": zero_initializer,
    "zero_var_initializer": zero_var_initializer,
}
