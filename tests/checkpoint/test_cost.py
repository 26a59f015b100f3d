"""How often to save, by what a training's checkpoints have cost."""

import json

import pytest
import tensorflow as tf

import estimator_runtime as er
from estimator_runtime.checkpoint import cost
from estimator_runtime.checkpoint.cost import CheckpointCost
from estimator_runtime.cli.main import main
from estimator_runtime.errors import CheckpointError

er.install()

tf1 = tf.compat.v1

MEASURED = [
    # Step, seconds training waited, seconds of writing, seconds since the one before.
    (0, 0.25, 1.0, None),
    (100, 0.5, 2.0, 60.0),
    (200, 0.125, 4.0, 64.0),
]


def tell(folder):
    """Write what checkpoints have cost to an event file, among other things."""
    with tf.Graph().as_default():
        writer = tf1.summary.FileWriter(str(folder))
        for step, blocked, written, interval in MEASURED:
            CheckpointCost(
                step=step,
                bytes=10**6,
                blocked_secs=blocked,
                write_secs=written,
                interval_secs=interval,
            ).report(writer)
            summary = tf1.Summary()
            summary.value.add(tag="loss", simple_value=step)
            summary.value.add(tag="not checkpoint/blocked_secs", simple_value=9.0)
            writer.add_summary(summary, step)
        writer.add_graph(tf.Graph())
        writer.close()


def test_an_event_file_that_is_cut_off_gives_what_it_has(tmp_path):
    tell(tmp_path)
    (path,) = tmp_path.glob("events.out.*")
    content = path.read_bytes()
    counts = set()
    for size in range(len(content)):
        path.write_bytes(content[:size])
        try:
            counts.add(cost.read(str(tmp_path)).count)
        except CheckpointError:
            counts.add(0)
    assert counts == {0, 1, 2, 3}


def test_the_command_advises(ckpt, capsys):
    tell(ckpt)
    assert main(["checkpoints", str(ckpt), "--mtbf-hours", "24"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3:] == [
        "a checkpoint costs 2.25 s: training waits 0.25 s, the background writes 2 s "
        "(medians of 3)",
        "saved every 62 s, with a failure every 24 h, 3.66% of the time is lost, to "
        "checkpoints and to work done again",
        "the least, 0.72%, is lost with RunConfig(save_checkpoints_secs=624)",
    ]
    assert main(["checkpoints", str(ckpt), "--mtbf-hours", "24", "--json"]) == 0
    advice = json.loads(capsys.readouterr().out)["advice"]
    assert advice == {
        "mtbf_secs": 86400.0,
        "checkpoints_measured": 3,
        "blocked_secs": 0.25,
        "write_secs": 2.0,
        "interval_secs": 62.0,
        "advised_interval_secs": pytest.approx(623.54, abs=0.01),
        "advised_lost_part": pytest.approx(0.00722, abs=0.00001),
    }


def test_without_measures_the_command_says_what_to_do(ckpt, capsys):
    assert main(["checkpoints", str(ckpt), "--mtbf-hours", "24"]) == 1
    assert capsys.readouterr().err == (
        f"estimator-runtime: error: the event files in {str(ckpt)!r} do not say what a "
        "checkpoint costs; train with this runtime until it has saved one, then ask "
        "again\n"
    )


@pytest.mark.parametrize("hours", ["0", "x", "nan", "inf"])
def test_a_bad_number_of_hours_is_one_line(ckpt, capsys, hours):
    assert main(["checkpoints", str(ckpt), f"--mtbf-hours={hours}"]) == 2
    assert capsys.readouterr().err == (
        "estimator-runtime: error: argument --mtbf-hours: the value is "
        f"{hours!r}; give the mean time between failures in hours, such as 24; see "
        "'estimator-runtime checkpoints --help'\n"
    )


def test_a_real_training_tells_what_is_needed(tmp_path, capsys):
    with tf.Graph().as_default():
        step = tf1.train.get_or_create_global_step().assign_add(1).op
        with er.MonitoredTrainingSession(
            checkpoint_dir=str(tmp_path),
            save_checkpoint_steps=5,
            hooks=[tf1.train.StopAtStepHook(last_step=20)],
        ) as session:
            while not session.should_stop():
                session.run(step)
    tf1.summary.FileWriterCache.clear()
    assert main(["checkpoints", str(tmp_path), "--mtbf-hours", "1"]) == 0
    assert "RunConfig(save_checkpoints_secs=" in capsys.readouterr().out
    assert cost.read(str(tmp_path)).count == 5
