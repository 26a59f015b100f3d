"""Optimizers of `tf.contrib.opt`, derived from those of `tf.compat.v1.train`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_runtime.errors import ConfigError
from estimator_runtime.tf_internals import internals

__all__ = [
    "AdamWOptimizer",
    "DecoupledWeightDecayExtension",
    "LazyAdamOptimizer",
    "MomentumWOptimizer",
    "MovingAverageOptimizer",
    "extend_with_decoupled_weight_decay",
]

tf1 = tf.compat.v1
_AdamOptimizer: Any = tf1.train.AdamOptimizer
_MomentumOptimizer: Any = tf1.train.MomentumOptimizer


class DecoupledWeightDecayExtension:
    """Weight decay for an optimizer, apart from its gradients.

    Before each step of the optimizer, `weight_decay` times a variable is subtracted
    from it; of a variable with a sparse gradient, only of the rows that it has. The
    decay is not multiplied by the learning rate: where that has a schedule, give the
    decay the same.

    Derive from this class first, and from an optimizer of `tf.train` second.

    Args:
        weight_decay: A float, a tensor, or a function that returns one.
        **kwargs: Arguments of the optimizer.
    """

    def __init__(self, weight_decay: Any, **kwargs: Any) -> None:
        self._weight_decay = weight_decay
        self._decayed: set[str] | None = None
        super().__init__(**kwargs)

    def minimize(
        self,
        loss: Any,
        global_step: Any = None,
        var_list: Sequence[Any] | None = None,
        gate_gradients: int = tf.compat.v1.train.Optimizer.GATE_OP,
        aggregation_method: Any = None,
        colocate_gradients_with_ops: bool = False,
        name: str | None = None,
        grad_loss: Any = None,
        decay_var_list: Sequence[Any] | None = None,
    ) -> Any:
        """Return an op that trains; see `tf.train.Optimizer.minimize`.

        Args:
            loss: See there, as for those that follow.
            global_step: See there.
            var_list: See there.
            gate_gradients: See there.
            aggregation_method: See there.
            colocate_gradients_with_ops: See there.
            name: See there.
            grad_loss: See there.
            decay_var_list: The variables that decay; None or none for all.
        """
        self._choose(decay_var_list)
        optimizer: Any = super()
        return optimizer.minimize(
            loss,
            global_step,
            var_list,
            gate_gradients,
            aggregation_method,
            colocate_gradients_with_ops,
            name,
            grad_loss,
        )

    def apply_gradients(
        self,
        grads_and_vars: Any,
        global_step: Any = None,
        name: str | None = None,
        decay_var_list: Sequence[Any] | None = None,
    ) -> Any:
        """Return an op that trains; `decay_var_list` is as in `minimize`."""
        if decay_var_list:
            self._choose(decay_var_list)
        optimizer: Any = super()
        return optimizer.apply_gradients(grads_and_vars, global_step, name)

    def _choose(self, variables: Sequence[Any] | None) -> None:
        self._decayed = {each.name for each in variables} if variables else None

    def _decay(self, grad: Any, var: Any, indices: Any = None) -> list[Any]:
        """Return the ops that a step has to wait for.

        They wait for the gradient, which may read the variable late.
        """
        if self._decayed is not None and var.name not in self._decayed:
            return []
        given = self._weight_decay
        decay = tf.cast(given() if callable(given) else given, var.dtype.base_dtype)
        with tf.control_dependencies([grad]):
            if indices is None:
                return [tf1.assign_sub(var, decay * var).op]
            rows = tf.gather(var, indices)
            return [tf1.scatter_sub(var, indices, decay * rows).op]

    def _after(self, ops: list[Any], apply: Callable[..., Any], *args: Any) -> Any:
        with tf.control_dependencies(ops):
            return apply(*args)

    # The next four are TensorFlow's extension points for optimizers: subclasses of
    # `tf.train.Optimizer` define them.
    def _apply_dense(self, grad: Any, var: Any) -> Any:
        apply = super()._apply_dense  # type: ignore[misc]
        return self._after(self._decay(grad, var), apply, grad, var)

    def _resource_apply_dense(self, grad: Any, var: Any) -> Any:
        apply = super()._resource_apply_dense  # type: ignore[misc]
        return self._after(self._decay(grad, var), apply, grad, var)

    def _apply_sparse(self, grad: Any, var: Any) -> Any:
        apply = super()._apply_sparse  # type: ignore[misc]
        return self._after(
            self._decay(grad.values, var, grad.indices), apply, grad, var
        )

    def _resource_apply_sparse(self, grad: Any, var: Any, indices: Any) -> Any:
        apply = super()._resource_apply_sparse  # type: ignore[misc]
        return self._after(self._decay(grad, var, indices), apply, grad, var, indices)


class AdamWOptimizer(DecoupledWeightDecayExtension, _AdamOptimizer):
    """Adam with weight decay.

    Args:
        weight_decay: See `DecoupledWeightDecayExtension`.
        learning_rate: See `tf.train.AdamOptimizer`, as for those that follow.
        beta1: See there.
        beta2: See there.
        epsilon: See there.
        use_locking: See there.
        name: See there.
    """

    def __init__(
        self,
        weight_decay: Any,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        name: str = "AdamW",
    ) -> None:
        super().__init__(
            weight_decay,
            learning_rate=learning_rate,
            beta1=beta1,
            beta2=beta2,
            epsilon=epsilon,
            use_locking=use_locking,
            name=name,
        )


class MomentumWOptimizer(DecoupledWeightDecayExtension, _MomentumOptimizer):
    """Gradient descent with momentum and weight decay.

    Args:
        weight_decay: See `DecoupledWeightDecayExtension`.
        learning_rate: See `tf.train.MomentumOptimizer`, as for those that follow.
        momentum: See there.
        use_locking: See there.
        name: See there.
        use_nesterov: See there.
    """

    def __init__(
        self,
        weight_decay: Any,
        learning_rate: Any,
        momentum: Any,
        use_locking: bool = False,
        name: str = "MomentumW",
        use_nesterov: bool = False,
    ) -> None:
        super().__init__(
            weight_decay,
            learning_rate=learning_rate,
            momentum=momentum,
            use_locking=use_locking,
            name=name,
            use_nesterov=use_nesterov,
        )


def extend_with_decoupled_weight_decay(base_optimizer: type) -> type:
    """Return a class of optimizers with weight decay.

    Args:
        base_optimizer: A class of `tf.train` optimizers.

    Returns:
        A class whose constructor takes `weight_decay` first, and the arguments of the
        other as keywords.
    """
    name = f"OptimizerWithDecoupledWeightDecay{base_optimizer.__name__}"
    return type(name, (DecoupledWeightDecayExtension, base_optimizer), {})


class LazyAdamOptimizer(_AdamOptimizer):
    """Adam that leaves rows without a gradient alone.

    Of a variable with a sparse gradient, such as an embedding, Adam moves every row at
    every step; this one moves, and updates the moments of, those in the gradient only.
    """

    # TensorFlow's extension points for optimizers, as in the class above.
    def _apply_sparse(self, grad: Any, var: Any) -> Any:
        return self._update_rows(grad.values, var, grad.indices)

    def _resource_apply_sparse(self, grad: Any, var: Any, indices: Any) -> Any:
        return self._update_rows(grad, var, indices)

    def _update_rows(self, grad: Any, var: Any, indices: Any) -> Any:
        kind = var.dtype.base_dtype
        power1, power2, rate, beta1, beta2, epsilon = (
            tf.cast(each, kind) for each in internals.adam_scalars(self)
        )
        rate *= tf.sqrt(1 - power2) / (1 - power1)
        first, second = self.get_slot(var, "m"), self.get_slot(var, "v")
        mean = beta1 * tf.gather(first, indices) + (1 - beta1) * grad
        square = beta2 * tf.gather(second, indices) + (1 - beta2) * tf.square(grad)
        return tf.group(
            tf1.scatter_update(first, indices, mean),
            tf1.scatter_update(second, indices, square),
            tf1.scatter_sub(var, indices, rate * mean / (tf.sqrt(square) + epsilon)),
        )


class MovingAverageOptimizer(tf.compat.v1.train.Optimizer):
    """An optimizer that keeps exponential moving averages of what it trains.

    Args:
        opt: An optimizer of `tf.train`.
        average_decay: The part of an average that a step keeps.
        num_updates: If given, averages keep less at first; see
            `tf.train.ExponentialMovingAverage`.
        sequential_update: Whether averages are updated after the variables.
    """

    def __init__(
        self,
        opt: Any,
        average_decay: float = 0.9999,
        num_updates: Any = None,
        sequential_update: bool = True,
    ) -> None:
        self._optimizer = opt
        self._ema = tf1.train.ExponentialMovingAverage(average_decay, num_updates)
        self._is_sequential = sequential_update
        self._averaged: list[Any] = []

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """Return pairs of gradients and variables, as the optimizer does."""
        return self._optimizer.compute_gradients(*args, **kwargs)

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: str | None = None
    ) -> Any:
        """Return an op that trains, and updates the averages."""
        pairs = list(grads_and_vars)
        train = self._optimizer.apply_gradients(pairs, global_step, name)
        self._averaged = [var for grad, var in pairs if grad is not None]
        with tf.control_dependencies([train] if self._is_sequential else []):
            average = self._ema.apply(self._averaged)
        return tf.group(train, average, name="train_with_avg")

    def swapping_saver(
        self,
        var_list: Sequence[Any] | Mapping[str, Any] | None = None,
        name: str = "swapping_saver",
        **kwargs: Any,
    ) -> Any:
        """Return a Saver that writes the averages under the names of the variables.

        The variables are saved under the names of their averages, and the other way
        round: who reads the checkpoint, such as an evaluation, gets the averages. Use
        it to restore in training too, in a Scaffold.

        Args:
            var_list: The variables to save, or a dict of them by name; None for all.
                Partitioned variables are not supported.
            name: Name of the ops.
            **kwargs: Arguments of `tf.train.Saver`.

        Raises:
            ConfigError: (a ValueError) If `apply_gradients` or `minimize` has not been
                called, or an average is not in `var_list`.
        """
        if not self._averaged:
            raise ConfigError(
                "MovingAverageOptimizer: call minimize or apply_gradients first, then "
                "swapping_saver"
            )
        variables = tf1.global_variables() if var_list is None else var_list
        if isinstance(variables, Mapping):
            names = dict(variables)
        else:
            names = {each.op.name: each for each in variables}
        keys = {each.name: key for key, each in names.items()}
        for var in self._averaged:
            average = self._ema.average(var)
            if var.name not in keys:
                continue
            if average.name not in keys:
                raise ConfigError(
                    f"MovingAverageOptimizer: var_list has {var.op.name}, but not its "
                    f"average {average.op.name}; give both"
                )
            names[keys[var.name]], names[keys[average.name]] = average, var
        return tf1.train.Saver(names, name=name, **kwargs)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """Return a slot of the optimizer."""
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        """Return the names of the optimizer's slots."""
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self) -> Any:
        """Return the optimizer's own variables."""
        return self._optimizer.variables()

    def get_name(self) -> str:
        """Return the optimizer's name."""
        return self._optimizer.get_name()
