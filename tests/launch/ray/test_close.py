"""The end of a job whose cluster does not answer."""

import threading

from estimator_runtime.errors import LaunchError
from estimator_runtime.launch import Job


class _SilentCluster:
    """A placement that answers only when the test lets it."""

    def __init__(self):
        self.is_asked, self.answers = threading.Event(), threading.Event()
        self.is_released = False

    def reserve(self, timeout_secs, is_cancelled):
        self.is_asked.set()
        self.answers.wait(60)
        raise LaunchError("too late")

    def options(self, index):
        return {}

    def release(self):
        self.is_released = True


def test_a_job_ends_though_its_cluster_never_says_where_its_tasks_are():
    from estimator_runtime.launch.ray.cluster import RayCluster, RayWaits
    from estimator_runtime.launch.ray.tasks import RayTasks

    job = Job(command=("train.py",), replicas={"chief": 1})
    cluster = _SilentCluster()
    ray = RayCluster(None, RayWaits(gone_secs=0.1))
    tasks = RayTasks(job, cluster, 1.0, None, ray)
    assert tasks.place(job.tasks) is None
    assert cluster.is_asked.wait(30)
    closing = threading.Thread(target=tasks.close, daemon=True)
    closing.start()
    closing.join(30)
    has_ended = not closing.is_alive()
    cluster.answers.set()
    closing.join(30)
    assert has_ended and cluster.is_released
