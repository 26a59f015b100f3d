"""The wait of a ps, or of an evaluator, for the trainers."""

import pytest

from estimator_runtime.distributed.liveness import JobLiveness
from estimator_runtime.errors import PeerTimeoutError

_CLUSTER = {"chief": ["c:1"], "worker": ["w:1"], "ps": ["p:1"]}


class Training:
    """A presence, the addresses that listen, and the time."""

    def __init__(self, timeout_secs=60.0, cluster=_CLUSTER):
        self.now, self.there = 0.0, set()
        self.files = 0
        self.presence = JobLiveness(
            "this ps",
            cluster,
            timeout_secs,
            work=lambda: self.files,
            listening=self.there.__contains__,
            clock=lambda: self.now,
        )

    def check_until(self, now):
        while self.now < now:
            self.now += 0.5
            self.presence.check()


def test_a_wait_for_nobody_ends_and_names_those_who_did_not_come(caplog):
    training = Training()
    with pytest.raises(PeerTimeoutError) as raised:
        training.check_until(100)
    assert training.now == 60
    assert str(raised.value) == (
        "there has been no sign of chief 0, worker 0 for 60 s "
        "(session_creation_timeout_secs), and none of the training's end; this ps gives "
        "up"
    )
    assert caplog.messages == [
        f"none of chief 0, worker 0 has been there for {secs} s; this ps waits for them "
        f"and gives up in {60 - secs} s"
        for secs in (10, 20, 40)
    ]


@pytest.mark.parametrize("address", ["c:1", "w:1"])
def test_one_trainer_is_enough(address, caplog):
    training = Training()
    training.there.add(address)
    training.check_until(1000)
    assert training.presence.has_trainer()
    training.there.clear()
    assert not training.presence.has_trainer()
    with pytest.raises(PeerTimeoutError):
        training.check_until(1061)
    assert caplog.messages[0].startswith(
        "none of chief 0, worker 0 has been there for 1"
    )


def test_nobody_gives_up_without_a_look_however_short_the_wait():
    training = Training(timeout_secs=2.0)
    training.there.add("c:1")
    training.check_until(100)


def test_what_they_write_is_a_sign_of_trainers_who_cannot_be_reached():
    training = Training()
    for _ in range(20):
        training.check_until(training.now + 50)
        training.files += 1
    with pytest.raises(PeerTimeoutError):
        training.check_until(2000)
    # It is looked for when the time is over, and after the last change once more.
    assert 1000 + 60 <= training.now <= 1000 + 2 * 60


def test_a_chief_that_is_a_cluster_of_its_own_listens_to_nobody(caplog):
    training = Training(cluster={"chief": ["c:1"]})
    with pytest.raises(
        PeerTimeoutError, match="there has been no sign of chief 0 for 60"
    ):
        training.check_until(100)
    assert caplog.messages == []


def test_without_a_limit_the_wait_has_no_end():
    Training(timeout_secs=None).check_until(10_000)
