"""How tasks end that a scheduler names and gives time, as pods in Kubernetes."""

import signal

import pytest

_LONG = ("--steps", "1000000", "--step_secs", "0.02")


def _trained(start, cluster, *arguments, grace_secs):
    environ = {"ESTIMATOR_RUNTIME_PS_GRACE_SECS": grace_secs}
    ps = start(cluster, "ps", *arguments, **environ)
    chief = start(cluster, "chief", *arguments)
    chief.wait_for_step(10)
    return ps, chief


@pytest.mark.parametrize("strategy", ["none", "ps"])
def test_a_ps_with_a_grace_stays_until_its_chief_has_saved(
    start, cluster_of, saved_step, strategy
):
    arguments = (*_LONG, "--save_steps", "1000000", "--strategy", strategy)
    cluster = cluster_of("chief", "ps")
    ps, chief = _trained(start, cluster, *arguments, grace_secs="120")
    ps.process.send_signal(signal.SIGTERM)
    chief.wait_for_step(max(chief.steps) + 20)
    chief.process.send_signal(signal.SIGTERM)
    assert (chief.end(), ps.end()) == (143, 143), chief.text + ps.text
    assert saved_step() >= max(chief.steps)


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
