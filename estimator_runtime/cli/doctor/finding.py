"""What was found: one line for each thing that was looked at."""

import dataclasses
from typing import Any

OK, NOTE, PROBLEM = "ok", "note", "problem"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        about: What it was, such as "packages".
        state: "ok"; "note", worth knowing; "problem", a training would not start or
            would not do what it should.
        text: One line; that of a problem says what would do.
        facts: The same for programs: what JSON can hold.
    """

    about: str
    state: str
    text: str
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)


def as_text(findings):
    """Write findings as a table, a line each, and a last line that sums up."""
    width = max(len(each.about) for each in findings)
    lines = [
        f"{each.state:<7}  {each.about:<{width}}  {each.text}" for each in findings
    ]
    count = sum(each.state == PROBLEM for each in findings)
    noun = "problem" if count == 1 else "problems"
    lines.append(f"{count} {noun}" if count else "no problem found")
    return "\n".join(lines)


def as_json(findings):
    """Give findings as an object that JSON can hold."""
    return {
        "problems": sum(each.state == PROBLEM for each in findings),
        "findings": [dataclasses.asdict(each) for each in findings],
    }
