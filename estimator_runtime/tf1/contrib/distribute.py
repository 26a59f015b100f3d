"""Strategies of `tf.contrib.distribute`: today's, with the arguments of 1.15."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from estimator_runtime.errors import ConfigError

__all__ = [
    "CollectiveAllReduceStrategy",
    "MirroredStrategy",
    "OneDeviceStrategy",
    "ParameterServerStrategy",
]

_v1: Any = tf.compat.v1.distribute
OneDeviceStrategy = _v1.OneDeviceStrategy


class MirroredStrategy(_v1.MirroredStrategy):
    """`tf.distribute.MirroredStrategy`, with a number of GPUs instead of devices.

    Args:
        devices: Devices; None for `num_gpus`.
        num_gpus: Number of GPUs; 0 for the CPU, None for all GPUs or, without one, the
            CPU.
        num_gpus_per_worker: The same; give one of the two.
        cross_device_ops: How values of several devices are joined.
        auto_shard_dataset: Must be False.
        cross_tower_ops: Former name of `cross_device_ops`.

    Raises:
        ConfigError: (a ValueError) If more than one of the first three is given, or
            `auto_shard_dataset` is True.
    """

    def __init__(
        self,
        devices: Sequence[str] | None = None,
        num_gpus: int | None = None,
        num_gpus_per_worker: int | None = None,
        cross_device_ops: Any = None,
        auto_shard_dataset: bool = False,
        cross_tower_ops: Any = None,
    ) -> None:
        given = [each for each in (num_gpus, num_gpus_per_worker) if each is not None]
        if len(given) + (devices is not None) > 1:
            raise ConfigError(
                f"MirroredStrategy: devices is {devices!r}, num_gpus {num_gpus!r} and "
                f"num_gpus_per_worker {num_gpus_per_worker!r}; give one of them"
            )
        if auto_shard_dataset:
            raise ConfigError(
                "MirroredStrategy: auto_shard_dataset is not supported; shard in the "
                "input_fn, with tf.data.Dataset.shard"
            )
        if given:
            (count,) = given
            gpus = [f"/device:GPU:{index}" for index in range(count)]
            devices = gpus or ["/device:CPU:0"]
        super().__init__(devices, cross_device_ops or cross_tower_ops)


class CollectiveAllReduceStrategy(_v1.experimental.MultiWorkerMirroredStrategy):
    """`tf.distribute.experimental.MultiWorkerMirroredStrategy`.

    Args:
        num_gpus_per_worker: Has no effect: each worker uses all its GPUs, or its CPU.
    """

    def __init__(self, num_gpus_per_worker: int = 0) -> None:
        super().__init__()


class ParameterServerStrategy(_v1.experimental.ParameterServerStrategy):
    """`tf.distribute.experimental.ParameterServerStrategy` of TensorFlow 1.

    Args:
        num_gpus_per_worker: Has no effect: each worker uses all its GPUs, or its CPU.
    """

    def __init__(self, num_gpus_per_worker: int = 0) -> None:
        super().__init__()
