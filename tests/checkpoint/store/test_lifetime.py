"""What a living process writes is known by its lock, or by quiet without one."""

import errno
import fcntl
import os
import subprocess
import sys
import time

import pytest

from estimator_runtime.checkpoint.store import cleanup, durable
from estimator_runtime.checkpoint.store.commit import SavingFolder

# Begins a checkpoint, as a process does that may be of another container or machine.
BEGIN = """
import os, sys
from estimator_runtime.checkpoint.store import durable
from estimator_runtime.checkpoint.store.commit import SavingFolder
folder, does, boot = sys.argv[1:]
if boot:
    durable.this_boot = lambda: boot
saving = SavingFolder.create(os.path.join(folder, "model.ckpt-40"))
open(saving.inside + ".index", "w").write("half")
# The child lives on, and says so when it has begun to.
if does != "fork" or os.fork() == 0:
    print(saving.path, flush=True)
sys.stdin.read()
os._exit(0)
"""
THIS_KERNEL, OTHER_KERNEL = "", "another"


@pytest.fixture
def begin(tmp_path):
    """Return a function that gives another process and the folder that it writes."""
    processes = []

    def start(does="write", boot=THIS_KERNEL):
        command = [sys.executable, "-c", BEGIN, tmp_path, does, boot]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        process = subprocess.Popen(command, text=True, **pipes)
        processes.append(process)
        return process, process.stdout.readline().strip()

    yield start
    for process in processes:
        process.kill()
        process.communicate(timeout=60)


def end(process):
    process.kill()
    process.wait(60)


def later(secs):
    return lambda: time.time() + secs


@pytest.mark.parametrize("boot, secs", [(THIS_KERNEL, 0), (OTHER_KERNEL, 601)])
def test_a_save_of_another_process_is_left_alone_while_it_lives(
    tmp_path, begin, boot, secs
):
    process, hidden = begin(boot=boot)
    cleanup.remove_leftovers(str(tmp_path), now=later(100_000))
    mine = SavingFolder.create(str(tmp_path / "model.ckpt-40"))
    assert sorted(os.listdir(hidden)) == ["model.ckpt-40.index", "new"]
    end(process)
    assert cleanup.is_dead(hidden) is (boot == THIS_KERNEL)
    cleanup.remove_leftovers(str(tmp_path), now=later(secs))
    assert [str(path) for path in tmp_path.iterdir()] == [mine.path]
    mine.remove()


def test_a_forked_child_that_lives_on_does_not_keep_its_parents_save(begin):
    process, hidden = begin("fork")
    assert not cleanup.is_dead(hidden)
    end(process)
    assert cleanup.is_dead(hidden)


def test_a_folder_that_is_removed_before_it_is_locked_is_created_again(
    tmp_path, monkeypatch
):
    make, made = os.mkdir, []

    def clean_up_at_once(path):
        make(path)
        made.append(path)
        if len(made) == 1:
            cleanup.remove_leftovers(str(tmp_path))

    monkeypatch.setattr(os, "mkdir", clean_up_at_once)
    saving = SavingFolder.create(str(tmp_path / "model.ckpt-40"))
    assert [saving.path] == made[1:]
    assert [str(path) for path in tmp_path.iterdir()] == [saving.path]
    saving.remove()


@pytest.mark.parametrize("lives", [True, False])
def test_where_there_are_no_locks_ten_minutes_of_quiet_tell(begin, monkeypatch, lives):
    process, hidden = begin()
    if not lives:
        end(process)

    def flock(descriptor, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    changed_at = cleanup.changed_at(hidden)
    for secs, is_dead in ((599, False), (601, True)):
        now = changed_at + secs
        assert cleanup.is_dead(hidden, now=lambda now=now: now) is is_dead


def test_a_file_that_is_being_replaced_is_left_alone_while_its_writer_lives(
    tmp_path, monkeypatch
):
    seen = []
    sync = os.fsync

    def look(descriptor):
        sync(descriptor)
        seen.extend((path, cleanup.is_dead(str(path))) for path in tmp_path.glob(".*"))

    monkeypatch.setattr(os, "fsync", look)
    durable.replace_file(str(tmp_path / "checkpoint"), b"new")
    [(path, is_dead)] = seen
    assert not is_dead
    path.write_bytes(b"half")  # of a writer that has died
    assert cleanup.is_dead(str(path))
