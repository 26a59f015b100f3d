"""A step runs on the thread that is faster, unless the program says which."""

import itertools
import weakref

import pytest
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

from estimator_runtime.loop.caller_thread import ThreadChoice
from estimator_runtime.loop.planned import PlannedSession
from estimator_runtime.loop.session import LoopSession

tf1 = tf.compat.v1
train = tf1.train


class Clock:
    """A clock that stands still, but for the runs that it makes."""

    def __init__(self):
        self.now = 0.0
        self.ways = []

    def __call__(self):
        return self.now

    def run(self, way, secs, first_secs=None):
        """Make a run that takes `secs`, or `first_secs` the first time."""
        times = iter([secs if first_secs is None else first_secs])

        def run(*args):
            self.now += next(times, secs)
            self.ways.append(way)
            return way, *args

        return run


def decision(choice, pool, caller, runs, steps=1):
    """Do `runs` runs; give each decision and the number of runs after which it fell."""
    found = [(0, choice.is_caller)]
    for i in range(1, runs + 1):
        choice.run(pool, caller, steps=steps)
        if choice.is_caller is not found[-1][1]:
            found.append((i, choice.is_caller))
    return found[1:]


# Of each way, in turn: a block to warm up, and those that count, fewer where runs are
# long.
BLOCK = 7
ALL = 2 * 8 * BLOCK
LONG = 2 * 2 * BLOCK
MANY = 2 * ALL


@pytest.mark.parametrize(
    ("pool_secs", "caller_secs", "is_caller"),
    [
        (3e-4, 2e-4, True),
        (2e-4, 2e-4, True),
        (2e-4, 2.4e-4, True),
        (2e-4, 2.6e-4, False),
        (0.019, 0.023, True),
        (0.019, 0.025, False),
    ],
)
def test_the_caller_runs_the_steps_unless_the_pool_takes_a_fifth_less_time(
    pool_secs, caller_secs, is_caller
):
    clock = Clock()
    choice = ThreadChoice(clock)
    pool, caller = clock.run("pool", pool_secs), clock.run("caller", caller_secs)
    assert decision(choice, pool, caller, MANY) == [(ALL, is_caller)]
    assert clock.ways[:ALL] == (["pool"] * BLOCK + ["caller"] * BLOCK) * 8
    assert set(clock.ways[ALL:]) == {"caller" if is_caller else "pool"}


@pytest.mark.parametrize("slow", [(1, 2, 3), (2, 4, 7), (5, 6, 7)])
def test_a_load_that_slows_down_both_ways_for_a_while_decides_nothing(slow):
    clock = Clock()
    choice = ThreadChoice(clock)
    quiet = clock.run("pool", 2e-4), clock.run("caller", 2.2e-4)
    loaded = clock.run("pool", 2e-3), clock.run("caller", 2.2e-3)
    for i in range(ALL):
        choice.run(*(loaded if i // (2 * BLOCK) in slow else quiet))
    assert choice.is_caller is True


def test_runs_of_the_pool_before_the_caller_has_any_are_not_compared():
    clock = Clock()
    choice = ThreadChoice(clock)
    # Until the input pipeline is at speed. The pool takes 0.77 of the caller's time.
    slow_pool = clock.run("pool", 4e-4, first_secs=0.1)
    caller = clock.run("caller", 2.6e-4, first_secs=0.1)
    pool = clock.run("pool", 2e-4)
    for _ in range(20 * BLOCK):
        choice.run(slow_pool, caller)
    assert decision(choice, pool, caller, 1000)[-1][1] is False


def test_a_slow_stretch_of_one_way_decides_nothing():
    clock = Clock()
    choice = ThreadChoice(clock)
    pool, caller = clock.run("pool", 3e-4), clock.run("caller", 2e-4)
    slow = clock.run("caller", 5e-4)
    # Blocks four to six of the caller's, of the seven that count.
    ways = {True: (pool, slow), False: (pool, caller)}
    for i in range(ALL):
        choice.run(*ways[4 <= i // (2 * BLOCK) < 7])
    assert choice.is_caller is True


def test_a_run_gets_its_arguments_and_gives_its_values():
    clock = Clock()
    choice = ThreadChoice(clock)
    pool, caller = clock.run("pool", 2e-4), clock.run("caller", 1e-4)
    found = {choice.run(pool, caller, 7, 8) for _ in range(LONG)}
    assert found == {("pool", 7, 8), ("caller", 7, 8)}


def test_runs_of_many_steps_are_compared_by_the_step():
    clock = Clock()
    choice = ThreadChoice(clock)
    pool, caller = clock.run("pool", 1e-2), clock.run("caller", 2e-4)
    for i in range(ALL):
        is_pool = i // BLOCK % 2 == 0  # its runs are longer, and do more
        choice.run(pool, caller, steps=100 if is_pool else 1)
    assert choice.is_caller is False


@pytest.mark.parametrize(
    ("pool_secs", "caller_secs", "is_caller"),
    [(0.04, 0.03, True), (0.04, 0.037, False), (0.04, 0.08, False)],
)
def test_a_run_that_is_long_leaves_the_pool_for_what_is_clearly_faster(
    pool_secs, caller_secs, is_caller
):
    clock = Clock()
    choice = ThreadChoice(clock)
    pool, caller = clock.run("pool", pool_secs), clock.run("caller", caller_secs)
    # Told by the first block of each that counts.
    assert decision(choice, pool, caller, MANY) == [(LONG, is_caller)]


def test_a_run_that_is_very_long_is_not_even_tried_on_the_caller():
    clock = Clock()
    choice = ThreadChoice(clock)
    pool, caller = clock.run("pool", 0.6), clock.run("caller", 0.1)
    assert decision(choice, pool, caller, MANY) == [(4 * BLOCK, False)]
    assert set(clock.ways) == {"pool"}


def test_runs_that_become_very_long_while_both_are_timed_stay_on_the_pool():
    clock = Clock()
    choice = ThreadChoice(clock)
    pool, caller = clock.run("pool", 3e-4), clock.run("caller", 2e-4)
    for _ in range(2 * BLOCK):  # the caller has had its first block
        choice.run(pool, caller)
    slow_pool = clock.run("pool", 0.6)
    ((_, is_caller),) = decision(choice, slow_pool, clock.run("caller", 9.0), MANY)
    assert is_caller is False


def test_runs_that_are_very_long_at_the_start_only_put_the_caller_off():
    clock = Clock()
    choice = ThreadChoice(clock)
    pool, caller = clock.run("pool", 3e-4), clock.run("caller", 2e-4)
    slow_pool = clock.run("pool", 5.0)
    for _ in range(3 * BLOCK):
        choice.run(slow_pool, caller)
    assert set(clock.ways) == {"pool"}
    ((_, is_caller),) = decision(choice, pool, caller, MANY)
    assert is_caller


@pytest.mark.parametrize("late", [3 * BLOCK + 3, 4 * BLOCK + 3, 5 * BLOCK + 3])
def test_one_run_that_takes_long_decides_nothing(late):
    clock = Clock()
    choice = ThreadChoice(clock)
    pool, caller = clock.run("pool", 3e-4), clock.run("caller", 2e-4)

    def interrupted():
        clock.now += 1.0
        return caller() if late // BLOCK % 2 else pool()

    ways = {True: (pool, caller), False: (interrupted, interrupted)}
    choice.run(interrupted, interrupted)  # compiled
    for i in range(1, ALL):
        choice.run(*ways[i != late])
    assert choice.is_caller is True


def test_what_is_compiled_for_the_other_way_stays_there_until_that_has_paid():
    clock = Clock()
    choice = ThreadChoice(clock)
    often = clock.run("pool", 3e-4), clock.run("caller", 2e-4)
    rare = clock.run("rare, pool", 0.1, 0.35), clock.run("rare, caller", 0.1, 0.35)
    fresh = clock.run("fresh, pool", 0.1), clock.run("fresh, caller", 0.1)
    choice.run(*rare)
    for _ in range(2 * ALL):
        choice.run(*often)
    assert choice.is_caller is True
    clock.ways.clear()
    for _ in range(6):
        choice.run(*rare)
    assert clock.ways == ["rare, pool"] * 4 + ["rare, caller"] * 2
    clock.ways.clear()
    for _ in range(2):
        choice.run(*fresh)
        choice.run(*often)
    assert clock.ways == ["fresh, caller", "caller"] * 2


def test_a_run_that_tells_nothing_is_not_timed_and_goes_where_it_is_compiled():
    clock = Clock()
    choice = ThreadChoice(clock)
    often = clock.run("pool", 3e-4), clock.run("caller", 2e-4)
    rare = clock.run("rare, pool", 9.0, 20.0), clock.run("rare, caller", 9.0)
    for _ in range(ALL):
        choice.run_untimed(*rare)
        choice.run(*often)
    assert choice.is_caller is True
    clock.ways.clear()
    for _ in range(4):
        choice.run_untimed(*rare)
    assert clock.ways == ["rare, pool"] * 3 + ["rare, caller"]


def test_slow_runs_at_the_start_decide_nothing():
    clock = Clock()
    choice = ThreadChoice(clock)
    pool, caller = clock.run("pool", 3e-4), clock.run("caller", 2e-4)
    slow_pool, slow_caller = clock.run("pool", 0.3), clock.run("caller", 0.3)
    for _ in range(2 * BLOCK):
        choice.run(slow_pool, slow_caller)
    assert decision(choice, pool, caller, MANY) == [(ALL - 2 * BLOCK, True)]


def test_runs_that_wake_the_threads_of_a_pool_decide_nothing():
    clock = Clock()
    choice = ThreadChoice(clock)
    times = itertools.cycle([9e-4, 9e-4, *[1e-4] * (BLOCK - 2)])

    def pool():
        clock.now += next(times)

    decision(choice, pool, clock.run("caller", 2e-4), ALL)
    assert choice.is_caller is False


def test_the_time_that_compiling_takes_decides_nothing():
    clock = Clock()
    choice = ThreadChoice(clock)
    every = clock.run("pool", 3e-4, 1e-3), clock.run("caller", 2e-4, 1.0)
    late = clock.run("pool", 3e-4, 1e-3), clock.run("caller", 2e-4, 1.0)
    for i in range(ALL + 2 * BLOCK):
        choice.run(*(late if i in (2 * BLOCK + 3, 3 * BLOCK + 3) else every))
    assert choice.is_caller is True


def test_the_caller_is_not_tried_before_the_pool_has_run_as_long_as_compiling_takes():
    clock = Clock()
    choice = ThreadChoice(clock)
    often = clock.run("pool", 1e-3, 0.1), clock.run("caller", 5e-4, 0.1)
    for _ in range(1 + 100):
        choice.run(*often)
    assert clock.ways == ["pool"] * 101
    for _ in range(2 * BLOCK):
        choice.run(*often)
    assert "caller" in clock.ways


def test_each_request_has_to_pay_for_its_own_compilation():
    clock = Clock()
    choice = ThreadChoice(clock)
    often = clock.run("pool", 1e-3, 3e-3), clock.run("caller", 5e-4, 3e-3)
    rare = clock.run("rare, pool", 1e-3, 0.03), clock.run("rare, caller", 1e-3, 0.03)
    choice.run(*rare)
    for _ in range(3 * BLOCK - 1):
        choice.run(*often)
    clock.ways.clear()
    choice.run(*rare)  # where the caller is tried, for which it has not paid
    for _ in range(6 * BLOCK - 1):
        choice.run(*often)
    choice.run(*rare)
    expected = (["caller"] * BLOCK + ["pool"] * BLOCK) * 3
    assert clock.ways == ["rare, pool", *expected[1:], "rare, caller"]


def test_two_requests_in_turn_are_decided_on_as_one():
    clock = Clock()
    choice = ThreadChoice(clock)
    requests = [
        (clock.run("pool", secs * 1.5), clock.run("caller", secs))
        for secs in (2e-4, 3e-4, 4e-4)
    ]
    for i in range(3 * ALL):
        choice.run(*requests[i % 3])
    assert choice.is_caller is True


def test_a_request_that_is_new_on_one_way_each_time_does_no_harm():
    clock = Clock()
    choice = ThreadChoice(clock)
    caller = clock.run("caller", 1e-4)
    for _ in range(3 * ALL):
        choice.run(clock.run("pool", 2e-4), caller)
    assert choice.is_caller is None


def test_nothing_is_kept_of_requests_that_are_let_go():
    clock = Clock()
    choice = ThreadChoice(clock)
    often = clock.run("pool", 3e-4), clock.run("caller", 2e-4)
    alive = []

    def run_new(run):
        rare = clock.run("rare, pool", 0.1, 1.0), clock.run("rare, caller", 0.1, 1.0)
        alive.extend(weakref.ref(way) for way in rare)
        run(*rare)

    for _ in range(ALL):
        run_new(choice.run_untimed)
        choice.run(*often)
    assert choice.is_caller is True
    for _ in range(5):
        run_new(choice.run)
    assert [way for way in alive if way() is not None] == []
    assert set(choice._compiled) == set(often)


def test_a_run_that_fails_counts_for_nothing():
    def fail():
        clock.now += 10
        raise KeyError("of a step")

    clock = Clock()
    choice = ThreadChoice(clock)
    pool, caller = clock.run("pool", 3e-4), clock.run("caller", 2e-4)
    for _ in range(ALL):
        with pytest.raises(KeyError, match="of a step"):
            choice.run(fail, fail)
    assert decision(choice, pool, caller, MANY) == [(ALL, True)]


def threads_of(session):
    return session._sess._sess._sess._threads


def trained(config=None, build=lambda: None, steps=1):
    """Return the ThreadChoice of a session that trains `steps` steps."""
    with tf.Graph().as_default():
        add = train.get_or_create_global_step().assign_add(1)
        build()
        creator = train.ChiefSessionCreator(config=config)
        with LoopSession(creator) as session:
            for _ in range(steps):
                session.run(add)
            return threads_of(session)


def test_a_session_decides_once_it_has_timed_both_ways():
    with tf.Graph().as_default(), tf1.Session() as session:
        one = tf.constant(1)
        hooked = PlannedSession(session, [], clock=lambda: 0.0)
        for steps in range(ALL):
            assert hooked._threads.is_caller is None, steps
            hooked.run(one)
        assert hooked._threads.is_caller is True


@pytest.mark.parametrize(
    "config",
    [
        tf1.ConfigProto(inter_op_parallelism_threads=1),
        tf1.ConfigProto(inter_op_parallelism_threads=-1),
        tf1.ConfigProto(use_per_session_threads=True),
        tf1.ConfigProto(
            session_inter_op_thread_pool=[
                config_pb2.ThreadPoolOptionProto(num_threads=1, global_name="mine")
            ]
        ),
    ],
    ids=["inter_op", "inter_op caller", "per session", "pool"],
)
def test_a_program_that_chooses_threads_gets_them(config):
    assert trained(config).is_caller is False


@pytest.mark.parametrize(
    "config",
    [
        tf1.ConfigProto(allow_soft_placement=True),
        tf1.ConfigProto(intra_op_parallelism_threads=1),
    ],
    ids=["soft placement", "intra_op"],
)
def test_other_settings_leave_the_choice_open(config):
    assert trained(config).is_caller is None
