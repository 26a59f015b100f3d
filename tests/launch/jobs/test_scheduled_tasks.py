"""How tasks end that a scheduler names and gives time, as pods in Kubernetes."""

import signal

import pytest
import tensorflow as tf

_LONG = ("--steps", "1000000", "--step_secs", "0.02")


def _trained(start, cluster, *arguments, grace_secs):
    environ = {"ESTIMATOR_RUNTIME_PS_GRACE_SECS": grace_secs}
    ps = start(cluster, "ps", *arguments, **environ)
    chief = start(cluster, "chief", *arguments)
    chief.wait_for_step(10)
    return ps, chief


@pytest.mark.parametrize("strategy", ["none", "ps"])
def test_a_ps_with_a_grace_stays_until_its_chief_has_saved(
    start, cluster_of, tmp_path, strategy
):
    arguments = (*_LONG, "--save_steps", "1000000", "--strategy", strategy)
    cluster = cluster_of("chief", "ps")
    ps, chief = _trained(start, cluster, *arguments, grace_secs="120")
    ps.process.send_signal(signal.SIGTERM)
    chief.wait_for_step(max(chief.steps) + 20)
    chief.process.send_signal(signal.SIGTERM)
    assert (chief.end(), ps.end()) == (143, 143), chief.text + ps.text
    reader = tf.train.load_checkpoint(str(tmp_path / "model"))
    assert reader.get_tensor("global_step") >= max(chief.steps)


@pytest.mark.parametrize(
    "grace_secs, status, line",
    [
        ("0", -signal.SIGTERM, None),
        (
            "0.5",
            143,
            "the grace period of this ps is over (ESTIMATOR_RUNTIME_PS_GRACE_SECS); it "
            "ends before the trainers",
        ),
    ],
)
def test_a_ps_does_not_stay_longer_than_its_grace(
    start, cluster_of, grace_secs, status, line
):
    ps, chief = _trained(
        start, cluster_of("chief", "ps"), *_LONG, grace_secs=grace_secs
    )
    ps.process.send_signal(signal.SIGTERM)
    assert ps.end() == status, ps.text
    assert line is None or line in ps.text
    assert chief.process.poll() is None


def test_a_ps_and_an_evaluator_that_start_after_the_end_of_their_training_end_too(
    start, cluster_of, tmp_path
):
    attempt = {"ESTIMATOR_RUNTIME_JOB": "a", "ESTIMATOR_RUNTIME_JOB_ATTEMPT": "1"}
    cluster = cluster_of("chief", "ps")
    on_time = [start(cluster, each, **attempt) for each in ("ps", "chief")]
    assert [task.end() for task in on_time] == [0, 0], [t.text for t in on_time]
    # Each was on a node that was lost, say.
    late = [start(cluster, each, **attempt) for each in ("ps", "evaluator")]
    assert [task.end() for task in late] == [0, 0], [t.text for t in late]
    assert list(tmp_path.glob("model/export/last/*/saved_model.pb"))
