"""How many steps one run may have, and how long it may take."""

import logging

import pytest

from estimator_runtime.loop.run_length import RunLength


@pytest.mark.parametrize(
    ("steps_per_run", "most"),
    [(1, 1), (7, 7), (10**12, 2**31 - 1), ("auto", 2**31 - 1)],
)
def test_a_run_has_no_more_steps_than_were_asked_for_or_its_loop_can_count(
    steps_per_run, most
):
    length = RunLength(steps_per_run, 30)
    assert length.most == most
    assert (length.is_single, length.is_auto) == (most == 1, steps_per_run == "auto")


@pytest.mark.parametrize("steps_per_run", [7, "auto"])
@pytest.mark.parametrize(
    ("grace_secs", "secs"), [(1e9, 0.1), (30, 0.1), (0.7, 0.07), (0.1, 0.05), (0, 0.05)]
)
def test_runs_take_a_tenth_of_a_second_or_of_a_grace(steps_per_run, grace_secs, secs):
    assert RunLength(steps_per_run, grace_secs).secs == pytest.approx(secs)


@pytest.mark.parametrize(("steps_per_run", "lines"), [(7, 1), ("auto", 0), (1, 0)])
def test_what_rules_out_runs_is_logged_once_if_a_number_was_asked_for(
    steps_per_run, lines, caplog
):
    caplog.set_level(logging.INFO)
    length = RunLength(steps_per_run, 30)
    length.rule_out("is odd")
    length.run_singly("is even")
    assert length.is_single
    assert (
        caplog.messages
        == ["steps_per_run=7: steps are run one by one, because the step is odd"][
            :lines
        ]
    )
