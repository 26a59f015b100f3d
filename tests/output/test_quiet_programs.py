"""Whether a program that calls `install()` itself sees the deprecation warnings."""

import pytest

_LIBRARY = """
import logging, sys, types
{before}
import estimator_runtime
estimator_runtime.install({arguments})
import tensorflow as tf
shown = []
class Kept(logging.Handler):
    def emit(self, record):
        shown.append(record.getMessage())
logging.getLogger("tensorflow").addHandler(Kept())
tf.estimator.TrainSpec(input_fn=lambda: None)
print(len(shown) > 0)
"""
_NOTEBOOK = "sys.modules['ipykernel'] = types.ModuleType('ipykernel')"


@pytest.mark.parametrize(
    "before, arguments, environ, is_shown",
    [
        ("", "", {}, True),
        ("", "quiet=True", {}, False),
        (_NOTEBOOK, "", {}, False),
        (_NOTEBOOK, "", {"ESTIMATOR_RUNTIME_VERBOSE": "1"}, True),
    ],
)
def test_a_program_that_installs_the_runtime_itself_can_have_the_filter(
    run_python, before, arguments, environ, is_shown
):
    program = _LIBRARY.format(before=before, arguments=arguments)
    done = run_python("-c", program, **environ)
    assert (done.returncode, done.stdout) == (0, f"{is_shown}\n"), done.stderr
