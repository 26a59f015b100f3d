"""Fixtures and tiers of all tests. Some tests need TensorFlow not to be imported here."""

import ast
import functools
import gc
import json
import logging
import multiprocessing
import multiprocessing.spawn
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import time

import pytest

pytest_plugins = ("second_chance", "tf1_contrib", "weekly", "workers")

TESTS = pathlib.Path(__file__).parent
_SLOW = (
    "benchmarks/",
    "end_to_end/test_examples",
    "end_to_end/test_progress",
    "test_docs",
    "test_migrating",
    "test_snippets",
)
_STOCK = ("against_stock", "equality")
# Tests of the half that imports no TensorFlow, or of Ray's: their programs train, but
# what is tested does the same on each TensorFlow.
_SAME_ON_EACH = (
    "cli/doctor/",
    "launch/ray/test_current_folder",
    "launch/ray/test_faults",
    "launch/ray/test_refusals",
    "launch/ray/test_actor",
    "launch/ray/test_tasks",
    "launch/jobs/test_cut_networks",
    "launch/jobs/test_ends",
    "launch/test_events",
    "launch/jobs/test_local_jobs",
    "launch/jobs/test_scheduled_tasks",
    "launch/jobs/test_shown_jobs",
    "launch/jobs/test_tensorboard",
    "cli/test_main",
    "cli/test_script",
    "patching/injection/test_current_folder",
    "test_second_chance",
)
# Modules whose fixture runs for half a minute, once for all tests of the module.
_ONE_WORKER = (
    "benchmarks/",
    "checkpoint/test_equality",
    "checkpoint/test_killed",
    "contrib/test_original",
    "contrib/test_uses",
    "estimators/test_mirrored_strategy",
)
_PROCESS_MODULES = {"multiprocessing", "subprocess"}
_PROCESS_FIXTURES = {"fork", "launch", "run_python", "start"}
_PACKAGE = "estimator_runtime"
_UNIT_SECS, _LONG_SECS = 0.5, 120


def pytest_configure():
    """Set up what belongs to the process, before any test."""
    _restore_signals()
    gc.callbacks.append(_collections)
    logging.getLogger("tensorflow").addFilter(_is_of_this_test)


class _Collections:
    """The processor time of this thread that collections of garbage have taken."""

    def __init__(self):
        self.secs = 0.0

    def __call__(self, phase, info):
        self.secs += time.thread_time() * (-1 if phase == "start" else 1)


_collections = _Collections()


def _is_of_this_test(record):
    """Drop TensorFlow's reports of unused tensors.

    They are logged when the tensor is collected, so in the middle of a later test that
    may compare its whole log.
    """
    return "Object was never used" not in record.getMessage()


def _restore_signals():
    """Restore the signals that `nohup` and a shell's `&` make this process ignore."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    for number, handler in usual.items():
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_ignore_collect(collection_path, config):
    """Skip modules without unit tests if only those are wanted.

    Importing all of the others takes longer than the unit tests do.
    """
    if config.option.markexpr == "unit" and collection_path.name.startswith("test_"):
        path = collection_path.relative_to(TESTS).as_posix()
        return _tier_of_module(collection_path, path) != "unit" or None
    return None


@pytest.hookimpl(tryfirst=True)  # Before xdist, which reads the groups here.
def pytest_collection_modifyitems(items):
    """Mark each test with its tier, which says what it needs and so where it runs.

    The tier follows from the folder, the imports and the fixtures; see `_tier`. Ray's
    tests share one worker: three nodes are as much as two cores carry. As the largest
    group they begin first, so that none of them runs alone at the end.
    """
    for item in items:
        path = item.path.relative_to(TESTS).as_posix()
        tier = _tier(item, path)
        item.add_marker(tier)
        if tier == "ray" or _starts_processes(item):
            item.add_marker("processes")
        if tier in ("unit", "slow") or path.startswith(_SAME_ON_EACH):
            item.add_marker("newest")
        if tier == "ray":
            item.add_marker(pytest.mark.xdist_group("ray"))
        elif path.startswith(_ONE_WORKER):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Fail a test that takes longer than its tier allows.

    A unit test may use half a second of this thread: not by the clock, as others share
    the machine, and without collections of what earlier tests have left. Any test may
    take two minutes, unless its `long` marker gives the reason.
    """
    started, used = time.monotonic(), time.thread_time() - _collections.secs
    result = yield
    used = time.thread_time() - _collections.secs - used
    took = time.monotonic() - started
    if item.get_closest_marker("unit") and used > _UNIT_SECS:
        pytest.fail(f"a unit test used {used:.1f} s; {_UNIT_SECS} s is the most")
    if took > _LONG_SECS and item.get_closest_marker("long") is None:
        pytest.fail(
            f"took {took:.0f} s: make it shorter, or say why in a `long` marker"
        )
    return result


def _tier(item, path):
    """Return the name of a test's tier; setup.cfg explains each."""
    tier = _tier_of_module(item.path, path)
    if tier in ("unit", "graph") and _starts_processes(item):
        return "process"
    return tier


def _starts_processes(item):
    """Return whether a test may start processes, by its module's imports and fixtures."""
    if _PROCESS_FIXTURES & set(item.fixturenames):
        return True
    return bool(_PROCESS_MODULES & _imported_by_test(item.path))


def _tier_of_module(file, path):
    """Return the tier of a module's tests that start no process by a fixture."""
    if path.startswith("gpu/"):
        return "gpu"
    if path.startswith("launch/ray/"):
        return "ray"
    if path.startswith(_SLOW):
        return "slow"
    if any(word in path for word in _STOCK):
        return "stock"
    imported = _imported_by_test(file)
    if _PROCESS_MODULES & imported:
        return "process"
    return "graph" if "tensorflow" in imported else "unit"


@functools.cache
def _imported_by_test(path):
    """Return the top-level packages a test module imports, itself or through ours.

    What our package imports inside a function does not count: importing the module
    does not load it. A test's own functions do run.
    """
    tree = ast.parse(path.read_text())
    found = set(_names(ast.walk(tree)))
    seen = set()
    while ours := {name for name in found if name.startswith(_PACKAGE)} - seen:
        seen |= ours
        for name in ours:
            found |= _imported_by_module(name)
    return {name.partition(".")[0] for name in found if not name.startswith(_PACKAGE)}


@functools.cache
def _imported_by_module(name):
    """Return what a module of the package imports when it is imported."""
    source = TESTS.parent.joinpath(*name.split("."))
    for path in (source.with_suffix(".py"), source / "__init__.py"):
        if path.exists():
            return frozenset(_names(_outside_functions(ast.parse(path.read_text()))))
    return frozenset()  # a name in a module, not a module


def _outside_functions(node):
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef):
            yield child
            yield from _outside_functions(child)


def _names(nodes):
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.fixture
def now(monkeypatch):
    """Return the time of TensorFlow's timers, in seconds, as the item of a list."""
    from estimator_runtime.tf_internals import hooks

    now = [1000.0]
    monkeypatch.setattr(hooks, "now", lambda: now[0])
    return now


@pytest.fixture
def around_writes(monkeypatch):
    """Return a function that sets what is called around each write of a checkpoint.

    `before` and `after` get the prefix of the checkpoint, in the thread that writes its
    values.
    """
    from estimator_runtime.checkpoint.tensor_bundle.writer import BundleWriter

    original = BundleWriter.write

    def around_writes(before=None, after=None):
        def write(self, prefix, values):
            if before is not None:
                before(prefix)
            original(self, prefix, values)
            if after is not None:
                after(prefix)

        monkeypatch.setattr(BundleWriter, "write", write)

    return around_writes


@pytest.fixture
def unrecovered(monkeypatch):
    """Return a function that leaves the state file of a folder as it is from now on.

    As on a file system that takes no files while the training starts.
    """
    from estimator_runtime.checkpoint.restore import recovery

    return lambda: monkeypatch.setattr(recovery, "recover", lambda _: None)


@pytest.fixture(autouse=True)
def _no_tf_config(monkeypatch):
    """Run on one machine, whatever the environment of the test run says."""
    monkeypatch.delenv("TF_CONFIG", raising=False)


@pytest.fixture(autouse=True)
def _no_inheritance(monkeypatch):
    """Start plain Python in the child processes of a test, unless it asks for more."""
    monkeypatch.delenv("ESTIMATOR_RUNTIME_CHILDREN", raising=False)
    monkeypatch.setenv("ESTIMATOR_RUNTIME_AUTO", "0")


@pytest.fixture(autouse=True)
def _no_training_left():
    """Stop sessions that a test has left open from taking the signals of the next one."""
    yield
    stop_request = sys.modules.get("estimator_runtime.signals.request")
    if stop_request is not None:
        stop_request._request.end_all()


@pytest.fixture
def set_tf_config(monkeypatch):
    """Return a function that sets TF_CONFIG to an object or a text."""

    def set_tf_config(content):
        text = content if isinstance(content, str) else json.dumps(content)
        monkeypatch.setenv("TF_CONFIG", text)

    return set_tf_config


@pytest.fixture
def free_addresses():
    """Return a function that returns a number of unused addresses of 127.0.0.1.

    The ports are below the range from which the kernel chooses: such a port may belong
    to an outgoing connection by the time the task listens on it. Each process of the
    test run has its own ports, because two processes could find the same one free.
    """
    taken_from = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    lowest = int(taken_from.split()[0])
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    own = range(lowest // 3 + worker, lowest, workers)
    # Not the generator that a test may have seeded, with the same number elsewhere.
    ports = iter(random.SystemRandom().sample(own, 500))

    def free_addresses(count):
        found = []
        while len(found) < count:
            port = next(ports)
            try:
                socket.create_server(("", port)).close()
            except OSError:
                continue
            found.append(f"127.0.0.1:{port}")
        return found

    return free_addresses


@pytest.fixture(autouse=True)
def _xterm(monkeypatch):
    """Allow rows on terminals, whatever the environment of the test run says."""
    monkeypatch.setenv("TERM", "xterm")


@pytest.fixture(scope="session")
def run_python():
    """Return a function that runs Python with arguments; it returns the ended process.

    Its environment is that of the tests, without what is set there for this package and
    for TensorFlow, by `install()` too, and with the variables that are given. None removes
    one.
    """

    def run_python(*arguments, cwd=None, text="", timeout=120, **variables):
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ESTIMATOR_RUNTIME", "TF_"))
        }
        usual = {"ESTIMATOR_RUNTIME_AUTO": "0", "TF_CPP_MIN_LOG_LEVEL": "3"}
        environ = {**inherited, **usual, **variables}
        return subprocess.run(
            [sys.executable, *map(str, arguments)],
            cwd=cwd,
            env={name: value for name, value in environ.items() if value is not None},
            input=text,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    return run_python


@pytest.fixture(scope="session")
def run_script(run_python):
    """Return a function that runs `estimator-runtime run` as `run_python` runs Python."""
    return functools.partial(run_python, "-m", "estimator_runtime", "run")


# Forks processes that have imported TensorFlow, which takes most of the time of a task.
_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["tensorflow"])
_IN_FORK = """
import atexit, os, runpy, sys
os.chdir(cwd)
os.environ.clear()
os.environ.update(environ)
for fd in (1, 2):
    os.dup2(os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT), fd)
sys.argv = arguments
try:
    if arguments[0].endswith(".py"):
        runpy.run_path(arguments[0], run_name="__main__")
    else:
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
finally:
    atexit._run_exitfuncs()  # multiprocessing does not
"""


class ForkedProcess:
    """A Python process that began with TensorFlow imported; like a `Popen`."""

    def __init__(self, arguments, cwd, environ, output):
        names = {
            "arguments": [str(each) for each in arguments],
            "cwd": str(cwd),
            "environ": environ,
            "output": str(output),
        }
        self._process = _forks.Process(target=exec, args=(_IN_FORK, names), daemon=True)
        self._process.start()

    def poll(self):
        """Return the exit status, or None if the process runs."""
        return self._process.exitcode

    def wait(self, timeout=None):
        """Wait for the end; return the exit status.

        Raises:
            TimeoutExpired: If the process still runs after so many seconds.
        """
        self._process.join(timeout)
        if self.poll() is None:
            raise subprocess.TimeoutExpired("a forked task", timeout)
        return self.poll()

    def send_signal(self, number):
        """Send a signal, if the process runs."""
        if self.poll() is None:
            os.kill(self._process.pid, number)

    def kill(self):
        """Send SIGKILL, if the process runs."""
        self._process.kill()


@pytest.fixture
def fork(monkeypatch):
    """Return the class `ForkedProcess`, for tasks that are about what TensorFlow does.

    Arguments are those of `python`: a script, or a module without `-m`, and its own.
    What is about the import of TensorFlow, or about Python's own exit, needs a process
    that is not forked.
    """
    # TensorFlow reads these at its import, so in the process that is forked. A program
    # that imports TensorFlow first has not set the second.
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    monkeypatch.delenv("TF_USE_LEGACY_KERAS", raising=False)
    # Without the runtime, which children of multiprocessing have if a test before this
    # one has installed it in the process of the tests.
    describe = multiprocessing.spawn.get_preparation_data
    monkeypatch.setattr(
        multiprocessing.spawn,
        "get_preparation_data",
        lambda name: {
            key: value
            for key, value in describe(name).items()
            if key != "estimator_runtime"
        },
    )
    return ForkedProcess
