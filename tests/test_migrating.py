"""Each error of docs/migrating.md is met by plain python, and not under the runtime."""

import os
import pathlib
import re
import subprocess
import sys

import pytest
import tensorflow as tf

from estimator_runtime.compat import versions

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "migrating.md"
NEW = versions.parse(tf.__version__) >= (2, 16)


def sections():
    """Give (heading, program, message) of each error."""
    pattern = r"^## (.+?)\n.*?^```python\n(.*?)^```\n\n```\n(.*?)\n```\n"
    return re.findall(pattern, PAGE.read_text(), re.M | re.S)


def run(*command, cwd):
    # Without what install() of this process left for its children.
    inherited = {k: v for k, v in os.environ.items() if k != "TF_USE_LEGACY_KERAS"}
    return subprocess.run(
        [sys.executable, "-W", "ignore", *command, "program.py"],
        cwd=cwd,
        env={**inherited, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=200,
    )


def test_every_heading_but_the_last_has_a_program_and_a_message():
    headings = re.findall(r"^## (.+)$", PAGE.read_text(), re.M)
    assert [heading for heading, _, _ in sections()] == headings[:-1]
    assert len(headings) > 8


@pytest.mark.parametrize(
    "program, message", [pytest.param(p, m, id=h) for h, p, m in sections()]
)
def test_plain_python_says_so_and_the_runtime_runs_it(program, message, tmp_path):
    (tmp_path / "program.py").write_text(program)
    if NEW:
        plain = run(cwd=tmp_path)
        assert plain.returncode == 1
        # Line by line: a path is wherever TensorFlow is installed.
        expected = re.escape(message).replace(r"\.\.\.", r"\S+")
        assert re.search(f"(?:^|\n){expected}\n?$", plain.stderr), plain.stderr
    done = run("-m", "estimator_runtime", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
