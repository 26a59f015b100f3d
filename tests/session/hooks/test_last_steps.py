"""The last checkpoint of a chief has the last steps of all trainers."""

import contextlib
import threading
import time

import pytest
import tensorflow as tf

import estimator_runtime as er
from estimator_runtime.distributed import peers, ps_notes
from estimator_runtime.distributed.peers import Answer
from estimator_runtime.session.hooks import last_steps
from estimator_runtime.session.hooks.last_steps import LastStepsHook

er.install()

tf1 = tf.compat.v1


@pytest.fixture
def cluster(free_addresses, request):
    """Return a cluster with the servers of a chief, a worker and a ps, or of some."""
    chief, worker, ps = free_addresses(3)
    cluster = {"chief": [chief], "worker": [worker], "ps": [ps]}
    names = getattr(request, "param", cluster)
    servers = [tf.distribute.Server(cluster, name, 0) for name in names]
    yield cluster
    del servers


@pytest.fixture
def open_session(cluster, set_tf_config, tmp_path):
    """Return a function that opens the session of a task; (session, its train op)."""

    def open_session(task_type, folder=tmp_path):
        set_tf_config({"cluster": cluster, "task": {"type": task_type, "index": 0}})
        on_ps = tf1.train.replica_device_setter(
            1, worker_device=f"/job:{task_type}/task:0"
        )
        with tf.Graph().as_default(), tf1.device(on_ps):
            add = tf1.train.create_global_step().assign_add(1).op
            session = er.MonitoredTrainingSession(
                f"grpc://{cluster[task_type][0]}",
                is_chief=task_type == "chief",
                config=tf1.ConfigProto(device_filters=["/job:ps", f"/job:{task_type}"]),
                checkpoint_dir=str(folder),
                save_checkpoint_steps=1000,
                save_summaries_steps=None,
            )
        return session, add

    return open_session


def train(session, add, steps, step_secs=0.0):
    with session.graph.as_default(), session:
        for _ in range(steps):
            time.sleep(step_secs)
            session.run(add)


def saved_step(folder):
    return int(tf.train.load_checkpoint(str(folder)).get_tensor("global_step"))


def lines(caplog):
    return [r.getMessage() for r in caplog.records if r.name == last_steps.__name__]


@pytest.mark.timeout(120)
def test_a_chief_whose_data_ends_first_saves_the_steps_of_the_others_too(
    open_session, tmp_path, caplog
):
    chief, worker = open_session("chief"), open_session("worker")
    # Slowly, so that the chief has nothing left to train meanwhile.
    thread = threading.Thread(target=train, args=(*worker, 5, 0.2))
    thread.start()
    train(*chief, 2)
    assert saved_step(tmp_path) == 7
    assert lines(caplog) == []
    thread.join()
    # The note of the last training does not count in the next one.
    chief, worker = open_session("chief"), open_session("worker")
    thread = threading.Thread(target=train, args=(*worker, 5, 0.2))
    thread.start()
    train(*chief, 2)
    assert saved_step(tmp_path) == 14
    thread.join()


@pytest.mark.timeout(120)
def test_a_chief_waits_for_the_others_for_some_time_and_says_what_is_lost(
    open_session, tmp_path, caplog, monkeypatch
):
    monkeypatch.setenv("ESTIMATOR_RUNTIME_LAST_STEPS_SECS", "0.5")
    chief, worker = open_session("chief"), open_session("worker")
    train(*chief, 2)
    assert saved_step(tmp_path) == 2
    assert lines(caplog) == [
        "still training after 0.5 s (ESTIMATOR_RUNTIME_LAST_STEPS_SECS): worker 0. The "
        "last checkpoint is saved now, and has none of the steps that follow"
    ]
    train(*worker, 1)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("cluster", [("chief", "ps")], indirect=True)
def test_a_chief_does_not_wait_for_a_worker_that_is_not_there(open_session, tmp_path):
    train(*open_session("chief"), 2)
    assert saved_step(tmp_path) == 2


class Cluster:
    """What the last-steps hooks see of a cluster: its notes, its trainers, the time."""

    def __init__(self):
        self.notes = {}
        self.failures = []  # places, among the sessions on the ps, of those that fail
        self.answers = {"worker 0": Answer.GIVEN}
        self.slept = []
        self._opened = 0

    @contextlib.contextmanager
    def at_first_ps(self, cluster, config, timeout_secs):
        self._opened += 1
        if self._opened - 1 in self.failures:
            raise tf.errors.UnavailableError(None, None, "as of a ps")
        yield self

    def read(self, *names):
        return {name: self.notes[name] for name in names if name in self.notes}

    def write(self, name, text):
        self.notes[name] = text

    def ask_all(self, names, question):
        return [self.answers[name] for name in names]

    def hook(self, own, *awaited):
        return LastStepsHook(
            own,
            "chief 0",
            {name: name for name in awaited},
            {},
            None,
            clock=lambda: sum(self.slept),
            sleep=self.slept.append,
        )


@pytest.fixture
def seen(monkeypatch):
    seen = Cluster()
    monkeypatch.setattr(ps_notes, "at_first_ps", seen.at_first_ps)
    monkeypatch.setattr(peers, "ask_all", seen.ask_all)
    monkeypatch.setattr(last_steps, "_ended", set())
    return seen


def begun(*hooks):
    for hook in hooks:
        hook.after_create_session(None, None)
    return hooks


def restarted(hook):
    """Return a hook of a task, whose process is a new one."""
    last_steps._ended.discard(hook._own)
    return hook


def test_a_worker_ends_in_order_without_the_ps_that_takes_the_notes(seen, caplog):
    seen.failures = [0, 1]
    worker = seen.hook("worker 0")
    worker.after_create_session(None, None)
    worker.end(None)
    assert lines(caplog) == [
        "the first ps has no notes: as of a ps",
        "the first ps does not say which tasks still train; the last checkpoint may not "
        "have all their steps: as of a ps",
    ]


def test_a_chief_waits_for_a_worker_that_trains_and_polls_it_seldom(seen, caplog):
    chief, _ = begun(seen.hook("chief 0", "worker 0"), seen.hook("worker 0"))
    chief.end(None)
    assert sum(seen.slept) == pytest.approx(300, abs=2)
    assert len(seen.slept) < 160
    assert lines(caplog)[-1].startswith("still training after 300 s")


def test_a_chief_does_not_wait_long_for_a_worker_whose_machine_is_gone(seen, caplog):
    seen.answers["worker 0"] = Answer.SILENT
    chief = seen.hook("chief 0", "worker 0")
    chief.after_create_session(None, None)
    chief.end(None)
    assert sum(seen.slept) == pytest.approx(15, abs=2)
    assert lines(caplog)[1:] == [
        f"no answer from worker 0 for {sum(seen.slept):.0f} s: the last checkpoint may "
        "not have all of its steps"
    ]


def test_a_chief_does_not_wait_for_a_worker_that_has_ended(seen):
    chief, worker = begun(seen.hook("chief 0", "worker 0"), seen.hook("worker 0"))
    worker.end(None)
    begun(chief)  # it has created its session again
    chief.end(None)
    assert seen.slept == []


def test_a_chief_that_is_restarted_does_not_wait_for_a_worker_that_has_ended(seen):
    _, worker = begun(seen.hook("chief 0", "worker 0"), seen.hook("worker 0"))
    worker.end(None)
    [chief] = begun(restarted(seen.hook("chief 0", "worker 0")))
    chief.end(None)
    assert seen.slept == []


def test_a_worker_that_is_restarted_after_its_end_is_waited_for_in_each_training(seen):
    chief, worker = begun(seen.hook("chief 0", "worker 0"), seen.hook("worker 0"))
    worker.end(None)
    [worker] = begun(restarted(seen.hook("worker 0")))
    worker.end(None)
    chief.end(None)
    assert seen.slept == []
    [chief] = begun(seen.hook("chief 0", "worker 0"))
    begun(seen.hook("worker 0"))
    chief.end(None)
    assert sum(seen.slept) == pytest.approx(300, abs=2)


def test_the_late_note_of_an_earlier_training_does_not_end_the_wait_of_a_later_one(
    seen,
):
    chief, worker = begun(seen.hook("chief 0", "worker 0"), seen.hook("worker 0"))
    chief.end(None)
    [chief] = begun(seen.hook("chief 0", "worker 0"))
    worker.end(None)
    waited_secs = sum(seen.slept)
    chief.end(None)
    assert sum(seen.slept) - waited_secs == pytest.approx(300, abs=2)
    # In the training after that, all are in step again.
    chief, worker = begun(seen.hook("chief 0", "worker 0"), seen.hook("worker 0"))
    worker.end(None)
    waited_secs = sum(seen.slept)
    chief.end(None)
    assert sum(seen.slept) == waited_secs


def test_a_chief_does_not_wait_for_a_worker_that_is_in_the_next_training(seen):
    chief, worker = begun(seen.hook("chief 0", "worker 0"), seen.hook("worker 0"))
    worker.end(None)
    begun(seen.hook("worker 0"))
    chief.end(None)
    assert seen.slept == []
