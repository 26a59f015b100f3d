"""Runs upstream's own tests of tensorflow-estimator against the installed package.

    git clone https://github.com/tensorflow/estimator
    git -C estimator checkout b5f91f8
    python tools/upstream.py estimator --output new.jsonl
    python tools/upstream.py estimator --stock --output old.jsonl  # TensorFlow 2.15
    python tools/upstream.py --compare new.jsonl old.jsonl

The tests see the tensorflow-estimator that is installed, never the checkout's, and this
package's runtime behind it. Each file gets a process of its own. What a test came to is
written at once, so a hanging one takes nothing else with it. Needs pytest,
pytest-timeout, pandas, scikit-learn and, for clusters, portpicker.
"""

import argparse
import collections
import gc
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path("tensorflow_estimator", "python", "estimator")
OUTCOMES = ("passed", "failed", "error", "skipped")


def main():
    """Run the files in turn, or compare two runs; exit status 1 on a new failure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", nargs="?", help="folder of tensorflow/estimator")
    parser.add_argument("files", nargs="*", help=f"tests below {ROOT}; default: all")
    parser.add_argument("--output", help="where results are added, a line per test")
    parser.add_argument(
        "--tf1", action="store_true", help="disable_v2_behavior() first"
    )
    parser.add_argument("--stock", action="store_true", help="without this package")
    parser.add_argument(
        "--timeout-secs", type=float, default=500, help="for one file (default: 500)"
    )
    parser.add_argument(
        "--test-timeout-secs",
        type=float,
        default=150,
        help="for one test (default: 150)",
    )
    parser.add_argument("--compare", nargs=2, metavar=("NEW", "OLD"))
    parser.add_argument(
        "--in-this-process", action="store_true", help=argparse.SUPPRESS
    )
    options = parser.parse_intermixed_args()
    if options.compare:
        return compare(*map(read, options.compare))
    if not options.checkout or not options.output:
        parser.error("name a checkout, and the --output for its results")
    if options.in_this_process:
        return run_here(options)
    names = options.files or names_of_tests(pathlib.Path(options.checkout))
    for name in names:
        print(f"{name}: {run_apart(name, options)}", flush=True)
    print(row(read(options.output)))
    return 0


def names_of_tests(checkout):
    """Return the test files of a checkout, relative to the package."""
    root = checkout / ROOT
    found = [*root.rglob("*_test.py"), *root.rglob("*_test_v1.py")]
    return sorted(str(path.relative_to(root)) for path in found)


def run_apart(name, options):
    """Run one file in a process of its own and tell how that ended."""
    flags = [f for f in ("--tf1", "--stock") if getattr(options, f.strip("-"))]
    command = [sys.executable, __file__, options.checkout, name, *flags]
    command += ["--output", os.path.abspath(options.output), "--in-this-process"]
    command += ["--test-timeout-secs", str(options.test_timeout_secs)]
    with tempfile.TemporaryDirectory() as folder:
        # A copy: beside the original, `tensorflow_estimator` would be the checkout's.
        shutil.copy(pathlib.Path(options.checkout, ROOT, name), folder)
        command[2] = os.path.abspath(options.checkout)
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=options.timeout_secs,
            )
        except subprocess.TimeoutExpired:
            append(options.output, f"{name}::timeout", "error")
            return f"stopped after {options.timeout_secs:g} s"
    if done.returncode not in (0, 1, 5):  # all passed, some failed, none found
        append(options.output, f"{name}::exit status {done.returncode}", "error")
    lines = done.stdout.strip().splitlines() or done.stderr.strip().splitlines()
    return lines[-1] if lines else f"exit status {done.returncode}"


def run_here(options):
    """Run one copied file under pytest, in this process, and end it."""
    import pytest

    # What TensorFlow's import leaves is not searched for garbage: that is most of the
    # search, and tests that make many graphs call for it all the time.
    gc.disable()
    if not options.stock:
        import estimator_runtime

        estimator_runtime.install()
    import tensorflow as tf
    from absl import flags
    from tensorflow_estimator.python.estimator import canned

    give_back_removed_names()
    if options.tf1:
        tf.compat.v1.disable_v2_behavior()
    flags.FLAGS(sys.argv[:1])  # what tf.test.main() would do
    # canned/v1 holds tests and what they share; the wheel leaves it out.
    canned.__path__.append(str(pathlib.Path(options.checkout, ROOT, "canned")))
    gc.freeze()
    gc.enable()
    [name] = options.files
    arguments = [pathlib.Path(name).name, "-q", "--rootdir=.", "-pno:cacheprovider"]
    arguments += ["--tb=short", "-Wignore", "--disable-warnings"]
    # One that waits for what never comes takes no other with it.
    arguments += [f"--timeout={options.test_timeout_secs}", "--timeout-method=signal"]
    status = int(pytest.main(arguments, plugins=[Recorder(name, options.output)]))
    sys.stdout.flush()
    # Threads of tests that have failed may wait for ever; python would wait for them.
    os._exit(status)


def give_back_removed_names():
    """Define what the tests call and newer Pythons have dropped."""
    import inspect
    import unittest

    inspect.getargspec = inspect.getfullargspec  # until 3.11
    for old, new in (  # until 3.12
        ("assertEquals", "assertEqual"),
        ("assertNotEquals", "assertNotEqual"),
        ("assertAlmostEquals", "assertAlmostEqual"),
        ("assertRegexpMatches", "assertRegex"),
        ("assertNotRegexpMatches", "assertNotRegex"),
        ("assertRaisesRegexp", "assertRaisesRegex"),
        ("assert_", "assertTrue"),
    ):
        setattr(unittest.TestCase, old, getattr(unittest.TestCase, new))


class Recorder:
    """A pytest plugin that adds a line to a file as each test ends."""

    def __init__(self, name, output):
        """Record the tests of the file `name` in the file `output`."""
        self._name = name
        self._output = output

    def pytest_runtest_logreport(self, report):
        """Take a test's outcome; what fails outside of the test itself is an error."""
        if report.when == "call" or report.outcome != "passed":
            failed_outside = report.failed and report.when != "call"
            outcome = "error" if failed_outside else report.outcome
            test = report.nodeid.partition("::")[2]
            append(self._output, f"{self._name}::{test}", outcome)

    def pytest_collectreport(self, report):
        """Take a file that cannot be imported for one error."""
        if report.failed:
            append(self._output, f"{self._name}::import", "error")


def append(output, test, outcome):
    """Add one result; the file is complete after every line."""
    with open(output, "a", encoding="utf-8") as file:
        file.write(json.dumps({"test": test, "outcome": outcome}) + "\n")


def read(path):
    """Return the results in a file: test to outcome, the last one if it ran again."""
    with open(path, encoding="utf-8") as file:
        results = map(json.loads, file)
        return {each["test"]: each["outcome"] for each in results}


def row(results):
    """Return the counts of a run as a row of a table."""
    counts = collections.Counter(results.values())
    files = len({test.partition("::")[0] for test in results})
    return f"{files} files: " + ", ".join(f"{counts[each]} {each}" for each in OUTCOMES)


def compare(new, old):
    """Print both counts and what fails in the new run only; 1 if anything does."""
    print(f"new  {row(new)}\nold  {row(old)}")
    bad = ("failed", "error")
    worse = [t for t in new if new[t] in bad and old.get(t) not in bad]
    for test in worse:
        print(f"{new[test]} now, {old.get(test, 'not run')} before: {test}")
    print(f"{len(worse)} new failures; {len(set(old) - set(new))} tests not run now")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
