"""Cells and functions of `tf.contrib.rnn` that TensorFlow 2 no longer has.

Names of variables, and their order, are those of TensorFlow 1.15.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from estimator_runtime.errors import ConfigError
from estimator_runtime.tf_internals import internals

__all__ = [
    "FusedRNNCellAdaptor",
    "LSTMBlockCell",
    "LSTMBlockFusedCell",
    "LayerNormBasicLSTMCell",
    "OutputProjectionWrapper",
    "TimeReversedFusedRNN",
    "stack_bidirectional_dynamic_rnn",
    "stack_bidirectional_rnn",
    "transpose_batch_time",
]

tf1 = tf.compat.v1
_RNNCell: Any = tf1.nn.rnn_cell.RNNCell
_LSTMStateTuple: Any = tf1.nn.rnn_cell.LSTMStateTuple
_EPSILON = 1e-12  # That of tf.contrib.layers.layer_norm.
_PEEPHOLES = ("w_i_diag", "w_f_diag", "w_o_diag")


class _LSTMCell(_RNNCell):
    """A cell of an LSTM: its output has the size of each of the parts of its state."""

    _num_units: int

    @property
    def state_size(self) -> Any:
        """The sizes of the two parts of the state."""
        return _LSTMStateTuple(self._num_units, self._num_units)

    @property
    def output_size(self) -> int:
        """The size of the output."""
        return self._num_units


class LayerNormBasicLSTMCell(_LSTMCell):
    """An LSTM whose gates and state are normalized, with dropout of what it learns.

    Each of the four gates, and the new state, is shifted and scaled to mean 0 and
    variance 1 over the units, and then scaled and shifted by variables of its own.

    Args:
        num_units: Number of units.
        forget_bias: Added to the forget gate.
        input_size: Has no effect.
        activation: Activation of the states.
        layer_norm: Whether to normalize.
        norm_gain: Initial factor of each normalization.
        norm_shift: Initial summand of each normalization.
        dropout_keep_prob: The fraction of the candidates for the state to keep, a float
            or a tensor; 1.0 for no dropout.
        dropout_prob_seed: Seed of the dropout.
        reuse: Whether to use existing variables.
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        input_size: None = None,
        activation: Callable[[Any], Any] = tf.tanh,
        layer_norm: bool = True,
        norm_gain: float = 1.0,
        norm_shift: float = 0.0,
        dropout_keep_prob: Any = 1.0,
        dropout_prob_seed: int | None = None,
        reuse: bool | None = None,
    ) -> None:
        super().__init__(_reuse=reuse)
        self._num_units = num_units
        self._activation = activation
        self._forget_bias = forget_bias
        self._keep_prob = dropout_keep_prob
        self._seed = dropout_prob_seed
        self._layer_norm = layer_norm
        self._gain = norm_gain
        self._shift = norm_shift

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Return the output of one step, and the state after it."""
        cell, hidden = state
        joined = tf.concat([inputs, hidden], 1)
        size = tf.compat.dimension_value(joined.shape[1])
        kernel = tf1.get_variable("kernel", [size, 4 * self._num_units], joined.dtype)
        gates = joined @ kernel
        if not self._layer_norm:
            gates += tf1.get_variable(
                "bias", [4 * self._num_units], joined.dtype, tf1.zeros_initializer()
            )
        taken, candidate, forget, output = tf.split(gates, 4, 1)
        if self._layer_norm:
            taken = self._norm(taken, "input")
            candidate = self._norm(candidate, "transform")
            forget = self._norm(forget, "forget")
            output = self._norm(output, "output")
        candidate = self._activation(candidate)
        if not isinstance(self._keep_prob, float) or self._keep_prob < 1:
            candidate = tf1.nn.dropout(candidate, self._keep_prob, seed=self._seed)
        cell = cell * tf.sigmoid(forget + self._forget_bias)
        cell += tf.sigmoid(taken) * candidate
        if self._layer_norm:
            cell = self._norm(cell, "state")
        hidden = self._activation(cell) * tf.sigmoid(output)
        return hidden, _LSTMStateTuple(cell, hidden)

    def _norm(self, value: Any, name: str) -> Any:
        with tf1.variable_scope(name):
            gamma, beta = (
                tf1.get_variable(
                    each,
                    [self._num_units],
                    value.dtype,
                    tf1.constant_initializer(initial),
                )
                for each, initial in (("gamma", self._gain), ("beta", self._shift))
            )
        mean, variance = tf.nn.moments(value, [1], keepdims=True)
        return tf.nn.batch_normalization(value, mean, variance, beta, gamma, _EPSILON)


class LSTMBlockCell(_LSTMCell):
    """An LSTM with optional peepholes: values and variables of TensorFlow 1's.

    That was one op; here it is made of several.

    Args:
        num_units: Number of units.
        forget_bias: Added to the forget gate.
        cell_clip: The largest absolute value of the cell's state; None, or a negative
            number, for no limit.
        use_peephole: Whether the gates depend on the cell's state.
        dtype: Type of the variables; None for that of the input.
        reuse: Whether to use existing variables.
        name: Name of the scope of the variables.
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        cell_clip: float | None = None,
        use_peephole: bool = False,
        dtype: Any = None,
        reuse: bool | None = None,
        name: str = "lstm_cell",
    ) -> None:
        super().__init__(_reuse=reuse, dtype=dtype, name=name)
        self._num_units = num_units
        self._forget_bias = forget_bias
        self._clip = cell_clip if cell_clip is not None and cell_clip > 0 else None
        self._use_peephole = use_peephole

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Return the output of one step, and the state after it."""
        cell, hidden = state
        joined = tf.concat([inputs, hidden], 1)
        size = tf.compat.dimension_value(joined.shape[1])
        kernel, bias, peepholes = _lstm_variables(
            size, self._num_units, joined.dtype, self._use_peephole
        )
        gates = joined @ kernel + bias
        taken, candidate, forget, output = tf.split(gates, 4, 1)
        forget += self._forget_bias
        if peepholes:
            taken += cell * peepholes[0]
            forget += cell * peepholes[1]
        cell = tf.sigmoid(forget) * cell + tf.sigmoid(taken) * tf.tanh(candidate)
        if self._clip is not None:
            cell = tf.clip_by_value(cell, -self._clip, self._clip)
        if peepholes:
            output += cell * peepholes[2]
        hidden = tf.sigmoid(output) * tf.tanh(cell)
        return hidden, _LSTMStateTuple(cell, hidden)


class LSTMBlockFusedCell:
    """A whole layer of an LSTM in one op, for inputs [time, batch, features].

    Args:
        num_units: Number of units.
        forget_bias: Added to the forget gate.
        cell_clip: The largest absolute value of the cell's state; None, or a negative
            number, for no limit.
        use_peephole: Whether the gates depend on the cell's state.
        reuse: Whether to use existing variables.
        dtype: Type of the variables; None for that of the input.
        name: Name of the scope of the variables.
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        cell_clip: float | None = None,
        use_peephole: bool = False,
        reuse: bool | None = None,
        dtype: Any = None,
        name: str = "lstm_fused_cell",
    ) -> None:
        self._num_units = num_units
        self._forget_bias = forget_bias
        self._cell_clip = -1.0 if cell_clip is None else cell_clip
        self._use_peephole = use_peephole
        self._reuse = reuse
        self._dtype = dtype
        self._name = name
        self._scope: Any = None

    @property
    def num_units(self) -> int:
        """Number of units."""
        return self._num_units

    def __call__(
        self,
        inputs: Any,
        initial_state: Any = None,
        dtype: Any = None,
        sequence_length: Any = None,
        scope: Any = None,
    ) -> tuple[Any, Any]:
        """Return the outputs of all steps, and the state after the last.

        Args:
            inputs: A tensor [time, batch, features], or a list of tensors of each time.
            initial_state: A pair of the cell's state and the output before the first
                step; None for zeros.
            dtype: Type of the state; None for that of the input.
            sequence_length: Numbers of steps, [batch]; None for all. Past the end of a
                sequence, outputs are 0.
            scope: Name of the scope of the variables, in place of `name`.

        Returns:
            The outputs, [time, batch, units] or a list as `inputs` is, and an
            LSTMStateTuple of the states at the ends of the sequences.
        """
        is_list = isinstance(inputs, (list, tuple))
        x = tf.stack(inputs) if is_list else tf.convert_to_tensor(inputs, self._dtype)
        batch, size = tf.shape(x)[1], tf.compat.dimension_value(x.shape[2])
        if size is None:
            raise ConfigError(
                f"{self._name}: the number of features of the inputs {x.shape} is not "
                "known; give inputs of the shape [time, batch, features]"
            )
        if initial_state is None:
            zeros = tf.zeros([batch, self._num_units], dtype or x.dtype)
            initial_state = (zeros, zeros)
        with self._entered(scope):
            kernel, bias, peepholes = _lstm_variables(
                size + self._num_units, self._num_units, x.dtype, self._use_peephole
            )
            outputs, last = self._run(
                x, initial_state, sequence_length, kernel, bias, peepholes
            )
        return tf.unstack(outputs) if is_list else outputs, last

    @contextlib.contextmanager
    def _entered(self, scope: Any) -> Iterator[None]:
        """Enter the scope of the variables: a new one, or that of the first call."""
        if self._scope is not None:
            with tf1.variable_scope(self._scope, reuse=True):
                yield
            return
        with tf1.variable_scope(scope, self._name, reuse=self._reuse or None) as new:
            self._scope = new
            yield

    def _run(
        self, x: Any, state: Any, lengths: Any, kernel: Any, bias: Any, peepholes: Any
    ) -> tuple[Any, Any]:
        steps = tf.shape(x)[0]
        no_peepholes = (tf.zeros([self._num_units], x.dtype),) * 3
        most = steps if lengths is None else tf.reduce_max(lengths)
        _, cells, _, _, _, _, outputs = internals.block_lstm(
            seq_len_max=tf.cast(most, tf.int64),
            x=x,
            cs_prev=state[0],
            h_prev=state[1],
            w=kernel,
            wci=(peepholes or no_peepholes)[0],
            wcf=(peepholes or no_peepholes)[1],
            wco=(peepholes or no_peepholes)[2],
            b=bias,
            forget_bias=self._forget_bias,
            cell_clip=self._cell_clip,
            use_peephole=self._use_peephole,
        )
        if lengths is None:
            return outputs, _LSTMStateTuple(cells[-1], outputs[-1])
        lengths = tf.cast(lengths, tf.int32)
        inside = tf.sequence_mask(lengths, steps, dtype=x.dtype)
        outputs *= tf.transpose(inside)[:, :, tf.newaxis]
        # The state after no step is the first one.
        places = tf.stack([lengths, tf.range(tf.size(lengths))], 1)
        last = [
            tf.gather_nd(tf.concat([first[tf.newaxis], after], 0), places)
            for first, after in zip(state, (cells, outputs), strict=True)
        ]
        return outputs, _LSTMStateTuple(*last)


class FusedRNNCellAdaptor:
    """A cell of one step, called like a fused cell.

    Args:
        cell: An RNNCell.
        use_dynamic_rnn: Whether to run it in a loop, or to unroll it.
    """

    def __init__(self, cell: Any, use_dynamic_rnn: bool = False) -> None:
        self._cell = cell
        self._use_dynamic_rnn = use_dynamic_rnn

    def __call__(
        self,
        inputs: Any,
        initial_state: Any = None,
        dtype: Any = None,
        sequence_length: Any = None,
        scope: Any = None,
    ) -> tuple[Any, Any]:
        """Return the outputs of all steps, and the state after the last."""
        is_list = isinstance(inputs, (list, tuple))
        arguments: dict[str, Any] = {
            "sequence_length": sequence_length,
            "initial_state": initial_state,
            "dtype": dtype,
            "scope": scope,
        }
        if self._use_dynamic_rnn:
            stacked = tf.stack(inputs) if is_list else inputs
            outputs, state = tf1.nn.dynamic_rnn(
                self._cell, stacked, time_major=True, **arguments
            )
            return tf.unstack(outputs) if is_list else outputs, state
        steps = list(inputs) if is_list else tf.unstack(inputs)
        outputs, state = tf1.nn.static_rnn(self._cell, steps, **arguments)
        return outputs if is_list else tf.stack(outputs), state


class TimeReversedFusedRNN:
    """A fused cell that reads its inputs from the end to the start.

    Args:
        cell: A fused cell.
    """

    def __init__(self, cell: Any) -> None:
        self._cell = cell

    def __call__(
        self,
        inputs: Any,
        initial_state: Any = None,
        dtype: Any = None,
        sequence_length: Any = None,
        scope: Any = None,
    ) -> tuple[Any, Any]:
        """Return outputs in the order of the inputs, and the state after the first."""

        def reverse(values: Any) -> Any:
            is_list = isinstance(values, (list, tuple))
            stacked = tf.stack(values) if is_list else values
            if sequence_length is None:
                turned = tf.reverse(stacked, [0])
            else:
                turned = tf.reverse_sequence(
                    stacked, sequence_length, seq_axis=0, batch_axis=1
                )
            return tf.unstack(turned) if is_list else turned

        outputs, state = self._cell(
            reverse(inputs),
            initial_state=initial_state,
            dtype=dtype,
            sequence_length=sequence_length,
            scope=scope,
        )
        return reverse(outputs), state


class OutputProjectionWrapper(_RNNCell):
    """A cell whose output is multiplied by a matrix, shifted, and activated.

    Args:
        cell: An RNNCell.
        output_size: Size of the output.
        activation: Activation of the output; None for none.
        reuse: Whether to use existing variables.
    """

    def __init__(
        self,
        cell: Any,
        output_size: int,
        activation: Callable[[Any], Any] | None = None,
        reuse: bool | None = None,
    ) -> None:
        super().__init__(_reuse=reuse)
        self._cell = cell
        self._output_size = output_size
        self._activation = activation

    @property
    def state_size(self) -> Any:
        """The size of the state: that of the cell."""
        return self._cell.state_size

    @property
    def output_size(self) -> int:
        """The size of the output."""
        return self._output_size

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """Return the state before the first step: that of the cell."""
        return self._cell.zero_state(batch_size, dtype)

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Return the output of one step, and the state after it."""
        output, state = self._cell(inputs, state)
        size = tf.compat.dimension_value(output.shape[1])
        kernel = tf1.get_variable("kernel", [size, self._output_size], output.dtype)
        bias = tf1.get_variable(
            "bias", [self._output_size], output.dtype, tf1.zeros_initializer()
        )
        projected = output @ kernel + bias
        return (self._activation or tf.identity)(projected), state


def stack_bidirectional_dynamic_rnn(
    cells_fw: Sequence[Any],
    cells_bw: Sequence[Any],
    inputs: Any,
    initial_states_fw: Sequence[Any] | None = None,
    initial_states_bw: Sequence[Any] | None = None,
    dtype: Any = None,
    sequence_length: Any = None,
    parallel_iterations: int | None = None,
    time_major: bool = False,
    scope: Any = None,
    swap_memory: bool = False,
) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
    """Run several bidirectional layers, each on the outputs of the one before.

    Args:
        cells_fw: The forward cell of each layer.
        cells_bw: The backward cell of each layer.
        inputs: A tensor [batch, time, features].
        initial_states_fw: The first state of each forward cell; None for zeros.
        initial_states_bw: The first state of each backward cell; None for zeros.
        dtype: Type of the states, where none is given.
        sequence_length: Numbers of steps, [batch]; None for all.
        parallel_iterations: See `tf.nn.dynamic_rnn`.
        time_major: Whether inputs and outputs are [time, batch, features].
        scope: Name of the scope; None for "stack_bidirectional_rnn".
        swap_memory: See `tf.nn.dynamic_rnn`.

    Returns:
        The outputs of the last layer, forward and backward side by side; the states
        after the last step of each forward cell; and of each backward cell.

    Raises:
        ConfigError: (a ValueError) If there is no cell, or the numbers differ.
    """

    def layer(fw: Any, bw: Any, given: Any, first_fw: Any, first_bw: Any) -> Any:
        outputs, (state_fw, state_bw) = tf1.nn.bidirectional_dynamic_rnn(
            fw,
            bw,
            given,
            initial_state_fw=first_fw,
            initial_state_bw=first_bw,
            sequence_length=sequence_length,
            parallel_iterations=parallel_iterations,
            dtype=dtype,
            swap_memory=swap_memory,
            time_major=time_major,
        )
        return tf.concat(outputs, 2), state_fw, state_bw

    return _stacked(
        layer, cells_fw, cells_bw, inputs, initial_states_fw, initial_states_bw, scope
    )


def stack_bidirectional_rnn(
    cells_fw: Sequence[Any],
    cells_bw: Sequence[Any],
    inputs: Sequence[Any],
    initial_states_fw: Sequence[Any] | None = None,
    initial_states_bw: Sequence[Any] | None = None,
    dtype: Any = None,
    sequence_length: Any = None,
    scope: Any = None,
) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
    """Same as `stack_bidirectional_dynamic_rnn`, unrolled, for a list of inputs."""

    def layer(fw: Any, bw: Any, given: Any, first_fw: Any, first_bw: Any) -> Any:
        return tf1.nn.static_bidirectional_rnn(
            fw,
            bw,
            given,
            first_fw,
            first_bw,
            sequence_length=sequence_length,
            dtype=dtype,
        )

    return _stacked(
        layer, cells_fw, cells_bw, inputs, initial_states_fw, initial_states_bw, scope
    )


def transpose_batch_time(x: Any) -> Any:
    """Return a tensor with its first two axes exchanged; as it is if it has fewer."""
    x = tf.convert_to_tensor(x)
    rank = x.shape.rank
    if rank is None:
        axes = tf.concat([[1, 0], tf.range(2, tf.rank(x))], 0)
        return tf.transpose(x, axes)
    return x if rank < 2 else tf.transpose(x, [1, 0, *range(2, rank)])


def _stacked(
    layer: Callable[..., Any],
    cells_fw: Sequence[Any],
    cells_bw: Sequence[Any],
    inputs: Any,
    states_fw: Sequence[Any] | None,
    states_bw: Sequence[Any] | None,
    scope: Any,
) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
    count = len(cells_fw)
    firsts = [
        each if each is not None else [None] * count for each in (states_fw, states_bw)
    ]
    if not count or any(len(each) != count for each in (cells_bw, *firsts)):
        raise ConfigError(
            f"stack_bidirectional_rnn: there are {count} forward and {len(cells_bw)} "
            "backward cells; give as many of each, one or more, and as many states if "
            "any"
        )
    last_fw, last_bw = [], []
    with tf1.variable_scope(scope or "stack_bidirectional_rnn"):
        for number, arguments in enumerate(
            zip(cells_fw, cells_bw, *firsts, strict=True)
        ):
            fw, bw, first_fw, first_bw = arguments
            with tf1.variable_scope(f"cell_{number}"):
                inputs, state_fw, state_bw = layer(fw, bw, inputs, first_fw, first_bw)
            last_fw.append(state_fw)
            last_bw.append(state_bw)
    return inputs, tuple(last_fw), tuple(last_bw)


def _lstm_variables(
    size: int, units: int, dtype: Any, use_peephole: bool
) -> tuple[Any, Any, list[Any]]:
    """Return the kernel, the bias, and the peepholes, if there are any."""
    kernel = tf1.get_variable("kernel", [size, 4 * units], dtype)
    bias = tf1.get_variable("bias", [4 * units], dtype, tf1.zeros_initializer())
    names = _PEEPHOLES if use_peephole else ()
    return kernel, bias, [tf1.get_variable(each, [units], dtype) for each in names]
