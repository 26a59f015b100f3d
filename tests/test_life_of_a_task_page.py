"""docs/life_of_a_task.md is what the supervisor does."""

import importlib.util
import pathlib

SCRIPT = pathlib.Path(__file__).parents[1] / "docs" / "life_of_a_task.py"


def test_the_page_is_what_the_supervisor_does():
    spec = importlib.util.spec_from_file_location("life_of_a_task_page", SCRIPT)
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    written = generator.PAGE.read_text()
    assert written == generator.page(), "the page is old; run: nox -s reference"
