"""A state file is what TensorFlow reads; whatever it says, nothing starts over."""

import contextlib
import logging
import shutil

import pytest
import tensorflow as tf

import estimator_runtime as er
from estimator_runtime.checkpoint.checkpoint import Checkpoint, checkpoints_in
from estimator_runtime.checkpoint.restore import recovery
from estimator_runtime.checkpoint.restore.session_creator import VerifiedSessionCreator
from estimator_runtime.checkpoint.store.state_file import (
    STATE_FILE,
    State,
    StateError,
    read_state,
    write_state,
)
from estimator_runtime.cli.main import main
from estimator_runtime.config.paths import step_of

er.install()

STEPS = (100, 200, 300, 400, 500)
# What a line of TensorFlow's text format may be, or nearly.
LINES = {
    "no quotes": "model_checkpoint_path: model.ckpt-400/",
    "single quotes": "model_checkpoint_path: 'model.ckpt-400'",
    "a unicode escape": r'model_checkpoint_path: "model.ckpt-4\u0030\x30"',
    "two strings": 'model_checkpoint_path: "model." "ckpt-400"',
    "a comment": 'model_checkpoint_path: "model.ckpt-400"  # back',
    "a semicolon": 'model_checkpoint_path: "model.ckpt-400";',
    "no colon": 'model_checkpoint_path "model.ckpt-400"',
    "a list": 'model_checkpoint_path: "a" all_model_checkpoint_paths: ["b", "c"]',
    "twice": 'model_checkpoint_path: "a"\nmodel_checkpoint_path: "b"',
    "first empty, then not": 'model_checkpoint_path: ""\nmodel_checkpoint_path: "b"',
    "empty": 'model_checkpoint_path: ""',
    "another field": 'model_checkpoint_path: "a"\nmodel: 1',
    "a number of another field": 'model_checkpoint_path: "a"\n4: 1',
    "a leading 0": 'model_checkpoint_path: "a"\nlast_preserved_timestamp: 017.5',
    "infinity": 'model_checkpoint_path: "a"\nlast_preserved_timestamp: -inf',
    "a suffix": 'model_checkpoint_path: "a"\nlast_preserved_timestamp: 1.5f',
    "bytes that are no text": 'model_checkpoint_path: "\\377"',
    "an escape at the end": 'model_checkpoint_path: "a\\',
    "braces": "{" * 2000,
}


@pytest.fixture(autouse=True)
def _quiet_tensorflow(monkeypatch):
    monkeypatch.setattr(logging.getLogger("tensorflow"), "level", logging.ERROR)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with the checkpoints `STEPS`, as a training leaves it."""
    folder = tmp_path_factory.mktemp("trained")
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        step = tf.compat.v1.train.get_or_create_global_step()
        saver = tf.compat.v1.train.Saver(save_relative_paths=True)
        for number in STEPS:
            step.load(number, session)
            saver.save(session, str(folder / "model.ckpt"), global_step=number)
    paths = tuple(str(folder / f"model.ckpt-{number}") for number in STEPS)
    times = tuple(1_700_000_000.25 + number for number in STEPS)
    state = State(
        latest=paths[-1], paths=paths, timestamps=times, last_preserved=times[0]
    )
    write_state(str(folder), state)
    return folder


@pytest.fixture
def folder(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "D")


def bit_flips(content):
    """Yield each content that differs in one bit."""
    for position in range(len(content)):
        for bit in range(8):
            changed = bytearray(content)
            changed[position] ^= 1 << bit
            yield bytes(changed)


def truncations(content):
    return (content[:length] for length in range(len(content)))


def as_tensorflow_reads(folder):
    """Return the State that TensorFlow reads; None if it ignores the file."""
    try:
        read = tf.train.get_checkpoint_state(str(folder))
    except ValueError:  # names no checkpoint, or is not UTF-8: it ends the program
        return None
    if read is None:
        return None
    paths = tuple(read.all_model_checkpoint_paths)
    times = tuple(read.all_model_checkpoint_timestamps)
    return State(
        latest=read.model_checkpoint_path,
        paths=paths or (read.model_checkpoint_path,),
        timestamps=times if len(times) == len(paths) else (),
        last_preserved=read.last_preserved_timestamp or None,
    )


def as_this_runtime_reads(folder):
    with contextlib.suppress(StateError):
        return read_state(str(folder))
    return None


def differences(folder, contents):
    """Return the contents that TensorFlow and this runtime read differently."""
    found, unreadable = [], 0
    for content in contents:
        (folder / STATE_FILE).write_bytes(content)
        stock = as_tensorflow_reads(folder)
        unreadable += stock is None
        # Not by ==: a time may be no number.
        if repr(as_this_runtime_reads(folder)) != repr(stock):
            found.append(content)
    return found, unreadable


@pytest.mark.parametrize("changes", [bit_flips, truncations])
def test_each_changed_state_file_is_read_as_tensorflow_reads_it(folder, changes):
    content = (folder / STATE_FILE).read_bytes()
    # Each bit of a byte comes again and again, as 8 and 7 have no common factor.
    found, unreadable = differences(folder, list(changes(content))[::7])
    assert found == []
    assert unreadable > 10


def test_each_kind_of_line_is_read_as_tensorflow_reads_it(folder):
    found, unreadable = differences(folder, (line.encode() for line in LINES.values()))
    assert found == []
    assert 0 < unreadable < len(LINES)


def restored_steps(folder, contents):
    """Make a session with each state file; yield (content, right step, its step)."""
    with tf.Graph().as_default():
        step = tf.compat.v1.train.get_or_create_global_step()
        scaffold = tf.compat.v1.train.Scaffold()
        for content in contents:
            (folder / STATE_FILE).write_bytes(content)
            named = as_tensorflow_reads(folder)
            is_there = named is not None and Checkpoint.at(named.latest).files
            right = step_of(named.latest) if is_there else STEPS[-1]
            creator = VerifiedSessionCreator(scaffold, checkpoint_dir=str(folder))
            with creator.create_session() as session:
                yield content, right, int(session.run(step))


@pytest.mark.parametrize("changes", [bit_flips, truncations])
def test_no_changed_state_file_starts_a_training_over(folder, changes):
    content = (folder / STATE_FILE).read_bytes()
    # Each bit of a byte comes again and again, as 8 and 23 have no common factor.
    some = list(changes(content))[::23]
    wrong = [each for each in restored_steps(folder, some) if each[1] != each[2]]
    assert wrong == []


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_no_kind_of_line_starts_a_training_over(folder, line):
    contents = [f"{line}\n".encode()]
    wrong = [each for each in restored_steps(folder, contents) if each[1] != each[2]]
    assert wrong == []


def change_first_line(folder, line):
    """Do what `sed -i '1s/.*/LINE/'` does."""
    _, *others = (folder / STATE_FILE).read_text().splitlines()
    (folder / STATE_FILE).write_text("\n".join([line, *others, ""]))


def test_a_rollback_without_quotes_is_said_to_be_made_again_and_is(
    folder, capsys, caplog
):
    change_first_line(folder, "model_checkpoint_path: model.ckpt-400/")
    assert main(["checkpoints", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "the state file cannot be read by TensorFlow (1:24 : " in shown
    assert "; a restart makes it again" in shown
    assert recovery.recover(str(folder)).step == 500
    assert as_tensorflow_reads(folder).latest == f"{folder}/model.ckpt-500"
    [told] = [m for m in caplog.messages if m.startswith("Training goes on from")]
    assert "the state file cannot be read by TensorFlow (1:24 : " in told


@pytest.mark.parametrize(
    "name",
    [
        "*",
        "/etc",
        r"model.ckpt-500\n",
        "model.ckpt-[1-5]00",
        "model.ckpt-400.index",
        r"a\000b",
    ],
)
@pytest.mark.parametrize("is_alone", [False, True])
def test_a_state_file_that_names_what_is_absent_is_made_again_from_the_files(
    folder, name, is_alone, capsys
):
    if is_alone:
        (folder / STATE_FILE).write_text(f'model_checkpoint_path: "{name}"\n')
    else:
        change_first_line(folder, f'model_checkpoint_path: "{name}"')
    main(["checkpoints", str(folder)])
    [last] = [line for line in capsys.readouterr().out.splitlines() if "500  " in line]
    assert last.endswith("good; a restart goes on from here")
    assert recovery.recover(str(folder)).step == 500
    assert read_state(str(folder)).latest == f"{folder}/model.ckpt-500"
    assert [each.step for each in checkpoints_in(folder)] == list(STEPS)


def test_where_all_that_is_named_is_absent_or_damaged_the_other_files_are_used(folder):
    (folder / STATE_FILE).write_text(
        'model_checkpoint_path: "gone"\nall_model_checkpoint_paths: "model.ckpt-400"\n'
    )
    (folder / "model.ckpt-400.index").write_bytes(b"damaged")
    assert recovery.recover(str(folder)).step == 500


def test_a_pattern_among_the_older_checkpoints_deletes_none(folder):
    content = (folder / STATE_FILE).read_text()
    (folder / STATE_FILE).write_text(content.replace("-100", "-*"))
    recovery.recover(str(folder))
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        step = tf.compat.v1.train.get_or_create_global_step()
        saver = tf.compat.v1.train.Saver(max_to_keep=5)
        saver.recover_last_checkpoints(as_tensorflow_reads(folder).paths)
        step.load(501, session)
        saver.save(session, f"{folder}/model.ckpt", global_step=501)
    assert [each.step for each in checkpoints_in(folder)] == [*STEPS, 501]
