"""What the cells of a notebook show, in a process that is like a kernel of Jupyter.

As in ipykernel, `sys.ps1` exists, by which TensorFlow logs at level INFO to standard
output; the standard streams are objects of the kernel that write into the cell; and
file descriptor 2 leads to a pipe, which a thread reads into the cell.
"""

import json
import re

import pytest

KERNEL = """
import io, json, os, sys, threading, time, types

sys.ps1 = "In : "
sys.modules["ipykernel"] = types.ModuleType("ipykernel")
written = []

class OutStream(io.TextIOBase):
    encoding = "UTF-8"
    def isatty(self):
        return False
    def fileno(self):
        return 2
    def write(self, text):
        written.append(text)
        return len(text)

result = os.dup(1)
source, end = os.pipe()
os.dup2(end, 2)

def watch():
    while data := os.read(source, 1000):
        written.append(data.decode())

threading.Thread(target=watch, daemon=True).start()
sys.stdout, sys.stderr = OutStream(), OutStream()
cells = []
for source_text in json.loads(sys.argv[1]):
    written.clear()
    try:
        exec(source_text, globals())
    finally:
        time.sleep(0.3)  # what is still in the pipe is of this cell
        text = "".join(written)
        os.write(result, (json.dumps(text) + "\\n").encode())
os._exit(0)
"""
BEGIN = """
import logging, tempfile
import estimator_runtime
estimator_runtime.install()
import tensorflow as tf

def input_fn(repeat=None):
    features = {"x": [[1.0], [2.0]]}
    data = tf.data.Dataset.from_tensor_slices((features, [0, 1]))
    return data.repeat(repeat).batch(2)

estimator = tf.estimator.DNNClassifier(
    [4], [tf.feature_column.numeric_column("x")], model_dir=tempfile.mkdtemp()
)
"""
TRAIN = "estimator.train(input_fn, steps=500)"
EVALUATE = "estimator.evaluate(lambda: input_fn(1))"
BOTH = """
tf.estimator.train_and_evaluate(
    estimator,
    tf.estimator.TrainSpec(input_fn, max_steps=1000),
    tf.estimator.EvalSpec(lambda: input_fn(1)),
)
"""
LOUD = "tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.INFO)"
NATIVE = "os.write(2, b'a line of native code\\n')"


@pytest.fixture(scope="module")
def cells(run_python):
    """Return the lines that each cell shows at its end."""
    cells = [BEGIN, TRAIN, EVALUATE, BOTH, NATIVE, LOUD, TRAIN]
    done = run_python("-c", KERNEL, json.dumps(cells), TF_CPP_MIN_LOG_LEVEL=None)
    texts = list(map(json.loads, done.stdout.splitlines()))
    assert len(texts) == len(cells), (done.stdout[-3000:], done.stderr)
    return [
        # Of a line that is drawn anew, the last version is seen.
        [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n") if line]
        for text in texts
    ]


@pytest.mark.parametrize("index", [1, 3])
def test_a_cell_that_trains_shows_one_bar_and_no_more_than_five_lines(cells, index):
    bars = [line for line in cells[index] if "%|" in line]
    assert len(bars) == 1 and "100%" in bars[0] and "loss=" in bars[0], cells[index]
    assert f"{[0, 500, 0, 1000][index]}/" in bars[0]
    assert len(cells[index]) <= 5


def test_an_evaluation_shows_its_result_only_and_the_import_native_lines(cells):
    # TensorFlow 2.18 and newer ignore the level while they are imported.
    native = r"I\d{4} |WARNING: All log messages before absl"
    assert [line for line in cells[0] if not re.match(native, line)] == []
    assert cells[2] == []


def test_what_native_code_of_the_program_writes_is_shown(cells):
    assert cells[4] == ["a line of native code"]


def test_the_verbosity_of_tensorflow_brings_its_lines_back(cells):
    assert any("INFO:tensorflow:loss = " in line for line in cells[6])
