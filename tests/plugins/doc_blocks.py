"""The pages of the documentation, and the blocks of code in them."""

import pathlib
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("*/README.md")])


class Block(NamedTuple):
    page: str
    line: int
    language: str
    text: str

    def __str__(self):
        return f"{self.page}:{self.line}"


def _blocks():
    for page in PAGES:
        found, start, language = [], None, ""
        for number, line in enumerate(page.read_text().splitlines(), 1):
            if not line.startswith("```"):
                found.append(line)
            elif start is None:
                found, start, language = [], number, line[3:].strip()
            else:
                name = str(page.relative_to(ROOT))
                yield Block(name, start, language, "\n".join(found) + "\n")
                start = None
        assert start is None, f"{page}: a block that starts in line {start} has no end"


BLOCKS = list(_blocks())
PYTHON = [each for each in BLOCKS if each.language == "python"]
