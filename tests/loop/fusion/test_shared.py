"""Threads that share a session run their steps side by side, as in stock."""

import threading

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
                yield [run(), run()]
                yield [in_a_thread(run), run(), in_a_thread(run), run()]

    assert list(steps(STOCK)) == [[1, 2], [3, 4, 5, 6]]
    with options.use(options.TrainingOptions(steps_per_run=7)):
        assert list(steps(er.MonitoredTrainingSession)) == [[1, 8], [9, 10, 11, 12]]
    logger = "estimator_runtime.loop.run_length"
    assert [r.getMessage() for r in caplog.records if r.name == logger] == [
        "steps_per_run=7: steps are run one by one, because the step is run by several "
        "threads"
    ]


def test_a_run_of_steps_gets_its_data_from_another_thread():
    class Signals(train.SessionRunHook):
        """Tells when the second call, of several steps, is under way."""

        calls = 0
        is_under_way = threading.Event()

        def steps_until_due(self, global_step):
            return None

        def before_run(self, run_context):
            self.calls += 1
            if self.calls == 2:
                self.is_under_way.set()

    with tf.Graph().as_default():
        queue = tf.queue.FIFOQueue(3, [tf.float32], [[]])
        put = queue.enqueue(1.0)
        with tf.control_dependencies([queue.dequeue()]):
            step = train.get_or_create_global_step().assign_add(1)
        hooks = [Signals(), train.StopAtStepHook(last_step=9)]
        chosen = options.TrainingOptions(steps_per_run=4)
        with options.use(chosen), er.MonitoredTrainingSession(hooks=hooks) as session:
            session._tf_sess().run(put)
            seen = [session.run(step)]

            def feed():
                assert Signals.is_under_way.wait(60)
                for _ in range(8):
                    session.run(put)

            feeder = threading.Thread(target=feed)
            feeder.start()
            while not session.should_stop():
                seen.append(session.run(step))
            feeder.join()
    assert seen == [1, 5, 6, 7, 8, 9]
