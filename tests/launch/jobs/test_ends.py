"""How jobs of real processes end when the world ends them, and that nothing stays."""

import os
import re
import signal
import textwrap
import time

import pytest

_PRELUDE = """\
import json, os, signal, subprocess, sys, time

task = json.loads(os.environ["TF_CONFIG"])["task"]["type"]
"""


@pytest.fixture
def run(launch, tmp_path):
    """Return a function that runs a program as a job of plain processes."""

    def start(program, *options, **environ):
        (tmp_path / "toy.py").write_text(_PRELUDE + textwrap.dedent(program))
        return launch("--cold", *options, "toy.py", **environ)

    return start


def test_under_nohup_a_job_outlives_its_terminal(run):
    job = run(
        """
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        print("waits", flush=True)
        time.sleep(60)
        """,
        *("--workers", "1"),
        within=("nohup",),
    )
    job.wait_for(r"\| waits$", count=2)
    for number in (signal.SIGHUP, signal.SIGTERM):
        job.process.send_signal(number)
    assert job.end() == 143
    assert "the job was stopped by SIGTERM\n" in job.text


def test_a_session_that_closes_and_is_then_ended_leaves_its_tasks_the_time_to_save(run):
    job = run(
        """
        def save(*_):
            print("saving", flush=True)
            time.sleep(1.5 if task != "ps" else 0)
            print("saved", flush=True)
            os._exit(0)

        signal.signal(signal.SIGTERM, save)
        print("waits", flush=True)
        time.sleep(60)
        """,
        *("--workers", "1", "--ps", "1"),
    )
    job.wait_for(r"\| waits$", count=3)
    job.process.send_signal(signal.SIGHUP)
    job.wait_for(r"\| saving$")
    job.process.send_signal(signal.SIGTERM)
    assert job.end(60) == 143
    assert job.text.count("| saved\n") == 2 + 1, job.text
    assert "the job was stopped by SIGHUP\n" in job.text


def test_a_task_has_the_grace_that_the_user_gives_it(run):
    job = run(
        """
        signal.signal(signal.SIGTERM, lambda *_: print("is told", flush=True))
        print("has", os.environ["ESTIMATOR_RUNTIME_STOP_GRACE_SECS"], flush=True)
        while True:
            time.sleep(60)
        """,
        *("--workers", "0", "--ps", "0", "--grace", "3"),
        ESTIMATOR_RUNTIME_STOP_GRACE_SECS="60",
    )
    job.wait_for(r"\| has 3(\.0)?$")
    job.process.send_signal(signal.SIGTERM)
    assert job.end(60) == 143
    assert "chief    | is told\n" in job.text
    assert "launcher | chief did not end within 3 s: killing it\n" in job.text


def test_a_job_whose_parent_is_stopped_lets_its_tasks_save_in_their_order(run):
    job = run(
        """
        def save(*_):
            print(task, "is told", flush=True)
            if task != "ps":
                os._exit(143)

        signal.signal(signal.SIGTERM, save)
        print("child of", os.getppid(), flush=True)
        while True:
            time.sleep(60)
        """,
        *("--workers", "1", "--ps", "1"),
    )
    job.wait_for(r"\| child of \d+$", count=3)
    os.kill(int(job.wait_for(r"\| child of (\d+)$")[1]), signal.SIGSTOP)
    job.process.send_signal(signal.SIGTERM)
    assert job.end() == 143
    assert re.findall(r"\| (\w+) is told$", job.text, re.M) == ["worker", "chief", "ps"]
    assert re.findall(r"\| (.*): killing it$", job.text, re.M) == [
        "ps 0 did not end within 2 s"
    ]
    # The rest is the fixture's: all gone.


def test_what_a_task_started_in_a_session_of_its_own_ends_with_the_task(run, tmp_path):
    job = run(
        """
        if task == "worker" and not os.path.exists("sleeps"):
            # A shell that begins a session, and one more under it, with a child.
            shell = "trap '' HUP; setsid sh -c 'echo > sleeps; sleep 300; true' & wait"
            subprocess.Popen(["sh", "-c", shell], start_new_session=True)
            while not os.path.exists("sleeps"):
                time.sleep(0.02)
            sys.exit(3)
        print(f"{os.getpid()}, child of {os.getppid()}, trains", flush=True)
        while task == "ps" or not os.path.exists("go"):
            time.sleep(0.02)
        """,
        *("--workers", "1", "--ps", "1"),
    )
    job.wait_for("trains$", count=3)
    found = re.findall(r"\| (\d+), child of (\d+)", job.text)
    ours = {int(pid) for both in found for pid in both}
    deadline = time.monotonic() + 30
    while left := job.children() - ours:  # and the job goes on
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
    (tmp_path / "go").touch()
    assert job.end() == 0


_STARTS = """
    sleep = [sys.executable, "-c", "import time; time.sleep(300)"]
    subprocess.Popen(sleep)
    subprocess.Popen(sleep, start_new_session=True)
    print("child of", os.getppid(), flush=True)
    time.sleep(300)
"""


def test_a_killed_launcher_takes_sessions_of_their_own_with_it(run):
    job = run(_STARTS, "--workers", "0", "--ps", "0")
    job.wait_for(r"\| child of \d+$")
    job.process.kill()
    assert job.end() == -signal.SIGKILL
    # The rest is the fixture's: all gone.


def test_when_the_parent_of_all_tasks_is_killed_they_end(run):
    program = "print('child of', os.getppid(), flush=True); time.sleep(300)"
    job = run(program, "--workers", "0", "--ps", "0")
    os.kill(int(job.wait_for(r"\| child of (\d+)$")[1]), signal.SIGKILL)
    assert job.end() == 1
    assert (
        "estimator-runtime: the fork server of the tasks is gone\nall logs: "
        in job.text
    )
    assert job.text.endswith(
        "\nnewest good checkpoint: not known here, as no task has said where it saves "
        "them\n"
    )
    # The rest is the fixture's: all gone.
