"""Log lines as JSON objects, with the time and the stream passed in."""

import io
import json

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
