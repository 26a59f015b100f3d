"""Programs for TensorFlow 1: what `run --tf1` gives them, and what even that lacks."""

import importlib.util
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from estimator_runtime.cli.doctor.finding import NOTE, PROBLEM, Finding
from estimator_runtime.cli.doctor.script import Uses, shown
from estimator_runtime.tf1 import contrib_names, moved

_CONTRIB = "tensorflow.contrib"
# With fewer names than that, a program is soon changed.
_MANY = 4
_SHOWN = 3


def of_version_1(uses: Uses, answer: Mapping[str, Any]) -> list[str]:
    """Return the names in `uses` that TensorFlow 1 had, and TensorFlow 2 has not.

    Args:
        uses: What a file uses.
        answer: The answer of `probe.ask` about its names.
    """
    return [
        name
        for name in uses.names
        if name in answer["missing"]
        and (
            answer["v1"].get(name)
            or _member(name) is not None
            or name.startswith(moved.RESTORED)
        )
    ]


def is_written_for_it(names: Iterable[str]) -> bool:
    """Return whether a program was written for TensorFlow 1, by such names it uses."""
    different = set(names)
    is_contrib = any(_member(name) is not None for name in different)
    return is_contrib or len(different) >= _MANY


def examine(
    files: Sequence[tuple[str, Uses]], answer: Mapping[str, Any], is_on: bool
) -> Iterator[Finding]:
    """Check a program that was written for TensorFlow 1.

    Args:
        files: The name of each file of the program, and what it uses.
        answer: The answer of `probe.ask` about all names.
        is_on: Whether the environment turns TensorFlow 1 mode on.
    """
    found = [
        (file, line, name)
        for file, uses in files
        for name, line in uses.names.items()
        if name in of_version_1(uses, answer)
    ]
    # The import of tf.contrib.slim tells less than the use of its members.
    names = list(dict.fromkeys(shown(n) for _, _, n in found if not _is_module(n)))
    names = names or list(dict.fromkeys(shown(n) for _, _, n in found))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    file, line, _ = found[0]
    written = (
        f"{file}:{line}: written for TensorFlow 1 ({', '.join(names[:_SHOWN])}{more})"
    )
    facts = {"tensorflow_1": True}
    if is_on:
        yield Finding(NOTE, "script", f"{written}, and --tf1 is on", facts)
    else:
        yield Finding(PROBLEM, "script", f"{written}: run it with --tf1", facts)
    reported: set[str] = set()
    packages: set[str] = set()
    for file, line, name in found:
        member = _member(name)
        if member is None or _is_module(name):
            continue
        finding = _of_contrib(f"{file}:{line}", member)
        if finding.facts["name"] in reported:
            continue
        reported.add(finding.facts["name"])
        yield finding
        package = finding.facts.get("package", "tensorflow")
        if package in packages or importlib.util.find_spec(package):
            continue
        packages.add(package)
        text = (
            f"{file}:{line}: that needs {package}, which is not installed; pip install "
            f"{package.replace('_', '-')}"
        )
        yield Finding(PROBLEM, "script", text, {"package": package})


def _member(name: str) -> str | None:
    """Return a name without "tensorflow.contrib."; None if it is none of tf.contrib."""
    if name == _CONTRIB or name.startswith(f"{_CONTRIB}."):
        return name.removeprefix(_CONTRIB).removeprefix(".")
    return None


def _is_module(name: str) -> bool:
    member = _member(name)
    return member is not None and (not member or contrib_names.is_module(member))


def _of_contrib(place: str, member: str) -> Finding:
    """Return the finding about a member of `tf.contrib`.

    The end of `member` may be an attribute of what is the member: it is left out.
    """
    parts = member.split(".")
    for count in range(1, len(parts) + 1):
        name = ".".join(parts[:count])
        if contrib_names.is_module(name):
            continue
        source = contrib_names.source(name)
        whole = contrib_names.in_whole_module(name)
        facts: dict[str, Any] = {"name": f"{_CONTRIB}.{name}"}
        if source is None and whole is None:
            why = contrib_names.why_missing(name)
            text = f"{place}: --tf1 has no tf.contrib.{name}; {why}"
            return Finding(PROBLEM, "script", text, facts)
        if source is not None:
            now = source.replace(":", ".")
        elif whole is not None:
            now = ".".join([whole[0], *whole[1]])
        facts["package"] = now.partition(".")[0]
        text = f"{place}: with --tf1, tf.contrib.{name} is {shown(now)}"
        return Finding(NOTE, "script", text, facts)
    raise AssertionError(f"{member} is a module")
