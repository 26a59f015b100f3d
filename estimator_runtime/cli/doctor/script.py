"""The script and its own modules: whether what they need is here. Nothing is run."""

import itertools
from collections.abc import Iterable, Iterator

from estimator_runtime.cli.doctor.finding import NOTE, OK, PROBLEM, Finding, Subject
from estimator_runtime.cli.doctor.probe import ProbeResult
from estimator_runtime.cli.doctor.source import Program, Source, is_package_beside
from estimator_runtime.cli.script import is_importable
from estimator_runtime.config import tf1_mode as mode
from estimator_runtime.tf1.contrib import gone, successors, wheel

# Names of modules, in any package.
_OF_ESTIMATORS = {"estimator", "learn", "tpu_estimator", "tpu_config"}
_SHOWN = 3  # names in a line
_CONTRIB = "tensorflow.contrib."


def check_script(subject: Subject) -> Iterator[Finding]:
    """Check whether the modules and the names that a program needs are here.

    Raises:
        EstimatorRuntimeError: If the script cannot be parsed.
    """
    program = subject.program
    if program is None:
        return
    yield _introduce(program)
    is_version_1 = subject.environ.get(mode.VARIABLE) == "1"
    yield from _check_modules(program, is_version_1)
    answer = subject.tensorflow
    if not isinstance(answer, ProbeResult):
        return
    for source in program.sources:
        yield from _check_version_1(source, answer, is_version_1)
        yield from _check_names(source, answer)
    yield from _check_contrib(program, answer)


def _introduce(program: Program) -> Finding:
    """Return the finding about which Estimators a program uses."""
    text = f"{program.sources[0].file} can be parsed, and"
    names = itertools.chain.from_iterable(each.names for each in program.sources)
    used = [each for each in names if _OF_ESTIMATORS.intersection(each.split("."))]
    if used:
        return Finding(OK, f"{text} uses {_listed(used)}")
    return Finding(NOTE, f"{text} names no Estimator")


def _check_modules(program: Program, is_version_1: bool) -> Iterator[Finding]:
    """Check whether the modules that a program imports at its start can be found."""
    changes_path = any(each.changes_path for each in program.sources)
    reported = set()
    for source in program.sources:
        for module, line in source.modules.items():
            package = module.partition(".")[0]
            is_known = package in reported or is_importable(module, program.folder)
            if is_known or (package == "imp" and is_version_1):
                continue
            reported.add(package)
            text = f"there is no module {module} here; install the package that has it"
            if package == "imp":  # which Python 3.12 has removed
                text = f"there is no module {module} here; run it with --tf1"
            elif is_package_beside(package, program.folder):
                text = (
                    f"module {module} is in the parent folder, where only -m and "
                    "PYTHONPATH find it"
                )
            # A program that changes sys.path may find it.
            state = NOTE if changes_path else PROBLEM
            yield Finding(state, f"{source.file}:{line}: {text}")


def _check_version_1(
    source: Source, answer: ProbeResult, is_version_1: bool
) -> Iterator[Finding]:
    """Check which names of a file only TensorFlow 1 has."""
    reasons = answer.of_version_1
    names = {
        name: line
        for name, line in source.names.items()
        # With a reason, and tf.contrib installed, it is one that there never was.
        if name in reasons and not (reasons[name] and wheel.find())
    }
    if not names:
        return
    place = f"{source.file}:{next(iter(names.values()))}"
    text = f"{place}: names of TensorFlow 1 ({_listed(names)})"
    if is_version_1:
        yield Finding(NOTE, f"{text}, and --tf1 is on")
        return
    text += ": run it with --tf1"
    if not any(name.startswith((_CONTRIB, "tensorflow.python.")) for name in names):
        text += ", or import tensorflow.compat.v1 as tf"
    yield Finding(PROBLEM, text)


def _check_names(source: Source, answer: ProbeResult) -> Iterator[Finding]:
    """Check which names of a file no TensorFlow has."""
    reported = set()
    for name, line in source.names.items():
        part = answer.missing.get(name)
        if part is None or part in reported or name in answer.of_version_1:
            continue
        reported.add(part)
        text = (
            f"{source.file}:{line}: there is no {shown(part)} in this TensorFlow; look "
            "for its new name, or take it out"
        )
        yield Finding(PROBLEM, text)


def _uses_of_contrib(program: Program, answer: ProbeResult) -> dict[str, str]:
    """Return where a program first uses each name of `tf.contrib`."""
    uses: dict[str, str] = {}
    for source in program.sources:
        for name, line in source.names.items():
            if name in answer.of_version_1 and name.startswith(_CONTRIB):
                member = name.removeprefix(_CONTRIB)
                uses.setdefault(member, f"{source.file}:{line}")
    return uses


def _check_contrib(program: Program, answer: ProbeResult) -> Iterator[Finding]:
    """Check whether the parts of `tf.contrib` that a program uses are here.

    Raises:
        EstimatorRuntimeError: If the variable for `tf.contrib` names another folder.
    """
    uses = _uses_of_contrib(program, answer)
    installed = wheel.find() if uses else None
    reported = set()
    for member, place in uses.items():
        folder = member.partition(".")[0]
        text = answer.of_version_1[f"{_CONTRIB}{member}"] if installed else ""
        if folder in gone.FOLDERS:
            text = f"tf.contrib.{folder} is gone: {gone.INSTEAD[folder]}"
        if text and text not in reported:
            reported.add(text)
            yield Finding(PROBLEM, f"{place}: {text}")
    needs = {name: at for name, at in uses.items() if not successors.has(name)}
    if not needs:
        return
    if installed is None:
        member, place = next(iter(needs.items()))
        text = (
            f"{place}: tf.contrib.{member} is of the original tf.contrib, which is not "
            f"installed; install it with: {wheel.COMMAND}"
        )
        yield Finding(PROBLEM, text)
    else:
        yield Finding(OK, f"tf.contrib is TensorFlow {wheel.VERSION}'s, in {installed}")


def _listed(names: Iterable[str]) -> str:
    unique = list(dict.fromkeys(map(shown, names)))
    more = f" and {len(unique) - _SHOWN} more" if len(unique) > _SHOWN else ""
    return f"{', '.join(unique[:_SHOWN])}{more}"


def shown(dotted: str) -> str:
    """Return a name as scripts write it, with "tf" for "tensorflow"."""
    first, dot, rest = dotted.partition(".")
    is_public = first == "tensorflow" and not f"{rest}.".startswith("python.")
    return f"tf{dot}{rest}" if is_public else dotted
