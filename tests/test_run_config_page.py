"""docs/run_config.md is what the docstrings, signatures and flags say."""

import importlib.util
import inspect
import pathlib

import pytest

import estimator_runtime as er
from estimator_runtime.config.options import OPTIONS
from estimator_runtime.contrib import learn

er.install()

SCRIPT = pathlib.Path(__file__).parents[1] / "docs" / "run_config.py"


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location("run_config_page", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_docstrings_say(generator):
    written = generator.PAGE.read_text()
    assert written == generator.page(), (
        "docs/run_config.md is old; run: nox -s reference"
    )


@pytest.mark.parametrize("cls", [er.RunConfig, learn.RunConfig])
def test_each_argument_is_described_in_its_order_and_has_a_type(generator, cls):
    parameters = inspect.signature(cls.__init__).parameters.values()
    _, *names = [parameter.name for parameter in parameters]
    assert list(generator._entries(cls, "Args")) == names
    _, *kinds = [parameter.annotation for parameter in parameters]
    assert inspect.Parameter.empty not in kinds


def test_each_property_is_an_argument_or_described(generator):
    properties = {
        name
        for name, member in inspect.getmembers(er.RunConfig)
        if isinstance(member, property) and not name.startswith("_")
    }
    arguments = set(inspect.signature(er.RunConfig).parameters)
    described = set(generator._entries(er.RunConfig, "Attributes"))
    assert described == properties - arguments - {"training_options"}
    assert set(OPTIONS) <= arguments
