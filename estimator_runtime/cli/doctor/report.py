"""The report of `doctor`: all checks in their order, and the exit status."""

import argparse
import json
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from estimator_runtime.cli import run_flags, script
from estimator_runtime.cli.doctor import devices, folder, packages, probe, task
from estimator_runtime.cli.doctor import script as doctor_script
from estimator_runtime.cli.doctor.finding import (
    NOTE,
    OK,
    PROBLEM,
    Finding,
    as_json,
    as_text,
)
from estimator_runtime.compat import versions
from estimator_runtime.errors import ConfigError, EstimatorRuntimeError

_SHOWN = 5
# The parts of Keras that models consist of. Others, such as keras.utils, do no harm.
_MODELS_OF_KERAS = (
    *("keras.Input", "keras.Model", "keras.Sequential", "keras.Variable"),
    *("keras.applications", "keras.layers", "keras.metrics", "keras.models"),
    "keras.optimizers",
)


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
    """
    if options.script is not None:
        script.check_script(options.script)
    found = list(_examine(options, environ))
    text = json.dumps(as_json(found), indent=2) if options.json else as_text(found)
    return text, int(any(each.state == PROBLEM for each in found))


def _examine(
    options: argparse.Namespace, environ: Mapping[str, str]
) -> Iterator[Finding]:
    installed = packages.examine()
    yield installed
    uses, unparsable = _read(options.script)
    answer = None
    if installed.state == PROBLEM:
        text = "TensorFlow was not asked: mend the packages first"
        yield Finding(about="devices", state=NOTE, text=text)
    else:
        try:
            first_path = os.path.dirname(os.path.realpath(options.script or ""))
            answer = probe.ask(
                uses.names if uses else (), first_path if options.script else None
            )
            yield devices.examine(answer, environ)
        except EstimatorRuntimeError as error:
            yield Finding(about="TensorFlow", state=PROBLEM, text=str(error))
    try:
        run_flags.check(environ)
    except ConfigError as error:
        yield Finding(about="settings", state=PROBLEM, text=str(error))
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
        yield from _examine_script(options.script, uses, answer)


def _read(path: str | None) -> tuple[doctor_script.Uses | None, Finding | None]:
    """Return what a script uses, and a finding if it cannot be analysed.

    At most one of the two is not None; both are None without a script.
    """
    if path is None:
        return None, None
    try:
        loader, file, _ = script.load_script(path)
    except EstimatorRuntimeError as error:
        return None, Finding(
            about="script", state=PROBLEM, text=f"{error}; mend that line first"
        )
    if file.endswith(".pyc"):
        text = f"{path} is compiled: give its source"
        return None, Finding(about="script", state=NOTE, text=text)
    return doctor_script.read(loader.get_data(file)), None


def _examine_script(
    path: str, uses: doctor_script.Uses, answer: Mapping[str, Any] | None
) -> Iterator[Finding]:
    name = pathlib.Path(path).name
    shown = [_shown(each) for each in uses.estimator_names]
    facts = {"names": dict(uses.names)}
    if not shown:
        text = (
            f"{name} can be parsed, and names no Estimator itself; modules that it "
            "imports may"
        )
        yield Finding(about="script", state=NOTE, text=text, facts=facts)
    else:
        more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
        text = f"{name} can be parsed, and uses {', '.join(shown[:_SHOWN])}{more}"
        yield Finding(about="script", state=OK, text=text, facts=facts)
    if answer is not None:
        yield from _missing(name, uses, answer)
    for line, used, difference, remedy in doctor_script.find(uses):
        text = f"{name}:{line}: {_shown(used)} {difference}; write {_shown(remedy)}"
        yield Finding(about="script", state=NOTE, text=text)
    if answer is None or versions.parse(versions.tensorflow_version()) < (2, 16):
        return
    for line in uses.tpu_lines:
        text = (
            f"{name}:{line}: use_tpu=True: training on TPUs needs TensorFlow 2.15; "
            "with use_tpu=False it trains here"
        )
        yield Finding(about="script", state=PROBLEM, text=text)
    if uses.keras_names and shown:
        yield _keras_3(name, uses.keras_names)


def _keras_3(name: str, used: Mapping[str, int]) -> Finding:
    """Return the finding about `import keras` in a script that uses Estimators.

    Args:
        name: File name of the script.
        used: Name of keras to its first line; not empty.
    """
    for dotted, line in used.items():
        if dotted.startswith(_MODELS_OF_KERAS):
            # Most likely for Estimators, which could use it on TensorFlow 2.15.
            text = (
                f"{name}:{line}: {dotted} is of Keras 3 here, which Estimators "
                "cannot use; write `from tensorflow import keras`, and `from "
                "tensorflow.keras...` for `from keras...`"
            )
            return Finding(about="script", state=PROBLEM, text=text)
    text = (
        f"{name}:{min(used.values())}: keras is Keras 3 here; models for an Estimator "
        "have to be of tf.keras"
    )
    return Finding(about="script", state=NOTE, text=text)


def _missing(
    name: str, uses: doctor_script.Uses, answer: Mapping[str, Any]
) -> Iterator[Finding]:
    """Yield a problem for each name that the installed TensorFlow does not have."""
    reported = set()
    for dotted, part in answer["missing"].items():
        if part in reported:
            continue
        reported.add(part)
        if answer["v1"].get(dotted):
            remedy = (
                f"write {_shown(_in_v1(dotted))}, or import tensorflow.compat.v1 as tf"
            )
        elif part == "tensorflow.contrib":
            remedy = (
                "it went with TensorFlow 1; estimator_runtime.contrib.learn has the "
                "RunConfig of tf.contrib.learn"
            )
        else:
            remedy = "look for its new name, or take it out"
        text = (
            f"{name}:{uses.names[dotted]}: there is no {_shown(part)} in this "
            f"TensorFlow; {remedy}"
        )
        yield Finding(about="script", state=PROBLEM, text=text, facts={"name": dotted})


def _in_v1(dotted: str) -> str:
    return "tensorflow.compat.v1." + dotted.removeprefix("tensorflow.")


def _shown(dotted: str) -> str:
    """Return a name as scripts write it, with "tf" for "tensorflow"."""
    first, dot, rest = dotted.partition(".")
    is_public = first == "tensorflow" and not f"{rest}.".startswith("python.")
    return f"tf{dot}{rest}" if is_public else dotted
