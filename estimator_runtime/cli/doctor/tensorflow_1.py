"""Programs for TensorFlow 1: what `run --tf1` gives them, and what even that lacks."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from estimator_runtime.cli.doctor.finding import NOTE, PROBLEM, Finding
from estimator_runtime.cli.doctor.script import Uses, shown
from estimator_runtime.errors import EstimatorRuntimeError
from estimator_runtime.tf1 import moved
from estimator_runtime.tf1.contrib import gone, successors, wheel

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
    names = list(dict.fromkeys(shown(name) for _, _, name in found))
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
    members = [
        (f"{file}:{line}", member)
        for file, line, name in found
        if (member := _member(name))
    ]
    yield from _examine_contrib(members)


def _member(name: str) -> str | None:
    """Return a name without "tensorflow.contrib."; None if it is none of tf.contrib."""
    if name == _CONTRIB or name.startswith(f"{_CONTRIB}."):
        return name.removeprefix(_CONTRIB).removeprefix(".")
    return None


def _examine_contrib(members: Sequence[tuple[str, str]]) -> Iterator[Finding]:
    """Check members of `tf.contrib`, given as the place of their use and their name."""
    reported: set[str] = set()
    for place, member in members:
        folder = member.partition(".")[0]
        if folder in gone.FOLDERS and folder not in reported:
            reported.add(folder)
            text = f"{place}: tf.contrib.{folder} is gone: {gone.INSTEAD[folder]}"
            yield Finding(PROBLEM, "script", text, {"name": f"{_CONTRIB}.{folder}"})
    missing = [each for each in members if not successors.has(each[1])]
    if not missing:
        return
    try:
        installed = wheel.find()
    except EstimatorRuntimeError as error:
        yield Finding(PROBLEM, "tf.contrib", str(error))
        return
    if installed:
        text = f"TensorFlow {wheel.VERSION}'s, in {installed}"
        yield Finding(NOTE, "tf.contrib", text)
        return
    place, member = missing[0]
    more = f" and {len(missing) - 1} more" if missing[1:] else ""
    yield Finding(
        PROBLEM,
        "tf.contrib",
        f"{place}: tf.contrib.{member}{more} need the original tf.contrib, which is "
        f"not installed; install it with: {wheel.COMMAND}",
    )
