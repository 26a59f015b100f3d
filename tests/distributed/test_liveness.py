"""Tasks that this one needs, and that do not answer: named, then given up."""

import socket
import threading

import pytest

from estimator_runtime.distributed import peers
from estimator_runtime.distributed.liveness import (
    PeerLiveness,
    any_trainer,
    watched_peers,
)
from estimator_runtime.distributed.peers import Answer

_CLUSTER = {"chief": ["c:1"], "worker": ["w:1", "w:2"], "ps": ["p:1"]}


class Clock:
    """Goes on by a look's usual distance whenever it is read."""

    def __init__(self, step=3.0):
        self.now, self.step = 100.0, step

    def __call__(self):
        self.now += self.step
        return self.now


def _silence(found, answers, clock=None, **options):
    return PeerLiveness(
        found,
        ask=lambda a: answers.get(a, Answer.GIVEN),
        clock=clock or Clock(),
        **options,
    )


def _of(task_type, index=0, cluster=_CLUSTER, session_timeout_secs=60):
    return watched_peers(cluster, task_type, index, 20, session_timeout_secs)


@pytest.mark.parametrize(
    "task, needed",
    [
        (("chief", 0), {"ps 0 at p:1": 20, "worker 0 at w:1": None, "worker 1 at w:2": None}),
        (("worker", 1), {"ps 0 at p:1": 20, "chief 0 at c:1": 60}),
    ],
)  # fmt: skip
def test_with_a_ps_it_is_the_ps_and_the_chief_that_are_needed(task, needed):
    found = {c.name: c.timeout_secs if c.setting else None for c in _of(*task)}
    assert found == needed


def test_without_a_ps_all_trainers_need_each_other():
    cluster = {"worker": ["w:1", "w:2", "w:3"], "evaluator": ["e:1"]}
    found = {c.name: c.timeout_secs for c in _of("worker", 1, cluster)}
    assert found == {"worker 0 at w:1": 20, "worker 2 at w:3": 20}


def test_a_task_on_its_own_needs_nobody():
    assert _of("chief", cluster={"chief": ["c:1"]}) == []
    assert _of("worker", cluster={}) == []


def test_a_silent_ps_is_named_then_again_after_twice_the_time_then_given_up(caplog):
    silence = _silence(_of("chief"), {"p:1": Answer.SILENT})
    problems = [silence.check() for _ in range(7)]
    assert problems == [None] * 6 + [
        "no answer from ps 0 at p:1 for 21 s (ESTIMATOR_RUNTIME_PEER_TIMEOUT_SECS is "
        "20), and no step can end without it; giving up"
    ]
    assert caplog.messages == [
        f"no answer from ps 0 at p:1 for {secs} s (is it stopped, or cut off?); no "
        "step can end without it, and this task gives up after 20 s"
        for secs in (6, 12)
    ]


def test_one_that_answers_again_is_not_given_up(caplog):
    answers = {"p:1": Answer.SILENT}
    silence = _silence(_of("chief"), answers)
    for _ in range(6):
        assert silence.check() is None
        assert silence.missing
    answers.clear()
    assert silence.check() is None
    assert not silence.missing
    assert caplog.messages[-1] == "ps 0 at p:1 answers again"
    answers["p:1"] = Answer.SILENT
    for _ in range(6):
        assert silence.check() is None


def test_a_ps_or_a_worker_that_has_ended_is_for_tensorflow_to_notice(caplog):
    answers = dict.fromkeys(("p:1", "w:1", "w:2"), Answer.REFUSED)
    silence = _silence(_of("chief"), answers)
    assert [silence.check() for _ in range(9)] == [None] * 9
    assert caplog.messages == []


def test_a_chief_that_has_ended_is_missed_by_the_workers_and_waited_for_longer(caplog):
    silence = _silence(_of("worker"), {"c:1": Answer.REFUSED})
    problems = [silence.check() for _ in range(20)]
    assert problems == [None] * 19 + [
        "no answer from chief 0 at c:1 for 60 s (session_creation_timeout_secs is "
        "60), and nothing is saved without it; giving up"
    ]
    assert caplog.messages[0] == (
        "no answer from chief 0 at c:1 for 6 s; nothing is saved without it, and "
        "this task gives up after 60 s"
    )


def test_a_silent_worker_is_named_by_the_chief_and_never_given_up(caplog):
    silence = _silence(_of("chief"), {"w:2": Answer.SILENT})
    assert [silence.check() for _ in range(99)] == [None] * 99
    assert caplog.messages[0] == (
        "no answer from worker 1 at w:2 for 6 s (is it stopped, or cut off?); the "
        "others train on, unless they wait for its gradients"
    )


def _partners(answers, **options):
    cluster = {"chief": ["c:1"], "worker": ["w:1"]}
    return _silence(_of("chief", cluster=cluster), answers, **options)


def test_a_partner_that_has_ended_ends_the_step_that_waits_for_it():
    answers = {}
    silence = _partners(answers)
    assert silence.check(step=7) is None
    answers["w:1"] = Answer.REFUSED
    assert silence.check(step=7) is None
    # Also if one was started in its place: that knows nothing of this step.
    answers.clear()
    assert silence.check(step=7) == (
        "worker 0 at w:1 has ended, and no step can end without it; ending as well, to "
        "be started again together"
    )


def test_a_partner_that_leaves_after_the_last_step_disturbs_nobody():
    answers = {}
    silence = _partners(answers)
    assert silence.check(step=7) is None
    answers["w:1"] = Answer.REFUSED
    assert silence.check(step=8) is None
    assert [silence.check(step=None) for _ in range(9)] == [None] * 9


def test_a_partner_that_has_not_started_yet_has_not_ended():
    silence = _partners({"w:1": Answer.REFUSED})
    assert [silence.check(step=1) for _ in range(9)] == [None] * 9


def test_a_partner_that_was_there_and_is_gone_at_the_first_look_has_ended():
    silence = _partners({"w:1": Answer.REFUSED}, were_seen=True)
    assert silence.check(step=0) is None
    assert silence.check(step=0).startswith("worker 0 at w:1 has ended, and ")


def test_the_time_in_which_this_process_was_stopped_does_not_count():
    clock = Clock()
    silence = _silence(_of("chief"), {"p:1": Answer.SILENT}, clock)
    assert silence.check() is None
    clock.now += 10_000
    assert silence.check() is None


def test_a_server_that_speaks_first_has_answered_and_one_that_listens_only_has_not(
    monkeypatch,
):
    monkeypatch.setattr(peers, "ANSWER_SECS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        # As of a process that is stopped: the kernel accepts, and nobody speaks.
        assert peers.ask(address) is Answer.SILENT
        server.accept()[0].close()
        server.settimeout(5)

        def speak():
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"settings")

        thread = threading.Thread(target=speak)
        thread.start()
        assert peers.ask(address) is Answer.GIVEN
        thread.join()
    assert peers.ask(address) is Answer.REFUSED
    assert peers.ask("no.such.host.invalid:1") is Answer.UNREACHABLE


def _wait(answers, timeout_secs=60.0, cluster=_CLUSTER):
    """Return the liveness of the trainers that a ps waits for, checked every 3 s."""
    return _silence([any_trainer(cluster, timeout_secs, "this ps waits")], answers)


def _refused():
    return dict.fromkeys(("c:1", "w:1", "w:2"), Answer.REFUSED)


def test_a_wait_for_nobody_ends_and_names_those_who_did_not_come(caplog):
    wait = _wait(_refused())
    problems = [wait.check() for _ in range(20)]
    assert problems == [None] * 19 + [
        "no answer from chief 0, worker 0, worker 1 for 60 s "
        "(session_creation_timeout_secs is 60), and this ps waits; giving up"
    ]
    assert caplog.messages == [
        f"no answer from chief 0, worker 0, worker 1 for {secs} s; this ps waits, and "
        "this task gives up after 60 s"
        for secs in (6, 12, 24, 48)
    ]


@pytest.mark.parametrize("answer", [Answer.GIVEN, Answer.SILENT])
@pytest.mark.parametrize("address", ["c:1", "w:1"])
def test_one_trainer_is_enough_also_if_it_is_stopped(address, answer):
    answers = _refused() | {address: answer}
    wait = _wait(answers)
    assert [wait.check() for _ in range(99)] == [None] * 99
    assert wait.has_any()
    answers[address] = Answer.UNREACHABLE
    assert not wait.has_any()
    assert wait.check() is None


def test_without_a_limit_the_wait_for_a_trainer_has_no_end(caplog):
    wait = _wait(_refused(), timeout_secs=None)
    assert [wait.check() for _ in range(999)] == [None] * 999
    assert caplog.messages[0].endswith("for 6 s; this ps waits")
