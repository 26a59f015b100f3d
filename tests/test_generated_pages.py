"""Pages of docs/ that are generated: what docstrings, flags and policies say."""

import importlib.util
import inspect
import pathlib

import pytest

import estimator_runtime as er
from estimator_runtime.config.options import OPTIONS
from estimator_runtime.contrib import learn

er.install()

DOCS = pathlib.Path(__file__).parents[1] / "docs"


def generator_of(page):
    spec = importlib.util.spec_from_file_location(f"{page}_page", DOCS / f"{page}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["run_config", "command_line", "life_of_a_task"])
def test_a_page_is_what_the_code_says(page):
    generator = generator_of(page)
    written = generator.PAGE.read_text()
    assert written == generator.page(), "the page is old; run: nox -s reference"


@pytest.mark.parametrize("cls", [er.RunConfig, learn.RunConfig])
def test_each_argument_is_described_in_its_order_and_has_a_type(cls):
    parameters = inspect.signature(cls.__init__).parameters.values()
    _, *names = [parameter.name for parameter in parameters]
    assert list(generator_of("run_config")._entries(cls, "Args")) == names
    _, *kinds = [parameter.annotation for parameter in parameters]
    assert inspect.Parameter.empty not in kinds


def test_each_property_is_an_argument_or_described():
    properties = {
        name
        for name, member in inspect.getmembers(er.RunConfig)
        if isinstance(member, property) and not name.startswith("_")
    }
    arguments = set(inspect.signature(er.RunConfig).parameters)
    described = set(generator_of("run_config")._entries(er.RunConfig, "Attributes"))
    assert described == properties - arguments - {"training_options"}
    assert set(OPTIONS) <= arguments
