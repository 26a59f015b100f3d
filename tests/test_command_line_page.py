"""docs/command_line.md is what the parser says."""

import importlib.util
import pathlib

SCRIPT = pathlib.Path(__file__).parents[1] / "docs" / "command_line.py"


def test_the_page_is_what_the_parser_says():
    spec = importlib.util.spec_from_file_location("command_line_page", SCRIPT)
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    written = generator.PAGE.read_text()
    assert written == generator.page(), "the page is old; run: nox -s reference"
