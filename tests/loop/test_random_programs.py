"""Random programs that run several steps in one call leave what they leave in stock.

ESTIMATOR_RUNTIME_PROGRAMS="FIRST:END" chooses the programs. A program that stock itself
trains in different ways proves nothing, and is skipped.
"""

import importlib.util
import os
import pathlib

import pytest

from estimator_runtime.loop.fusion import idle_runs

_spec = importlib.util.spec_from_file_location(
    "random_programs", pathlib.Path(__file__).with_name("random_programs.py")
)
random_programs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(random_programs)

FIRST, END = map(int, os.environ.get("ESTIMATOR_RUNTIME_PROGRAMS", "0:8").split(":"))


@pytest.mark.parametrize("steps_per_run", ["auto", 7])
@pytest.mark.parametrize("number", range(FIRST, END))
def test_a_random_program_is_trained_as_in_stock(
    number, steps_per_run, outcome_of_program, monkeypatch, caplog
):
    monkeypatch.setattr(idle_runs, "FEWEST_STEPS", 50)
    monkeypatch.setattr(idle_runs, "STEPS_PER_OP", 0)
    program = random_programs.Program(number=number, steps_per_run=steps_per_run)
    with caplog.at_level("INFO"):
        ours = outcome_of_program(program)
    told = [r.getMessage() for r in caplog.records if "steps_per_run" in r.getMessage()]
    print(number, ours.error, told)  # shown with -s
    stock = outcome_of_program(program, is_stock=True)
    if ours != stock:
        others = [outcome_of_program(program, is_stock=True) for _ in range(5)]
        if any(other != stock for other in others):
            pytest.skip("stock differs from itself")
    assert ours == stock
    assert ours.variables
