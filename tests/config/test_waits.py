"""The waits that TensorFlow has no setting for."""

import pytest

from estimator_runtime.config import waits
from estimator_runtime.errors import ConfigError


def test_the_waits_are_tensorflows_unless_they_are_set():
    assert (waits.start_delay_secs(5, {}), waits.recovery_wait_secs({})) == (5, 30)
    assert waits.peer_timeout_secs({}) == 300.0
    assert waits.ps_grace_secs({}) == 0.0
    assert waits.stall_secs({}) == 300.0
    local = waits.LOCAL_WAITS
    assert (waits.start_delay_secs(5, local), waits.recovery_wait_secs(local)) == (
        0.0,
        0.5,
    )


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf", ""])
def test_a_wait_that_is_no_number_of_seconds_is_refused(text):
    with pytest.raises(ConfigError) as refusal:
        waits.recovery_wait_secs({"ESTIMATOR_RUNTIME_RECOVERY_WAIT_SECS": text})
    assert str(refusal.value) == (
        f"ESTIMATOR_RUNTIME_RECOVERY_WAIT_SECS is {text!r}; give a number of seconds, 0 "
        "or more"
    )


@pytest.mark.parametrize("name", waits.VARIABLES)
def test_all_waits_are_checked_together_whoever_reads_them_later(name):
    waits.check(dict.fromkeys(waits.VARIABLES, "1.5"))
    with pytest.raises(ConfigError, match=f"^{name} is 'soon'"):
        waits.check({name: "soon"})
