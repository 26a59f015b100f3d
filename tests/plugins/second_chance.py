"""A second chance for tests with real processes.

What such a test waits for may come late on a busy machine. If it fails, it runs once more,
alone, after all other tests. If it passes then, it counts as passed and is shown under
FLAKY with both outputs, so that somebody finds the cause. More than two of those fail the
run, and so does a test that fails twice, a test without processes or any other error.
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
        self._failures = {}  # Maps the id of a test to its failed reports.
        self._second = {}  # Maps it to (whether the second run passed, its output).
        self._refusal = None

    def pytest_runtest_logreport(self, report):
        """Store a failure."""
        if report.failed:
            # Without the group that --dist=loadgroup appends.
            test = re.sub(r"@[^\]@]*$", "", report.nodeid)
            self._failures.setdefault(test, []).append(report)

    @pytest.hookimpl(trylast=True)  # After pytest-xdist has ended its workers.
    def pytest_sessionfinish(self, session, exitstatus):
        """Run the failed tests again, unless the run fails anyway."""
        if exitstatus != pytest.ExitCode.TESTS_FAILED:
            return
        reports = [each for found in self._failures.values() for each in found]
        if session.testsfailed != len(reports) or session.shouldfail:
            self._refusal = "not all tests have run"
        elif not all(MARKER in each.keywords for each in reports):
            self._refusal = "a test without processes, or a worker, has failed"
        elif len(self._failures) > _MOST:
            self._refusal = f"{len(self._failures)} have failed"
        else:
            self._second = {test: self._run(test) for test in self._failures}
            self._count_as_flaky()
            if all(passed for passed, _ in self._second.values()):
                session.exitstatus = pytest.ExitCode.OK

    def _run(self, test):
        """Run a test once more; return whether it passed, and the output."""
        # The program, not `python -m pytest`, which puts the checkout on sys.path.
        program = pathlib.Path(sys.executable).with_name("pytest")
        options = ("--numprocesses=0", "--color=no", "-p", "no:cacheprovider")
        # A file, because whoever holds a pipe open could keep us waiting for its end.
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            process = subprocess.Popen(
                [program, *options, "-p", f"no:{__name__}", test],
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
        # Not one that is skipped.
        passed = status == 0 and re.search(r"^=* ?1 passed", text, re.MULTILINE)
        return bool(passed), f"{text}\nended with status {status}"

    def _count_as_flaky(self):
        """Count the tests that have passed now as flaky, no longer as failed."""
        stats = self._config.pluginmanager.get_plugin("terminalreporter").stats
        flaky = [test for test, (passed, _) in self._second.items() if passed]
        for report in (each for test in flaky for each in self._failures[test]):
            stats["failed" if report.when == "call" else "error"].remove(report)
            stats.setdefault("flaky", []).append(report)

    def pytest_terminal_summary(self, terminalreporter):
        """Show both runs of a flaky test, and the second one of a test that failed twice."""
        if self._refusal:
            terminalreporter.section("no second chance", red=True)
            terminalreporter.line(
                f"At most {_MOST} tests with processes get one, if nothing else has "
                f"failed: {self._refusal}."
            )
        for test, (passed, output) in self._second.items():
            title = "FLAKY" if passed else "FAILED TWICE"
            terminalreporter.section(f"{title}: {test}", red=True, bold=True)
            for report in self._failures[test] if passed else ():
                terminalreporter.section(f"first run, {report.when}", sep="-")
                terminalreporter.line(report.longreprtext)
                for section, content in report.sections:
                    terminalreporter.section(section, sep="-")
                    terminalreporter.line(content)
            terminalreporter.section("second run, alone", sep="-")
            terminalreporter.line(output)
