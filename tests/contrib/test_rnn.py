"""Cells of tf.contrib.rnn agree with their formulas, and keep TensorFlow 1's names."""

import numpy as np
import pytest
import tensorflow as tf

import estimator_runtime
from estimator_runtime.contrib.sequence import rnn
from estimator_runtime.errors import ConfigError

estimator_runtime.install()
tf1 = tf.compat.v1
pytestmark = pytest.mark.filterwarnings("ignore:`tf.nn.rnn_cell:UserWarning")

_UNITS, _SIZE, _BATCH, _TIME = 3, 2, 4, 5
_RANDOM = np.random.RandomState(3)
_X = _RANDOM.normal(size=(_TIME, _BATCH, _SIZE)).astype(np.float32)
_CELL = _RANDOM.normal(size=(_BATCH, _UNITS)).astype(np.float32)
_HIDDEN = _RANDOM.normal(size=(_BATCH, _UNITS)).astype(np.float32)
_LENGTHS = np.array([5, 2, 1, 4])


def _run(function):
    """Return the values of what a function builds, and of its variables by name."""
    with tf1.Graph().as_default(), tf1.Session() as session:
        fetches = function()
        random = np.random.RandomState(5)
        variables = tf1.global_variables()
        session.run(tf1.global_variables_initializer())
        for each in variables:
            each.load(random.normal(size=each.shape).astype(np.float32), session)
        values = session.run(fetches)
        return values, {each.op.name: session.run(each) for each in variables}


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _normalized(x, gamma, beta):
    deviation = x - x.mean(1, keepdims=True)
    return gamma * deviation / np.sqrt(x.var(1, keepdims=True) + 1e-12) + beta


def _lstm_step(x, state, kernel, bias, peepholes=(0.0, 0.0, 0.0), clip=np.inf):
    cell, hidden = state
    gates = np.concatenate([x, hidden], 1) @ kernel + bias
    taken, candidate, forget, output = np.split(gates, 4, 1)
    taken, forget = taken + cell * peepholes[0], forget + 1 + cell * peepholes[1]
    cell = _sigmoid(forget) * cell + _sigmoid(taken) * np.tanh(candidate)
    cell = np.clip(cell, -clip, clip)
    return cell, _sigmoid(output + cell * peepholes[2]) * np.tanh(cell)


def test_a_layer_normalized_step_is_that_of_its_formula():
    (output, (cell, hidden)), variables = _run(
        lambda: rnn.LayerNormBasicLSTMCell(_UNITS)(
            tf1.constant(_X[0]), (tf1.constant(_CELL), tf1.constant(_HIDDEN))
        )
    )
    scope = "layer_norm_basic_lstm_cell"
    names = ["input", "transform", "forget", "output", "state"]
    assert set(variables) == {
        f"{scope}/kernel",
        *(f"{scope}/{name}/{each}" for name in names for each in ("gamma", "beta")),
    }

    def norm(value, name):
        gamma, beta = (variables[f"{scope}/{name}/{x}"] for x in ("gamma", "beta"))
        return _normalized(value, gamma, beta)

    gates = np.concatenate([_X[0], _HIDDEN], 1) @ variables[f"{scope}/kernel"]
    parts = np.split(gates, 4, 1)
    taken, candidate, forget, out = map(norm, parts, names[:4])
    expected = _CELL * _sigmoid(forget + 1) + _sigmoid(taken) * np.tanh(candidate)
    expected = norm(expected, "state")
    np.testing.assert_allclose(cell, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        hidden, np.tanh(expected) * _sigmoid(out), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_array_equal(output, hidden)


def test_without_normalization_it_is_a_basic_lstm():
    def build():
        x = tf1.constant(_X)
        cell = rnn.LayerNormBasicLSTMCell(_UNITS, layer_norm=False)
        with tf1.variable_scope("a"):
            ours, _ = tf1.nn.dynamic_rnn(
                cell, x, dtype=tf1.float32, time_major=True, scope="rnn"
            )
        return ours

    outputs, variables = _run(build)
    kernel, bias = variables.values()
    state = (np.zeros([_BATCH, _UNITS]),) * 2
    for x, output in zip(_X, outputs, strict=True):
        state = _lstm_step(x, state, kernel, bias)
        np.testing.assert_allclose(output, state[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("keep", "kept"), [(0.5, 0.5), (1.0, 1.0)])
def test_dropout_drops_candidates(keep, kept):
    units = 2000

    def build():
        cell = rnn.LayerNormBasicLSTMCell(
            units, layer_norm=False, dropout_keep_prob=keep, dropout_prob_seed=1
        )
        zeros = tf1.zeros([1, units])
        _, (state, _) = cell(tf1.ones([1, 1]), (zeros, zeros))
        return state

    state, _ = _run(build)
    assert np.mean(state != 0) == pytest.approx(kept, abs=0.05)


@pytest.mark.parametrize("use_peephole", [False, True])
@pytest.mark.parametrize("clip", [None, 0.25])
def test_a_block_cell_is_that_of_its_formula(use_peephole, clip):
    (_, (cell, hidden)), variables = _run(
        lambda: rnn.LSTMBlockCell(_UNITS, cell_clip=clip, use_peephole=use_peephole)(
            tf1.constant(_X[0]), (tf1.constant(_CELL), tf1.constant(_HIDDEN))
        )
    )
    peepholes = ["w_i_diag", "w_f_diag", "w_o_diag"] if use_peephole else []
    names = [f"lstm_cell/{each}" for each in ("kernel", "bias", *peepholes)]
    assert list(variables) == names
    kernel, bias, *diagonals = variables.values()
    expected = _lstm_step(
        _X[0], (_CELL, _HIDDEN), kernel, bias, diagonals or (0, 0, 0), clip or np.inf
    )
    np.testing.assert_allclose(cell, expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(hidden, expected[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("use_peephole", [False, True])
@pytest.mark.parametrize("lengths", [None, _LENGTHS])
def test_a_fused_cell_is_a_loop_over_its_formula(use_peephole, lengths):
    (outputs, last), variables = _run(
        lambda: rnn.LSTMBlockFusedCell(_UNITS, use_peephole=use_peephole)(
            tf1.constant(_X), (_CELL, _HIDDEN), sequence_length=lengths
        )
    )
    kernel, bias, *diagonals = variables.values()
    states = [(_CELL, _HIDDEN)]
    for x in _X:
        states.append(_lstm_step(x, states[-1], kernel, bias, diagonals or (0, 0, 0)))
    ends = [_TIME] * _BATCH if lengths is None else lengths
    for example, end in enumerate(ends):
        for part in (0, 1):
            expected = states[end][part][example]
            np.testing.assert_allclose(last[part][example], expected, atol=1e-5)
        for time in range(_TIME):
            expected = states[time + 1][1][example] * (time < end)
            np.testing.assert_allclose(outputs[time, example], expected, atol=1e-5)


def test_a_fused_cell_has_the_gradient_of_a_loop():
    def build():
        x = tf1.constant(_X)
        fused, _ = rnn.LSTMBlockFusedCell(_UNITS)(x, dtype=tf1.float32)
        fused_kernel, fused_bias = tf1.trainable_variables()
        cell = rnn.LSTMBlockCell(_UNITS)
        looped, _ = tf1.nn.dynamic_rnn(cell, x, dtype=tf1.float32, time_major=True)
        variables = tf1.trainable_variables()[2:]
        with tf1.control_dependencies(
            [
                tf1.assign(ours, theirs)
                for ours, theirs in zip(
                    variables, (fused_kernel, fused_bias), strict=True
                )
            ]
        ):
            copied = tf1.no_op()
        return copied, (
            tf1.gradients(tf1.reduce_sum(fused**2), [fused_kernel, fused_bias]),
            tf1.gradients(tf1.reduce_sum(looped**2), variables),
        )

    with tf1.Graph().as_default(), tf1.Session() as session:
        copied, gradients = build()
        session.run(tf1.global_variables_initializer())
        session.run(copied)
        fused, looped = session.run(gradients)
    for ours, theirs in zip(fused, looped, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)


def test_a_fused_cell_uses_its_variables_again():
    def build():
        cell = rnn.LSTMBlockFusedCell(_UNITS)
        x = tf1.constant(_X)
        return [cell(x, dtype=tf1.float32)[0] for _ in range(2)]

    (first, second), variables = _run(build)
    assert list(variables) == ["lstm_fused_cell/kernel", "lstm_fused_cell/bias"]
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("use_dynamic_rnn", [False, True])
def test_a_reversed_cell_reads_each_sequence_backward(use_dynamic_rnn):
    def build():
        cell = tf1.nn.rnn_cell.BasicRNNCell(_UNITS)
        fused = rnn.FusedRNNCellAdaptor(cell, use_dynamic_rnn)
        return rnn.TimeReversedFusedRNN(fused)(
            tf1.constant(_X), dtype=tf1.float32, sequence_length=_LENGTHS
        )

    (outputs, last), variables = _run(build)
    kernel, bias = variables.values()
    for example, end in enumerate(_LENGTHS):
        state = np.zeros(_UNITS)
        for time in reversed(range(end)):
            x = np.concatenate([_X[time, example], state])
            state = np.tanh(x @ kernel + bias)
            np.testing.assert_allclose(outputs[time, example], state, atol=1e-5)
        np.testing.assert_allclose(last[example], state, atol=1e-5)
        assert not outputs[end:, example].any()


def test_bidirectional_layers_are_stacked():
    def build():
        def cells():
            return [tf1.nn.rnn_cell.BasicRNNCell(_UNITS) for _ in range(2)]

        x = tf1.constant(_X.transpose(1, 0, 2))
        return rnn.stack_bidirectional_dynamic_rnn(
            cells(), cells(), x, dtype=tf1.float32, sequence_length=_LENGTHS
        )

    (outputs, fw, bw), variables = _run(build)
    names = [
        f"stack_bidirectional_rnn/cell_{layer}/bidirectional_rnn/{way}/basic_rnn_cell/"
        for layer in range(2)
        for way in ("fw", "bw")
    ]
    assert list(variables) == [f"{x}{y}" for x in names for y in ("kernel", "bias")]
    for example, end in enumerate(_LENGTHS):
        given = _X[:end, example]
        for layer in range(2):
            sides = []
            for way, states in ((0, fw), (1, bw)):
                name = names[2 * layer + way]
                state, seen = np.zeros(_UNITS), []
                for x in given[:: -1 if way else 1]:
                    gates = np.concatenate([x, state]) @ variables[f"{name}kernel"]
                    state = np.tanh(gates + variables[f"{name}bias"])
                    seen.append(state)
                np.testing.assert_allclose(states[layer][example], state, atol=1e-5)
                sides.append(seen[:: -1 if way else 1])
            given = np.concatenate(sides, 1)
        np.testing.assert_allclose(outputs[example, :end], given, atol=1e-5)


def test_stacked_layers_of_unequal_number_are_refused():
    with pytest.raises(ConfigError, match="1 forward and 0 backward"):
        rnn.stack_bidirectional_dynamic_rnn([None], [], None)


def test_a_projection_multiplies_the_output():
    def build():
        cell = tf1.nn.rnn_cell.BasicRNNCell(_UNITS)
        wrapped = rnn.OutputProjectionWrapper(cell, 2, tf1.sigmoid)
        output, state = wrapped(tf1.constant(_X[0]), tf1.constant(_HIDDEN))
        return output, state

    (output, state), variables = _run(build)
    kernel = variables["output_projection_wrapper/kernel"]
    bias = variables["output_projection_wrapper/bias"]
    np.testing.assert_allclose(output, _sigmoid(state @ kernel + bias), rtol=1e-4)


def test_batch_and_time_are_exchanged():
    turned, _ = _run(lambda: rnn.transpose_batch_time(_X))
    np.testing.assert_array_equal(turned, _X.transpose(1, 0, 2))
