"""The lines of tests/weekly.txt are those of tests that there are."""

import weekly


def test_no_line_of_the_weekly_tests_is_there_twice():
    assert len(set(weekly.LINES)) == len(weekly.LINES)


def test_each_line_of_the_weekly_tests_matches_a_test(unused_weekly_lines):
    assert unused_weekly_lines == []
