"""Where the code of a file or a frame comes from."""

import logging
import sys

import pytest

import estimator_runtime
from estimator_runtime import code_origin
from estimator_runtime.code_origin import Origin

_INSTALLED = "/venv/lib/python3.11/site-packages/"


@pytest.mark.parametrize(
    "path, module, origin",
    [
        ("/home/me/train.py", "__main__", Origin.PROGRAM),
        ("/home/me/keras_utils/layers.py", "keras_utils.layers", Origin.PROGRAM),
        ("/tmp/ipykernel_71/2935.py", "__main__", Origin.PROGRAM),
        ("<ipython-input-1-5ae6>", "__main__", Origin.UNNAMED),
        ("<string>", "", Origin.UNNAMED),
        ("<frozen runpy>", "runpy", Origin.PYTHON),
        (logging.__file__, "logging", Origin.PYTHON),
        (f"{_INSTALLED}pandas/core.py", "pandas.core", Origin.INSTALLED),
        ("/usr/lib/python3/dist-packages/yaml.py", "yaml", Origin.INSTALLED),
        (f"{_INSTALLED}keras/layers.py", "keras.layers", Origin.FRAMEWORK),
        (estimator_runtime.__file__, "__main__", Origin.FRAMEWORK),
        ("/tmp/__autograph_generated_file3z.py", "model", Origin.GENERATED),
        ("/tmp/__autograph_generated_file3z.py", "keras.src", Origin.FRAMEWORK),
    ],
)
def test_the_origin_of_a_file(path, module, origin):
    assert code_origin.of_file(path, module) is origin


def test_a_frame_without_a_module_name_is_of_the_program():
    frames = []
    exec(
        compile("take(get())", "/home/me/cell", "exec"),
        {"__name__": None, "take": frames.append, "get": sys._getframe},
    )
    assert code_origin.of_frame(frames[0]) is Origin.PROGRAM
