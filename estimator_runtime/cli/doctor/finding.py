"""The findings of `doctor`: one line for each check."""

import dataclasses
from collections.abc import Sequence
from typing import Any

OK, NOTE, PROBLEM = "ok", "note", "problem"


@dataclasses.dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        state: "ok"; "note" for something worth knowing; "problem" if a training would
            not start, or would not do what it should.
        about: The subject of the check, such as "packages".
        text: One line. The line of a problem includes the remedy.
        facts: The same for programs, as values that JSON can represent.
    """

    state: str
    about: str
    text: str
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)


def as_text(findings: Sequence[Finding]) -> str:
    """Return a table with one line for each finding, and a last line with the total."""
    width = max(len(each.about) for each in findings)
    lines = [
        f"{each.state:<7}  {each.about:<{width}}  {each.text}" for each in findings
    ]
    count = sum(each.state == PROBLEM for each in findings)
    noun = "problem" if count == 1 else "problems"
    lines.append(f"{count} {noun}" if count else "no problem found")
    return "\n".join(lines)


def as_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the findings as a dict that can be written as JSON."""
    return {
        "problems": sum(each.state == PROBLEM for each in findings),
        "findings": [dataclasses.asdict(each) for each in findings],
    }
