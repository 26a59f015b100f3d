"""A second chance for tests with real processes.

What such a test waits for may come late on a busy machine. If it fails, it runs once more,
alone, after all other tests. If it passes then, it counts as passed and is shown under
FLAKY with both outputs, so that somebody finds the cause. More than two of those fail the
run, and so does a test that fails twice, a test without processes or any other error.

Runs that have the environment variable FLAKY_TESTS, the name of a file, append their flaky
tests to that file, and share the limit of two.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

import pytest

MARKER = "processes"
_MOST = 2
# Seconds for a second run. A test may take 300, and so may each of its fixtures.
_DEADLINE = 900


def pytest_configure(config):
    """Watch the tests, in the process that shows the results."""
    if not hasattr(config, "workerinput"):  # Not in a worker of pytest-xdist.
        config.pluginmanager.register(SecondChance(config))


class SecondChance:
    """The tests that failed in this run, and the results of their second runs."""

    def __init__(self, config):
        self._config = config
        self._failures = {}  # Maps a name to the failed reports that count as one.
        self._second = {}  # Maps it to (whether the second run passed, its output).
        self._refusal = None

    def pytest_runtest_logreport(self, report):
        """Store a failure."""
        if report.failed:
            self._failures.setdefault(_name(report), []).append(report)

    @pytest.hookimpl(trylast=True)  # After pytest-xdist has ended its workers.
    def pytest_sessionfinish(self, session, exitstatus):
        """Run the failed tests again, unless the run fails anyway."""
        if exitstatus != pytest.ExitCode.TESTS_FAILED:
            return
        reports = [each for found in self._failures.values() for each in found]
        count = len(_read_flaky()) + len(self._failures)
        if session.testsfailed != len(reports) or session.shouldfail:
            self._refusal = "not all tests have run"
        elif not all(MARKER in each.keywords for each in reports):
            self._refusal = "a test without processes, or a worker, has failed"
        elif count > _MOST:
            self._refusal = f"{count} have failed"
        else:
            for name, found in self._failures.items():
                self._second[name] = self._run(sorted({_id(each) for each in found}))
            flaky = [name for name, (passed, _) in self._second.items() if passed]
            self._record(flaky)
            if len(flaky) == len(self._failures):
                session.exitstatus = pytest.ExitCode.OK

    def _run(self, tests):
        """Run tests once more; return whether all passed, and the output."""
        # The program, not `python -m pytest`, which puts the checkout on sys.path.
        program = pathlib.Path(sys.executable).with_name("pytest")
        options = ("--numprocesses=0", "--color=no", "-p", "no:cacheprovider")
        # A file, because whoever holds a pipe open could keep us waiting for its end.
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            process = subprocess.Popen(
                [program, *options, "-p", f"no:{__name__}", *tests],
                cwd=self._config.rootpath,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                status = process.wait(_DEADLINE)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                status = process.wait(_DEADLINE)
            output.seek(0)
            text = output.read()
        if status < 0:
            return (
                False,
                f"{text}\nended by signal {-status}; the limit is {_DEADLINE} s",
            )
        passed = re.search(rf"^=* ?{len(tests)} passed", text, re.MULTILINE)
        return status == 0 and passed is not None, text

    def _record(self, flaky):
        """Count tests as flaky, no longer as failed."""
        stats = self._config.pluginmanager.get_plugin("terminalreporter").stats
        for report in (each for name in flaky for each in self._failures[name]):
            stats["failed" if report.when == "call" else "error"].remove(report)
            stats.setdefault("flaky", []).append(report)
        if file := os.environ.get("FLAKY_TESTS"):
            with open(file, "a", encoding="utf-8") as stream:
                stream.writelines(f"{name}\n" for name in flaky)

    def pytest_terminal_summary(self, terminalreporter):
        """Show both runs of a flaky test, and the second one of a test that failed twice."""
        if self._refusal:
            terminalreporter.section("no second chance", red=True)
            terminalreporter.line(
                f"At most {_MOST} tests with processes get one, if nothing else has "
                f"failed: {self._refusal}."
            )
        for name, (passed, output) in self._second.items():
            title = "FLAKY" if passed else "FAILED TWICE"
            terminalreporter.section(f"{title}: {name}", red=True, bold=True)
            for report in self._failures[name] if passed else ():
                terminalreporter.section(f"first run, {report.when}", sep="-")
                terminalreporter.line(report.longreprtext)
                for section, content in report.sections:
                    terminalreporter.section(section, sep="-")
                    terminalreporter.line(content)
            terminalreporter.section("second run, alone", sep="-")
            terminalreporter.line(output)


def _id(report):
    """Return the node id of a test, without the group that --dist=loadgroup appends."""
    return re.sub(r"@[^\]@]*$", "", report.nodeid)


def _name(report):
    """Return a name that tests share if the same error of a fixture made them fail."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if report.when == "setup" and crash is not None:
        return f"{_id(report).partition('::')[0]} ({crash})"
    return _id(report)


def _read_flaky():
    """Return the flaky tests of earlier runs that share the limit."""
    file = pathlib.Path(os.environ.get("FLAKY_TESTS", os.devnull))
    return file.read_text(encoding="utf-8").splitlines()
