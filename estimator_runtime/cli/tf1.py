"""`estimator-runtime tf1 install`: the original `tf.contrib`, fetched once."""

from __future__ import annotations

import argparse

from estimator_runtime.cli.parser import Parser
from estimator_runtime.tf1.contrib import wheel


def add_to(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add the parser of `tf1`."""
    parser = commands.add_parser(
        "tf1",
        help="install tf.contrib of TensorFlow 1.15.5, for 'run --tf1'",
        usage="estimator-runtime tf1 install [options]",
        description="Fetch the wheels of tensorflow 1.15.5 (110 MB) and "
        "tensorflow-estimator 1.15.2 with pip,\nverify them, and install what "
        "tf.contrib needs of them (2.2 MB) into this environment,\nor into the folder "
        f"that {wheel.FOLDER_VARIABLE} names.",
    )
    parser.add_argument("action", choices=["install"], metavar="install", help="do it")
    parser.add_argument(
        "--wheel",
        action="append",
        default=[],
        metavar="FILE",
        help="one of the two wheels, which is not fetched then; give it twice for both",
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="write what would be installed as a wheel, for `pip install FILE` on "
        "machines without a package index",
    )
    parser.set_defaults(describe=_install)


def _install(options: argparse.Namespace) -> tuple[str, int]:
    return wheel.install(options.wheel, options.output), 0
