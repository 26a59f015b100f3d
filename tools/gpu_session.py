"""Runs what needs a GPU, the most telling first, for when a machine is at hand briefly.

    python tools/gpu_session.py FOLDER [--secs 780]

After each part, FOLDER/session.json has the status, the time and the last lines of all
parts so far, and FOLDER has the figures and the logs. A part that takes too long is
killed, and no part begins that would not have time to end. On a machine without a GPU,
`--rehearse` runs the same parts on the CPU.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

_STEPS = ("-m", "benchmarks", "steps", "--rounds", "3")
_TESTS = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/gpu")
# Name, seconds that it may take, arguments of Python.
_PARTS = (
    ("doctor", 60, ("-m", "estimator_runtime", "doctor", "--json")),
    (
        "trains",
        90,
        (*_TESTS, "-k", "trains_on_the_device or give_the_bits_of_stock"),
    ),
    ("steps-cnn", 150, (*_STEPS, "--models", "cnn")),
    ("steps-resnet50", 240, (*_STEPS, "--models", "resnet50")),
    ("checkpoints", 150, ("-m", "benchmarks", "checkpoints", "--quick")),
    ("tests", 240, _TESTS),
    ("steps-others", 200, (*_STEPS, "--models", "dnn", "wide_and_deep")),
)
_TAIL_LINES = 40


def main():
    """Run the parts that there is time for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--secs", type=float, default=780.0, help="for all parts")
    parser.add_argument("--rehearse", action="store_true", help="run on the CPU")
    args = parser.parse_args()
    folder = args.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    environ = dict(os.environ)
    if args.rehearse:
        environ["REHEARSE_GPU_TESTS"] = "1"
    deadline = time.monotonic() + args.secs
    done = {}
    for name, limit, arguments in _PARTS:
        if "benchmarks" in arguments:
            quick = ("--quick",) if args.rehearse and "--quick" not in arguments else ()
            arguments = (*arguments, *quick, "--output", str(folder / name))
        if args.rehearse and name == "steps-resnet50":
            continue  # A CPU would take an hour.
        if time.monotonic() + limit > deadline:
            done[name] = {"status": "no time was left"}
        else:
            done[name] = _run(arguments, limit, environ, folder / f"{name}.log")
        (folder / "session.json").write_text(json.dumps(done, indent=1) + "\n")
        print(name, done[name]["status"], flush=True)


def _run(arguments, limit, environ, log):
    """Run Python with arguments; return the status, the seconds and the last lines."""
    start = time.monotonic()
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=pathlib.Path(__file__).parents[1],
            env=environ,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that all it starts can be killed with it
        )
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            status = f"killed after {limit} s"
    return {
        "status": status,
        "secs": round(time.monotonic() - start, 1),
        "tail": log.read_text(errors="replace").splitlines()[-_TAIL_LINES:],
    }


if __name__ == "__main__":
    main()
