"""What a living process writes is known by its lock, whatever that process is called."""

import errno
import fcntl
import os
import shutil
import socket
import subprocess
import sys
import time

import pytest

from estimator_runtime.checkpoint.store import cleanup, commit, durable, locks

# Begins a checkpoint as a process of another container does that has the same host
# name, the same kernel, and process ids of its own: its own is that of the test.
BEGIN = """
import os, sys
from estimator_runtime.checkpoint.store import commit, durable
pid, folder, does = int(sys.argv[1]), sys.argv[2], sys.argv[3]
own = durable.own_identity()
durable._identities[os.getpid()] = own._replace(namespace="1", **{kind})
name = durable.temporary_name
def named(path):
    return name(path).replace(f"-{os.getpid()}-", f"-{pid}-")
durable.temporary_name = named
hidden = commit.start(os.path.join(folder, "model.ckpt-40"))
if does != "begin":
    open(os.path.join(hidden, "model.ckpt-40.index"), "w").write("half")
# The child lives on, and says so when it has begun to.
if does != "fork" or os.fork() == 0:
    print(os.path.basename(hidden), flush=True)
sys.stdin.read()
os._exit(0)
"""
SAME_KERNEL, OTHER_KERNEL = {}, {"boot": "another"}


@pytest.fixture
def begin(tmp_path):
    """Return a function that gives another process and the folder that it writes."""
    processes = []

    def start(does="write", kind=SAME_KERNEL):
        program = BEGIN.replace("{kind}", repr(kind))
        command = [sys.executable, "-c", program, str(os.getpid()), tmp_path, does]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        process = subprocess.Popen(command, text=True, **pipes)
        processes.append(process)
        return process, tmp_path / process.stdout.readline().strip()

    yield start
    for process in processes:
        process.kill()
        process.communicate(timeout=60)


def end(process):
    process.kill()
    process.wait(60)


@pytest.mark.parametrize("kind", [SAME_KERNEL, OTHER_KERNEL])
def test_a_save_of_a_process_with_our_host_name_and_pid_is_left_alone_while_it_lives(
    tmp_path, begin, kind
):
    process, hidden = begin(kind=kind)
    owner = durable.owner(hidden.name)
    assert (owner.pid, owner.host) == (os.getpid(), socket.gethostname())
    cleanup.clean_up(str(tmp_path), now=lambda: time.time() + 100_000)
    mine = commit.start(str(tmp_path / "model.ckpt-40"))
    assert os.listdir(hidden) == ["model.ckpt-40.index"]
    assert os.path.basename(mine) != hidden.name
    end(process)
    later = 0 if kind is SAME_KERNEL else 601
    cleanup.clean_up(str(tmp_path), now=lambda: time.time() + later)
    assert [path.name for path in tmp_path.iterdir()] == [os.path.basename(mine)]
    commit.abandon(mine)


def test_a_forked_child_that_lives_on_does_not_keep_its_parents_save(begin):
    process, hidden = begin("fork")
    assert not cleanup.is_dead(str(hidden))
    end(process)
    assert cleanup.is_dead(str(hidden))


def test_a_save_that_is_about_to_be_locked_is_left_alone(begin):
    process, hidden = begin("begin")
    end(process)
    assert not cleanup.is_dead(str(hidden))
    assert cleanup.is_dead(str(hidden), now=lambda: time.time() + 601)


@pytest.mark.parametrize("secs, is_dead", [(-1, False), (59, False), (61, True)])
def test_a_save_of_our_host_name_and_another_kernel_is_of_before_our_boot_or_waits(
    begin, secs, is_dead
):
    process, hidden = begin(kind=OTHER_KERNEL)
    end(process)  # as if on another node, where its lock is not seen from here
    assert not cleanup.is_dead(str(hidden))
    booted_at = cleanup.changed_at(str(hidden)) + secs
    assert cleanup.is_dead(str(hidden), booted_at=lambda: booted_at) is is_dead
    assert not cleanup.is_dead(str(hidden), booted_at=lambda: None)
    assert cleanup.is_dead(str(hidden), now=lambda: time.time() + 601)


def test_a_save_that_ends_while_it_is_looked_at_is_not_dead(begin, monkeypatch):
    process, hidden = begin()
    end(process)
    monkeypatch.setattr(
        locks, "is_folder_locked", lambda path: bool(shutil.rmtree(path))
    )
    assert not cleanup.is_dead(str(hidden))
    assert not hidden.exists()


@pytest.mark.parametrize("lives", [True, False])
def test_where_there_are_no_locks_ten_minutes_of_quiet_tell(begin, monkeypatch, lives):
    process, hidden = begin()
    if not lives:
        end(process)

    def flock(descriptor, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    changed_at = cleanup.changed_at(str(hidden))
    for secs, is_dead in ((599, False), (601, True)):
        now = changed_at + secs
        assert cleanup.is_dead(str(hidden), now=lambda now=now: now) is is_dead


def test_a_process_of_the_same_container_is_asked_for(tmp_path):
    program = (
        "import sys; from estimator_runtime.checkpoint.store import durable; "
        "print(durable.temporary_name(sys.argv[1]), flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "model.ckpt-40")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        hidden = process.stdout.readline().strip()
        os.mkdir(hidden)  # not locked, and empty
        assert not cleanup.is_dead(hidden, now=lambda: time.time() + 100_000)
        process.stdin.close()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert cleanup.is_dead(hidden)  # also before somebody asks how it has ended


def test_a_process_that_started_in_our_clock_tick_is_another_one(tmp_path, monkeypatch):
    parent = os.getppid()
    same = durable.identity_of(parent)
    monkeypatch.setitem(durable._identities, os.getpid(), same)
    name = f".model.ckpt-40.saving-{parent}-{socket.gethostname()}+{'.'.join(same)}"
    (tmp_path / name).mkdir()
    assert not cleanup.is_dead(str(tmp_path / name))


def test_what_this_process_writes_is_left_alone_until_it_is_given_up(tmp_path):
    hidden = commit.start(str(tmp_path / "model.ckpt-40"))
    assert not cleanup.is_dead(hidden)
    locks.unlock_folder(hidden)
    assert cleanup.is_dead(hidden)
    commit.abandon(hidden)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("host", ["host", "a-b.example.org"])
def test_a_hidden_name_tells_who_writes(host):
    name = f".model.ckpt-1.saving-12-{host}"
    assert durable.owner(name) == (12, host, None)
    assert durable.final_path(name) == "model.ckpt-1"
    own = durable.temporary_name("/ckpt/model.ckpt-1")
    assert durable.owner(os.path.basename(own)) == (
        os.getpid(),
        socket.gethostname(),
        durable.own_identity(),
    )
    assert durable.final_path(os.path.basename(own)) == "model.ckpt-1"
