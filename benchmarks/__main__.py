"""python -m benchmarks NAME, or table: see README.md."""

import argparse
import importlib
import importlib.util
import os
import pathlib
import sys
import warnings

from benchmarks import cadence, cadence_report, harness
from benchmarks.report import render

_BENCHMARKS = {
    "steps": ("benchmarks.steps", "what a training step costs, in ten ways"),
    "logging": ("benchmarks.logging_price", "what logging every 100 steps costs"),
    "cluster": ("benchmarks.ps_cluster", "a step with its variables on another task"),
    "checkpoints": ("benchmarks.checkpoints", "what saving costs, by size and cadence"),
    "launch": ("benchmarks.launch", "how long a job takes until all of it trains"),
}
_WITHOUT_PLOT = ("launch",)


def main(arguments=None):
    """Measure and write the figures, or print those that are written."""
    args = _parser().parse_args(arguments)
    if args.command == "table":
        print(render(harness.read(args.file), args.against), end="")
    elif args.command == "cadence":
        return _measure_cadence(args)
    else:
        _measure(args.command, args.quick, pathlib.Path(args.output))
    return 0


def _parser():
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (_, purpose) in _BENCHMARKS.items():
        command = commands.add_parser(name, help=purpose, description=purpose)
        command.add_argument(
            "--quick", action="store_true", help="see that it works; no real figures"
        )
        _add_output(command)
    purpose = "how often a training of your own should save"
    command = commands.add_parser("cadence", help=purpose, description=purpose)
    cadence.add_options(command)
    _add_output(command)
    table = commands.add_parser("table", help="print figures as Markdown")
    table.add_argument("file", help="JSON file of a benchmark")
    table.add_argument(
        "--against", metavar="NAME", help="contender to compare with (default: stock)"
    )
    return parser


def _add_output(command):
    command.add_argument(
        "--output",
        default="build/benchmarks",
        metavar="FOLDER",
        help="for NAME.json, NAME.md and NAME.png (default: %(default)s)",
    )


def _measure_cadence(args):
    try:
        cadence.check(args)
        report = cadence.measure(args, _announce)
    except cadence.CadenceError as error:
        _announce(f"benchmarks cadence: error: {error}")
        return 2
    _publish(
        report, cadence_report.render(report), pathlib.Path(args.output), "cadence"
    )
    return 0


def _measure(name, quick, folder):
    _silence()
    benchmark = importlib.import_module(_BENCHMARKS[name][0])
    report = benchmark.measure(quick, announce=_announce)
    # A benchmark of something else than steps has a table of its own.
    own_render = getattr(benchmark, "render", None)
    _publish(report, (own_render or render)(report), folder, name)


def _publish(report, table, folder, name):
    harness.write(report, folder / f"{name}.json")
    (folder / f"{name}.md").write_text(table)
    if name not in _WITHOUT_PLOT:
        _draw(report, folder / f"{name}.png")
    print(table, end="")


def _draw(report, path):
    if importlib.util.find_spec("matplotlib"):
        from benchmarks import plot

        plot.draw(report, path)
    else:
        _announce("no plot: matplotlib is missing; pip install '.[benchmarks]'")


def _silence():
    """Keep advice on old interfaces, which are the point here, off the screen."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    warnings.simplefilter("ignore")
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")


def _announce(line):
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
