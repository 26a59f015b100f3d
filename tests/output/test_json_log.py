"""Log lines as JSON objects, with the time and the stream passed in."""

import io
import json
import subprocess
import sys

from estimator_runtime.output.json_log import JsonStream


def test_a_line_becomes_an_object_when_it_is_complete():
    out = io.StringIO()
    stream = JsonStream(out, "worker 1", clock=lambda: 12.5)
    assert stream.write("INFO:tensorflow:loss = 3\nthe sta") == 32
    line = {"time": 12.5, "task": "worker 1", "level": "info"}
    first = {**line, "message": "INFO:tensorflow:loss = 3"}
    assert out.getvalue() == f"{json.dumps(first)}\n"
    stream.flush()
    stream.writelines(["rt", " of a line"])
    stream.end_line()
    stream.end_line()
    objects = [json.loads(each) for each in out.getvalue().splitlines()]
    assert objects == [first, {**line, "message": "the start of a line"}]
    assert not stream.isatty() and stream.encoding == out.encoding


def test_both_streams_of_a_process_write_objects_and_its_children_write_text():
    program = (
        "import os, sys\n"
        "from estimator_runtime.output import json_log\n"
        "json_log.start('main')\n"
        "print('a', end='')\n"
        "if not os.fork():\n"
        "    print('of the child')\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "os.system('echo text')\n"
        "print('b', file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr
    of_child, text, rest = done.stdout.splitlines()
    assert json.loads(of_child)["message"] == "of the child" and text == "text"
    assert json.loads(rest)["message"] == "a"
    assert json.loads(done.stderr)["message"] == "b"
