"""A training that takes no step is told of, with where its threads are."""

import sys
import threading

import pytest

from estimator_runtime.reporting import StepWatch, is_of_program


@pytest.fixture
def watch():
    """Return (a watch of ten seconds, a function that looks at a time)."""
    now = [0.0]
    watch = StepWatch(10.0, lambda: now[0])

    def look(at):
        now[0] = at
        stall = watch.check()
        return stall and stall["secs"]

    return watch, look


def test_a_stall_is_told_of_whenever_it_has_lasted_twice_as_long(watch):
    watch, look = watch
    assert look(100.0) is None
    watch.expect()
    times = (101.0, 110.0, 111.0, 112.0, 120.0, 121.0, 140.0, 141.0)
    assert [look(at) for at in times] == [None, None, 10, None, None, 20, None, 40]


def test_a_step_or_the_end_of_the_training_begins_the_time_anew(watch):
    watch, look = watch
    watch.expect()
    assert [look(at) for at in (1.0, 11.0)] == [None, 10]
    watch.move()
    assert [look(at) for at in (12.0, 21.0, 22.0)] == [None, None, 10]
    watch.stop()
    assert [look(at) for at in (23.0, 99.0)] == [None, None]
    watch.expect()
    assert [look(at) for at in (100.0, 109.0, 110.0)] == [None, None, 10]


def test_a_limit_of_zero_is_for_never():
    now = [0.0]
    watch = StepWatch(0.0, lambda: now[0])
    watch.expect()
    for now[0] in (1.0, 1e9):
        assert watch.check() is None


def test_a_frame_without_a_module_name_is_of_the_program():
    frames = []
    exec(
        compile("take(get())", "/home/me/cell", "exec"),
        {"__name__": None, "take": frames.append, "get": sys._getframe},
    )
    assert is_of_program(frames[0])


_PROGRAM = """
def input_fn():
    generate()

def generate():
    blocked.set()
    go.wait()
"""


def test_a_stall_names_the_thread_that_trains_first_and_the_programs_others():
    now = [0.0]
    watch = StepWatch(10.0, lambda: now[0])
    go = threading.Event()
    scopes = []
    for name in ("train.py", "other.py"):
        scopes.append({"__name__": name, "blocked": threading.Event(), "go": go})
        exec(compile(_PROGRAM, f"/home/me/{name}", "exec"), scopes[-1])
    training, other = scopes

    def train():
        watch.expect()
        training["input_fn"]()

    threads = [
        threading.Thread(target=target, daemon=True)
        for target in (other["generate"], train)
    ]
    for thread in threads:
        thread.start()
    for scope in scopes:
        assert scope["blocked"].wait(60)
    watch.check()
    now[0] = 10.0
    stall = watch.check()
    go.set()
    for thread in threads:
        thread.join()
    # This test's own thread is in a program's code, too.
    first, *others = stall["stacks"]
    assert first[-3:-1] == [
        "/home/me/train.py:3, in input_fn",
        "/home/me/train.py:7, in generate",
    ]
    assert first[-1].endswith(", in wait")
    [generating] = [each for each in others if "other.py" in each[0]]
    assert generating[:1] == ["/home/me/other.py:7, in generate"]
    assert generating[1].endswith(", in wait")
