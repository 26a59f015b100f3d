"""What a copy of a step sends between tasks, and which steps have none."""

import numpy as np
import pytest
import tensorflow as tf

from estimator_runtime.loop.packing.step import CannotPack, NothingToPack
from estimator_runtime.loop.packing.transfers import MAX_BYTES, StepTransfers

tf1 = tf.compat.v1


def variable(name, shape, **kwargs):
    return tf1.get_variable(name, shape, use_resource=True, **kwargs)


def network(layers=5, width=8):
    """Return the loss of a network of dense layers."""
    net = tf.ones([4, width])
    for index in range(layers):
        kernel = variable(f"kernel_{index}", [width, width])
        bias = variable(f"bias_{index}", [width])
        net = tf.nn.relu(tf.matmul(net, kernel) + bias)
    return tf.reduce_mean(net)


def trained(loss):
    return tf1.train.GradientDescentOptimizer(0.1).minimize(loss)


def packed_names(step, task_of):
    return [
        [t.name for t in pack.tensors] for pack in StepTransfers(step, task_of).packs
    ]


def test_the_weights_cross_as_one_tensor_and_the_gradients_as_another(cluster):
    with cluster.devices():
        train_op = trained(network(layers=5))
    step = cluster.pack(train_op)
    # 10 weights, 10 gradients, and the learning rate.
    assert (step.count, step.packed_count) == (21, 2)
    _, (copy,) = step.substitutes([], [train_op])
    assert (cluster.crossing(train_op), cluster.crossing(copy)) == (21, 2)


def test_each_parameter_server_has_packs_of_its_own(cluster):
    with cluster.devices(ps_tasks=2):
        train_op = trained(network(layers=5))
    step = cluster.pack(train_op)
    _, (copy,) = step.substitutes([], [train_op])
    # The learning rate crosses to both.
    assert (cluster.crossing(train_op), cluster.crossing(copy)) == (22, 4)


def test_a_large_tensor_crosses_alone(cluster):
    with cluster.devices():
        small = [variable(f"small_{i}", [8]) for i in range(3)]
        large = variable("large", [257, 256])
        loss = tf.add_n([tf.reduce_sum(each) for each in (*small, large)])
    transfers = StepTransfers(cluster.step(loss.op), cluster.task_of())
    (pack,) = transfers.packs
    assert [tensor.shape.as_list() for tensor in pack.tensors] == [[8]] * 3
    assert (transfers.count, transfers.packed_count) == (4, 2)


def test_a_pack_gets_no_further_tensors_when_it_is_large(cluster):
    each_bytes = 4 * 256 * 256
    with cluster.devices():
        parts = [variable(f"v{i}", [256, 256]) for i in range(6)]
        loss = tf.add_n([tf.reduce_sum(each) for each in parts])
    transfers = StepTransfers(cluster.step(loss.op), cluster.task_of())
    assert [len(pack.tensors) for pack in transfers.packs] == [
        MAX_BYTES // each_bytes,
        2,
    ]


def test_tensors_of_unknown_size_are_packed_among_themselves_with_their_shapes(cluster):
    with tf1.device(cluster.ps):
        known = [tf.random.normal([8], seed=i) for i in range(2)]
        unknown = [tf1.placeholder(tf.float32, [None, None, 4]) for _ in range(4)]
        unknown = [tf.identity(each) for each in unknown]
    with tf1.device(cluster.worker):
        used = [tf.identity(each) for each in (*known, *unknown)]
    transfers = StepTransfers(
        cluster.step(*(each.op for each in used)), cluster.task_of()
    )
    assert sorted(pack.shapes for pack in transfers.packs if pack.is_known) == [
        ((8,), (8,))
    ]
    assert [p.shapes for p in transfers.packs if not p.is_known] == [
        ((None, None, 4),) * 4
    ]
    assert (transfers.count, transfers.packed_count) == (6, 1 + 2)


@pytest.mark.parametrize(
    "add, is_packed",
    [
        (lambda a, b, c: tf.add_n([a, b, c]), False),
        (lambda a, b, c: a + tf.identity(tf.reshape(b, [8]) + c), False),
        (lambda a, b, c: (a * 1 + b) * c, True),
    ],
    ids=["sum of three", "two sums that are joined", "sum of two"],
)
def test_the_terms_of_a_sum_of_three_cross_alone(cluster, add, is_packed):
    """TensorFlow may overwrite any one of them, and starts with that one."""
    with cluster.devices():
        total = add(*(variable(f"v{i}", [8]) for i in "abc"))
    transfers = StepTransfers(cluster.step(total.op), cluster.task_of())
    assert [len(pack.tensors) for pack in transfers.packs] == [3] * is_packed


def test_tensors_of_different_levels_are_not_packed_together(cluster):
    with cluster.devices():
        first, second = variable("first", [8]), variable("second", [8])
        table = variable("table", [8, 2])
        ids = tf.cast(first + second, tf.int32)
        rows = [tf.gather(table, ids), tf.gather(table, ids + 1)]
        loss = tf.reduce_sum(tf.concat(rows, 0))
    transfers = StepTransfers(cluster.step(loss.op), cluster.task_of())
    ways = [(p.source[5:7], len(p.tensors), p.shapes[0]) for p in transfers.packs]
    assert ways == [("ps", 2, (8,)), ("wo", 2, (8,)), ("ps", 2, (8, 2))]


def test_a_tensor_that_waits_for_a_queue_is_packed_with_none_that_does_not(cluster):
    """The weights would wait for an element that is computed from them."""
    with cluster.devices():
        weights = [
            variable(f"v{i}", [2], initializer=tf1.ones_initializer) for i in "ab"
        ]
        total = tf.add_n([tf.identity(each) for each in weights])
        with tf1.device(cluster.ps):
            queue = tf1.FIFOQueue(10, [tf.float32, tf.float32], [[2], [2]])
            put = queue.enqueue([total, 2 * total])
            got = queue.dequeue()
        with tf1.device(cluster.worker):
            loss = got[0] * got[1] * total
        init = tf1.global_variables_initializer()
    step = cluster.pack(loss.op, put)
    (packed,), (copy,) = step.substitutes([loss], [put])
    with tf1.Session(cluster.master) as session:
        session.run(init)
        limit = tf1.RunOptions(timeout_in_ms=30_000)
        values, _ = session.run([packed, copy], options=limit)
    assert step.packed_count < step.count
    np.testing.assert_array_equal(values, [16, 16])


@pytest.mark.parametrize("seed, is_copied", [(None, True), (7, False)])
def test_a_random_op_is_copied_only_if_it_has_no_seed(cluster, seed, is_copied):
    with cluster.devices():
        weights = [
            variable(f"v{i}", [3], initializer=tf1.ones_initializer) for i in "ab"
        ]
        more = [variable(f"v{i}", [3], initializer=tf1.ones_initializer) for i in "cd"]
        size = tf.cast(
            tf.reduce_sum(tf.add_n(list(map(tf.identity, weights)))), tf.int32
        )
        noise = tf.random.normal(tf.reshape(size, [1]), seed=seed)
        loss = tf.reduce_sum(noise) + tf.reduce_sum(more[0]) + tf.reduce_sum(more[1])
    step = cluster.pack(loss.op)
    (_, drawn), _ = step.substitutes([loss, noise], [])
    # With a seed, what the size of the noise depends on is not packed.
    assert (drawn is not noise) is is_copied
    assert step.packed_count == (1 if is_copied else 3)


def test_copies_stay_on_the_device_that_the_program_names(cluster):
    with cluster.devices():
        weights = [variable(f"v{i}", [3]) for i in "ab"]
        total = tf.add_n([tf.identity(each) for each in weights])
        with tf1.device("/device:CPU:1"):
            loss = 2 * total
    with tf1.device("/device:CPU:1"):
        update = tf.raw_ops.AssignAddVariableOp(resource=weights[0].handle, value=loss)
    (copy,), (target,) = cluster.pack(update).substitutes([loss], [update])
    assert copy.device == "/job:worker/task:0/device:CPU:1"
    assert target.device == "/job:ps/replica:0/task:0/device:CPU:1"


def lookup_in_a_branch(weights):
    return tf.cond(weights[0][0] > 0, lambda: weights[0] + 1, lambda: weights[1] + 2)


def test_a_branch_runs_as_a_whole_and_its_results_are_the_same(cluster):
    with cluster.devices():
        weights = [
            variable(f"v{i}", [3], initializer=tf1.ones_initializer) for i in "ab"
        ]
        values = [tf.identity(each) for each in weights]
        loss = lookup_in_a_branch(values) + values[0]
        init = tf1.global_variables_initializer()
    step = cluster.pack(loss.op)
    (copy,), _ = step.substitutes([loss], [])
    with tf1.Session(cluster.master) as session:
        session.run(init)
        np.testing.assert_array_equal(*session.run([loss, copy]))


def reference_variable():
    a = tf1.Variable(tf.ones([2]), use_resource=False)
    b = tf1.Variable(tf.ones([2]), use_resource=False)
    return a + b


def old_control_flow():
    switch = tf.raw_ops.Switch(data=variable("v", [2]) + 1, pred=tf.constant(True))
    return tf.raw_ops.Merge(inputs=[switch[0], switch[1]])[0]


def one_transfer():
    return variable("v", [2]) + 1


def table_that_waits():
    """Return a lookup in a table that waits for an update of the step."""
    total = tf.reduce_sum(variable("v", [2]) + variable("w", [2]))
    update = variable("counter", []).assign_add(total)
    with tf.control_dependencies([update]):
        table = tf.raw_ops.MutableHashTableV2(
            key_dtype=tf.int64, value_dtype=tf.float32, name="table"
        )
    found = tf.raw_ops.LookupTableFindV2(
        table_handle=table, keys=tf.constant(1, tf.int64), default_value=0.0
    )
    return found + update


@pytest.mark.parametrize(
    "make, reason",
    [
        (table_that_waits, "has a resource that waits for other ops, 'table'"),
        (reference_variable, r"has a reference variable, 'Variable(_1)?(/read)?'"),
        (old_control_flow, "has control flow of TensorFlow 1, 'Merge'"),
        (one_transfer, "has no tensors that could cross between tasks as one"),
    ],
)
def test_a_step_that_cannot_be_packed_says_why(cluster, make, reason):
    with cluster.devices():
        result = make()
    before = len(tf1.get_default_graph().get_operations())
    with pytest.raises(CannotPack, match=f"^{reason}$"):
        cluster.pack(result.op)
    assert len(tf1.get_default_graph().get_operations()) == before


def test_a_loop_of_tensorflow_1_that_a_hook_fetches_is_not_packed(cluster):
    with cluster.devices():
        loss = network()
        train_op = trained(loss)
        frame = {"frame_name": "loop", "is_constant": False, "parallel_iterations": 1}
        entered = tf.raw_ops.Enter(data=loss, **frame)
        merged = tf.raw_ops.Merge(inputs=[entered, entered])[0]
        again = tf.raw_ops.NextIteration(data=merged + 1)
        merged.op._update_input(1, again)
        out = tf.raw_ops.Exit(data=merged)
    step = cluster.pack(train_op)
    with pytest.raises(CannotPack, match=r"^has control flow of TensorFlow 1, "):
        step.substitutes([out], [train_op])


def test_an_op_without_a_task_of_its_own_is_not_packed(cluster):
    with tf1.device(cluster.ps):
        weights = [variable(f"v{i}", [3]) for i in "ab"]
    with tf1.device("/job:ps"):  # any of two
        loss = tf.add_n([tf.identity(each) for each in weights])
    with pytest.raises(NothingToPack, match="has no tensor that is known"):
        cluster.pack(loss.op)


TYPES = [
    np.float16,
    np.float32,
    np.float64,
    np.int8,
    np.int16,
    np.int32,
    np.int64,
    np.uint8,
    np.uint16,
    np.uint32,
    np.uint64,
    tf.bfloat16.as_numpy_dtype,
]


@pytest.mark.parametrize("rows", [0, 1, 5])
@pytest.mark.parametrize(
    "shapes",
    [
        pytest.param([[2, 3], [], [4]], id="known shapes"),
        pytest.param([[2, 3], [None, 4], []], id="one unknown dimension"),
        pytest.param([[None], [2, None], [None, 3]], id="several unknown dimensions"),
        pytest.param([[3], [None, None], [2]], id="two in one tensor"),
    ],
)
@pytest.mark.parametrize("types", [TYPES, TYPES[1:2]], ids=["all types", "one type"])
def test_values_of_every_type_and_shape_arrive_to_the_bit(cluster, types, shapes, rows):
    draw = np.random.RandomState(rows)
    feeds, sent = {}, []
    with tf1.device(cluster.ps):
        for dtype in types:
            for shape in shapes:
                fed = tf1.placeholder(dtype, shape)
                dims = [rows if n is None else n for n in shape]
                # Any bits: NaN with a payload and denormals too.
                count = int(np.prod(dims)) * np.dtype(dtype).itemsize
                bits = draw.bytes(count)
                feeds[fed] = np.frombuffer(bits, dtype).reshape(dims)
                sent.append(tf.identity(fed))
    with tf1.device(cluster.worker):
        received = [tf.identity(each) for each in sent]
    step = cluster.pack(*(each.op for each in received))
    assert step.packed_count < step.count
    copies, _ = step.substitutes(received, [])
    with tf1.Session(cluster.master) as session:
        values = session.run(copies, feeds)
    for value, fed in zip(values, feeds.values(), strict=True):
        assert (value.dtype, value.shape) == (fed.dtype, fed.shape)
        assert value.tobytes() == fed.tobytes()


def test_a_shape_that_the_program_claims_is_not_relied_on(cluster):
    with tf1.device(cluster.ps):
        fed = tf1.placeholder(tf.float32, [None, 2])
        claimed = [tf.identity(fed) for _ in range(3)]
        for each in claimed:
            each.set_shape([4, 2])
    with tf1.device(cluster.worker):
        received = [tf.identity(each) for each in claimed]
    copies, _ = cluster.pack(*(r.op for r in received)).substitutes(received, [])
    with tf1.Session(cluster.master) as session:
        values = session.run(copies, {fed: np.ones([3, 2])})
    assert [value.shape for value in values] == [(3, 2)] * 3


def test_control_dependencies_are_kept(cluster):
    with cluster.devices():
        weights = [
            variable(f"v{i}", [2], initializer=tf1.ones_initializer) for i in "ab"
        ]
        total = tf.add_n([tf.identity(each) for each in weights])
        with tf.control_dependencies(
            [tf.print("before", output_stream="file:///dev/null")]
        ):
            change = weights[0].assign_add(total)
        with tf.control_dependencies([change]):
            after = weights[0].read_value()
        init = tf1.global_variables_initializer()
    step = cluster.pack(after.op)
    (copy,), _ = step.substitutes([after], [])
    with tf1.Session(cluster.master) as session:
        session.run(init)
        for expected in (3, 7, 15):
            np.testing.assert_array_equal(session.run(copy), [expected] * 2)


def test_what_hooks_fetch_is_computed_from_the_packed_step(cluster):
    with cluster.devices():
        loss = network(layers=2)
        train_op = trained(loss)
        doubled = 2 * loss
        weight = tf1.trainable_variables()[0].read_value()
    step = cluster.pack(train_op, loss.op)
    (copy, twice, read), (target,) = step.substitutes(
        [loss, doubled, weight], [train_op]
    )
    assert loss.op.name not in cluster.step(twice.op, target).ops
    assert copy.op.name in cluster.step(twice.op).ops
    assert read is weight  # it does not depend on the step
    # The same again adds nothing.
    before = len(tf1.get_default_graph().get_operations())
    assert step.substitutes([doubled], []) == ([twice], [])
    assert len(tf1.get_default_graph().get_operations()) == before
