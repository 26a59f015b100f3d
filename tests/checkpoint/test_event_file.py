"""Event files that are written without TensorFlow, read by TensorFlow."""

import tensorflow as tf

from estimator_runtime.checkpoint.event_file import EventFile


def _events(path):
    return list(tf.compat.v1.train.summary_iterator(str(path)))


def _scalars(event):
    return {value.tag: value.simple_value for value in event.summary.value}


def test_tensorflow_reads_what_was_written(tmp_path):
    file = EventFile(str(tmp_path / "run"), now=1700000000.25)
    file.write({"a/b": 0.5, "zwölf": 12.0}, step=0, now=1700000001.5)
    file.write({"a/b": -1e30}, step=2**40, now=1700000002.0)
    # It checks the checksums.
    first, second, third = _events(file.path)
    assert (first.wall_time, first.file_version) == (1700000000.25, "brain.Event:2")
    assert (second.wall_time, second.step) == (1700000001.5, 0)
    assert _scalars(second) == {"a/b": 0.5, "zwölf": 12.0}
    assert (third.step, third.summary.value[0].tag) == (2**40, "a/b")


def test_its_name_is_one_that_tensorboard_reads_and_sorts_by_time(tmp_path):
    earlier = EventFile(str(tmp_path), now=999999999.0)
    later = EventFile(str(tmp_path), now=1000000000.0)
    names = [path.name for path in sorted(tmp_path.iterdir())]
    assert names == [earlier.path.split("/")[-1], later.path.split("/")[-1]]
    assert all(name.startswith("events.out.tfevents.") for name in names)
