"""Each error of docs/migrating.md is met by plain python, and not under the runtime."""

import ast
import json
import pathlib
import re

import pytest
import tensorflow as tf

import estimator_runtime
from estimator_runtime.tf_internals import versions

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "migrating.md"
NEW = versions.parse(tf.__version__) >= (2, 16)


def sections():
    """Return (heading, program, message) of each error; most headings are the message."""
    pattern = r"^## (.+?)\n.*?^```python\n(.*?)^```\n(?:\n```\n(.*?)\n```\n)?"
    found = re.findall(pattern, PAGE.read_text(), re.M | re.S)
    return [(heading, program, said or heading) for heading, program, said in found]


def still_errors():
    """Return (what the program says, message, what to write) of each row of the table."""
    _, text = PAGE.read_text().split("\n## Still an error\n")
    return re.findall(r"^\| `(.+?)` \| `(.+?)` \| `(.+?)` \|$", text, re.M)


def without_hint(text):
    # Python 3.9 gives none.
    return re.sub(r"\. Did you mean: '\w+'\?", "", text)


def test_every_heading_but_the_last_four_has_a_program_and_a_message():
    headings = re.findall(r"^## (.+)$", PAGE.read_text(), re.M)
    assert headings[-4:] == [
        "Still an error",
        "Errors of this runtime",
        "Libraries for Estimators",
        "Not errors, but different",
    ]
    assert [heading for heading, _, _ in sections()] == headings[:-4]
    assert len(headings) > 8


def test_each_error_of_this_runtime_is_one_that_it_has():
    _, text = PAGE.read_text().split("\n## Errors of this runtime\n")
    rows = re.findall(r"^\| (.*?`.*?) \| .+ \| .+ \|$", re.split("\n##", text)[0], re.M)
    package = pathlib.Path(estimator_runtime.__file__).parent
    known = "\n".join(
        node.value
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    assert len(rows) == 9
    for row in rows:
        for part in re.findall("`(.+?)`", row):
            assert part in known, row


@pytest.mark.parametrize(
    "program, message", [pytest.param(p, m, id=h) for h, p, m in sections()]
)
def test_plain_python_says_so_and_the_runtime_runs_it(
    program, message, run_python, run_script, tmp_path
):
    (tmp_path / "program.py").write_text(program)
    if NEW:
        plain = run_python("-W", "ignore", "program.py", cwd=tmp_path)
        assert plain.returncode == 1
        # Line by line: a path is wherever TensorFlow is installed.
        expected = re.escape(without_hint(message)).replace(r"\.\.\.", r"\S+")
        said = without_hint(plain.stderr)
        assert re.search(f"(?:^|\n){expected}\n?$", said), plain.stderr
    done = run_script("program.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


# All rows in one process, as a row does nothing to the next.
OF_THE_TABLE = """
import json
import tensorflow as tf

for row in json.load(open("rows.json")):
    for code in row:
        try:
            exec(code)
            said = None
        except (AttributeError, ImportError) as e:
            said = f"{type(e).__name__}: {e}"
        print("SAID", json.dumps(said))
"""


def test_what_is_still_an_error_is_so_and_what_to_write_is_not(run_script, tmp_path):
    rows = still_errors()
    _, text = PAGE.read_text().split("\n## Still an error\n")
    assert len(rows) == text.split("\n## ")[0].count("\n| `")
    codes = [(old, new) for old, _, new in rows]
    (tmp_path / "rows.json").write_text(json.dumps(codes))
    (tmp_path / "program.py").write_text(OF_THE_TABLE)
    done = run_script("program.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = [json.loads(x) for x in re.findall(r"^SAID (.*)$", done.stdout, re.M)]
    assert said[1::2] == [None] * len(rows)
    if NEW:
        found = [without_hint(str(x)) for x in said[::2]]
        assert found == [message for _, message, _ in rows]
    else:
        assert None not in said[::2]
