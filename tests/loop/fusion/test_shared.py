"""Threads that share a session run their steps side by side, as in stock."""

import threading
import time

import tensorflow as tf
from tensorflow.python.training import monitored_session

import estimator_runtime as er
from estimator_runtime.config import options

tf1 = tf.compat.v1
train = tf1.train
STOCK = monitored_session.MonitoredTrainingSession


def in_a_thread(function):
    """Run a function in a thread of its own, to its end; give what it returns."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


def test_once_a_second_thread_calls_each_call_is_one_step(caplog):
    def steps(make_session):
        with tf.Graph().as_default():
            step = train.get_or_create_global_step().assign_add(1)
            with make_session(hooks=[train.StopAtStepHook(last_step=40)]) as session:
                run = lambda: session.run(step)  # noqa: E731
                yield [run(), run(), run()]
                yield [in_a_thread(run), run(), in_a_thread(run), run()]

    assert list(steps(STOCK)) == [[1, 2, 3], [4, 5, 6, 7]]
    with options.use(options.TrainingOptions(steps_per_run=7)):
        assert list(steps(er.MonitoredTrainingSession)) == [[1, 2, 9], [10, 11, 12, 13]]
    logger = "estimator_runtime.loop.run_length"
    assert [r.getMessage() for r in caplog.records if r.name == logger] == [
        "steps_per_run=7: steps are run one by one, because the step is run by several "
        "threads"
    ]


class Seen(train.SessionRunHook):
    """Records the threads whose steps it sees; may be left out of any."""

    scheduled_as = train.SessionRunHook

    def __init__(self):
        self.threads = []

    def before_run(self, run_context):
        self.threads.append(threading.current_thread().name)


def test_all_other_threads_wait_for_a_run_that_waits_for_data():
    with tf.Graph().as_default():
        queue = tf.queue.FIFOQueue(20, [tf.float32], [[]])
        put = queue.enqueue(1.0)
        with tf.control_dependencies([queue.dequeue()]):
            step = train.get_or_create_global_step().assign_add(1)
        seen, chosen = Seen(), options.TrainingOptions(steps_per_run=9)
        hooks = [seen, train.StopAtStepHook(last_step=40)]
        with options.use(chosen), er.MonitoredTrainingSession(hooks=hooks) as session:
            raw, found = session._tf_sess(), []
            for _ in range(4):
                raw.run(put)
            run = threading.Thread(
                target=lambda: found.extend(session.run(step) for _ in range(3))
            )
            run.start()
            deadline = time.monotonic() + 60
            while raw.run(train.get_global_step()) < 4:  # then it waits for data
                assert time.monotonic() < deadline
            others = [
                threading.Thread(target=session.run, args=[step]) for _ in range(2)
            ]
            for other in others:
                other.start()
            time.sleep(0.5)
            # A step that did not wait would have called the hook.
            assert len(seen.threads) == 2
            for _ in range(9):
                session.run(put)  # a call for anything else does not wait
            for thread in (run, *others):
                thread.join(60)
                assert not thread.is_alive()
            assert raw.run(train.get_global_step()) == 13
    assert found == [1, 2, 11]
