"""What a copy of a step sends between tasks, and which steps have none."""

import numpy as np
import pytest
import tensorflow as tf

from estimator_runtime.loop.packing.step import CannotPack, NothingToPack
from estimator_runtime.loop.packing.transfers import StepTransfers

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
