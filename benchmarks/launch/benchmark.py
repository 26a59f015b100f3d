"""How long a job takes from its launch until all of its trainers train."""

import collections
import compileall
import contextlib
import functools
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid

from benchmarks.harness import measurement, processes

_ROUNDS = 5
_TIMEOUT_SECS = 240
_MARKER = "ESTIMATOR_RUNTIME_BENCHMARK"
_PROGRAM = str(pathlib.Path(__file__).with_name("program.py"))
_JOBS = {
    "ps": ("5 tasks: chief, 2 workers, ps, evaluator", "none"),
    "mwms": ("3 tasks: chief, 2 workers, MultiWorkerMirroredStrategy", "mwms"),
}
_OPTIONS = {
    "ps": ("--workers", "2", "--ps", "1", "--evaluator"),
    "mwms": ("--workers", "2"),
}
_TASKS = {
    "ps": {"chief": 1, "worker": 2, "ps": 1, "evaluator": 1},
    "mwms": {"chief": 1, "worker": 2},
}
_TRAINERS = 3
_COLUMNS = {
    "first_step_secs": ("first step, s", ".1f"),
    "all_step_secs": ("all trainers step, s", ".1f"),
    "first_step_after_start_secs": (
        "first step after the first task's start, s",
        ".1f",
    ),
    "cpu_secs": ("CPU, s", ".1f"),
    "memory_mb": ("memory, MB", ".0f"),
}


def measure(quick, announce):
    """Launch both jobs in every way, in turn.

    Stock is plain processes of plain python with TensorFlow's own Estimator; on
    TensorFlow 2.16 and newer, which has none, plain processes with this runtime and
    stock's waits ("plain").

    Args:
        quick: As in `steps.measure`.
        announce: Called with a line of text on what is going on.

    Returns:
        The report, ready for JSON.
    """
    # As pip leaves TensorFlow; else each process of a checkout would compile it anew.
    compileall.compile_dir(processes.ROOT / "estimator_runtime", quiet=1)
    rounds = 1 if quick else _ROUNDS
    baseline = "stock" if processes.has_estimator() else "plain"
    report = measurement.new_report("launch", baseline, quick, jobs={})
    for job in list(_JOBS)[: 1 if quick else None]:
        ways = {
            way: functools.partial(_launch, way, job)
            for way in (baseline, "cold", "warm")
        }
        found = measurement.interleave(ways, rounds, announce)
        report["jobs"][job] = {
            "title": _JOBS[job][0],
            "contenders": {
                way: {
                    key: measurement.spread(figures[key] for figures in own)
                    for key in _COLUMNS
                }
                for way, own in found.items()
            },
        }
    return report


def render(report):
    """Return the report as Markdown."""
    machine = report["machine"]
    packages = ", ".join(f"{k} {v}" for k, v in machine["packages"].items() if v)
    quick = " (quick: the figures mean nothing)" if report["quick"] else ""
    lines = [
        f"## launch{quick}",
        "",
        f"{machine['date']}; {machine['cpu']}, {machine['cpus']} CPUs, "
        f"{machine['memory_gb']} GB; {machine['system']}; Python {machine['python']}, "
        f"{packages}. Median (lower to upper quartile).",
    ]
    for job in report["jobs"].values():
        heads = [title for title, _ in _COLUMNS.values()]
        lines += ["", f"### {job['title']}", "", f"| | {' | '.join(heads)} |"]
        lines.append("|---" * (len(heads) + 1) + "|")
        for way, figures in job["contenders"].items():
            cells = [_cell(figures[key], form) for key, (_, form) in _COLUMNS.items()]
            lines.append(f"| {way} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(figure, form):
    median, q1, q3 = (format(figure[key], form) for key in ("median", "q1", "q3"))
    return f"{median} ({q1} to {q3})"


def _launch(way, job):
    """Launch a job, wait until all its trainers step, and end it."""
    marker = uuid.uuid4().hex
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder, "output")
        arguments = (_PROGRAM, f"{folder}/model", _JOBS[job][1])
        environ = {**processes.environ(), _MARKER: marker}
        begin = time.time()
        with output.open("wb") as log:
            start = functools.partial(
                subprocess.Popen, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
            try:
                started = [
                    start(command, env={**environ, **variables})
                    for command, variables in _commands(way, job, arguments)
                ]
                stamps = _wait_for_steps(output, started)
                usage = _usage(marker)
            finally:
                _kill(marker)
                for process in started:
                    process.wait()
    steps = stamps["stepped"]
    return {
        "first_step_secs": min(steps) - begin,
        "all_step_secs": max(steps) - begin,
        "first_step_after_start_secs": min(steps) - min(stamps["started"]),
        **usage,
    }


def _commands(way, job, arguments):
    """Return the commands and variables of the processes to start."""
    runtime = [sys.executable, "-m", "estimator_runtime", "run"]
    if way in ("warm", "cold"):
        cold = ["--cold"] if way == "cold" else []
        return [([*runtime, *_OPTIONS[job], *cold, *arguments], {})]
    plain = [sys.executable] if way == "stock" else runtime
    # Also where the runtime is enabled for every python.
    own = {"ESTIMATOR_RUNTIME_AUTO": "0"} if way == "stock" else {}
    addressed = [
        (task_type, index)
        for task_type, count in _TASKS[job].items()
        for index in range(count)
    ]
    cluster = collections.defaultdict(list)
    for task_type, _ in addressed:
        if task_type != "evaluator":
            cluster[task_type].append(_free_address())
    return [
        (
            [*plain, *arguments],
            {
                **own,
                "TF_CONFIG": json.dumps(
                    {"cluster": cluster, "task": {"type": task_type, "index": index}}
                ),
            },
        )
        for task_type, index in addressed
    ]


def _free_address():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def _wait_for_steps(output, processes):
    deadline = time.monotonic() + _TIMEOUT_SECS
    while True:
        found = collections.defaultdict(list)
        text = output.read_text(errors="replace")
        for name, stamp in re.findall(r"\b(started|stepped) (\d+\.\d+)\n", text):
            found[name].append(float(stamp))
        if len(found["stepped"]) >= _TRAINERS:
            return found
        over = [each for each in processes if each.poll() is not None]
        if over or time.monotonic() > deadline:
            raise RuntimeError(f"the job does not train:\n{text[-3000:]}")
        time.sleep(0.05)


def _usage(marker):
    """Return the CPU time and the memory (shared pages by share) of a job."""
    ticks = kilobytes = 0
    for pid in _pids(marker):
        with contextlib.suppress(OSError):
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
            # utime, stime, and those of the children that have ended.
            ticks += sum(map(int, fields.split()[11:15]))
            memory = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
            kilobytes += int(re.search(r"^Pss: +(\d+)", memory, re.MULTILINE)[1])
    return {
        "cpu_secs": ticks / os.sysconf("SC_CLK_TCK"),
        "memory_mb": kilobytes / 1024,
    }


def _pids(marker):
    wanted = f"{_MARKER}={marker}".encode()
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            environ = pathlib.Path(f"/proc/{entry}/environ").read_bytes()
            if wanted in environ.split(b"\0"):
                yield int(entry)


def _kill(marker):
    for pid in list(_pids(marker)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
