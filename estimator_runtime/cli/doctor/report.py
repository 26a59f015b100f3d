"""The report of `doctor`: all checks in their order, and the exit status."""

import argparse
import json
import os
from collections.abc import Iterator, Mapping

from estimator_runtime.cli import run_flags
from estimator_runtime.cli.doctor import folder, packages, probe, script, task
from estimator_runtime.cli.doctor.finding import (
    NOTE,
    PROBLEM,
    Finding,
    as_json,
    as_text,
)
from estimator_runtime.cli.script import check_script
from estimator_runtime.errors import ConfigError, EstimatorRuntimeError


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `doctor` to its parser."""
    parser.add_argument(
        "--model-dir",
        metavar="FOLDER",
        help="model directory to look at (default: the model_dir of TF_CONFIG)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object instead of a table"
    )
    parser.add_argument(
        "--patches",
        action="store_true",
        help="check nothing; list the differences between TensorFlows that are bridged "
        "here, for a bug report",
    )
    parser.add_argument(
        "script", metavar="SCRIPT", nargs="?", help="a script to read, but not to run"
    )


def describe(
    options: argparse.Namespace, environ: Mapping[str, str] = os.environ
) -> tuple[str, int]:
    """Run all checks, and return what they found.

    Args:
        options: The parsed options of `doctor`.
        environ: The environment.

    Returns:
        (text, exit status: 1 if there is a problem, else 0).

    Raises:
        UsageError: If the script does not exist, or is a folder or an archive.
        EstimatorRuntimeError: With `--patches`, if TensorFlow cannot be imported.
    """
    if options.patches:
        patches = probe.ask(())["patches"]
        return json.dumps(patches, indent=2) if options.json else as_list(patches), 0
    if options.script is not None:
        check_script(options.script)
    found = list(_examine(options, environ))
    text = json.dumps(as_json(found), indent=2) if options.json else as_text(found)
    return text, int(any(each.state == PROBLEM for each in found))


def as_list(patches: Mapping[str, Mapping[str, str]]) -> str:
    """Return the patches as text, grouped by their state.

    Args:
        patches: The state and the reason of each, by name.
    """
    lines = []
    for state in dict.fromkeys(each["state"] for each in patches.values()):
        lines.append(f"{state}:")
        lines += [
            f"  {name}: {each['reason']}"
            for name, each in patches.items()
            if each["state"] == state
        ]
    return "\n".join(lines)


def _examine(
    options: argparse.Namespace, environ: Mapping[str, str]
) -> Iterator[Finding]:
    installed = packages.examine()
    yield installed
    uses, unparsable = script.load(options.script)
    answer = None
    if installed.state == PROBLEM:
        text = "TensorFlow was not asked: mend the packages first"
        yield Finding(NOTE, "devices", text)
    else:
        try:
            first_path = os.path.dirname(os.path.realpath(options.script or ""))
            answer = probe.ask(
                uses.names if uses else (), first_path if options.script else None
            )
            yield probe.examine_devices(answer, environ)
        except EstimatorRuntimeError as error:
            yield Finding(PROBLEM, "TensorFlow", str(error))
    try:
        run_flags.check(environ)
    except ConfigError as error:
        yield Finding(PROBLEM, "settings", str(error))
    config, finding = task.read(environ)
    yield finding
    if config is not None and config.cluster:
        yield from task.examine_ports(config)
    yield from folder.examine(options.model_dir, config)
    yield packages.examine_ray()
    yield packages.examine_activation(environ)
    if unparsable:
        yield unparsable
    elif uses:
        yield from script.examine(options.script, uses, answer)
