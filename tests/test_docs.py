"""The documentation is held against the repository: snippets, commands, links, names."""

import re
import shlex

import pytest
from doc_blocks import BLOCKS, PAGES, PYTHON, ROOT

from estimator_runtime.cli import main
from estimator_runtime.config.options import OPTIONS


def shown_commands():
    """Return each of our commands that a block shows, as (where, arguments)."""
    for block in BLOCKS:
        for line in block.text.replace("\\\n", " ").splitlines():
            line = line.removeprefix("$ ")
            if line.startswith("estimator-runtime ") and "[" not in line:
                words = shlex.split(line.split(";")[0].split("&")[0], comments=True)
                yield str(block), words[1:]


def named_commands():
    """Return each of our commands that a sentence names, as (page, arguments)."""
    for page in PAGES:
        for text in re.findall(r"`estimator-runtime (\w[^`]*)`", page.read_text()):
            yield page.name, text.split()


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_a_python_snippet_can_be_parsed(block):
    compile(block.text, str(block), "exec")


@pytest.mark.parametrize("where, arguments", list(shown_commands()))
def test_a_command_in_a_block_is_one_that_the_command_line_takes(where, arguments):
    main.parse(arguments)


@pytest.mark.parametrize("where, arguments", list(named_commands()))
def test_a_command_in_a_sentence_has_options_that_there_are(where, arguments, capsys):
    command = arguments[0]
    with pytest.raises(SystemExit):
        main.parse([command, "--help"])
    options = set(re.findall(r"--[a-z][a-z-]*", capsys.readouterr().out))
    script = next((i for i, x in enumerate(arguments) if x.endswith(".py")), None)
    used = re.findall(r"--[a-z][a-z-]*", " ".join(arguments[:script]))
    assert set(used) <= options, where


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_link_leads_to_a_file_and_a_heading_that_are_there(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(), re.M)
            assert anchor in [_anchor(each) for each in headings], target


def _anchor(heading):
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_each_row_of_the_faults_names_a_test_that_there_is():
    rows = re.findall(r"^\|.* \| `(\S+)`: (.*) \|$", _text("docs/faults.md"), re.M)
    assert len(rows) > 20
    for file, sentence in rows:
        name = "test_" + re.sub(r"[^\w]+", "_", sentence)
        source = (ROOT / "tests" / file).read_text()
        assert f"def {name}(" in source, f"{file} has no {name}"


def test_each_row_of_the_faults_is_whole():
    lines = [x for x in _text("docs/faults.md").splitlines() if x.startswith("|")]
    assert {line.count(" | ") for line in lines if "---" not in line} == {3}


def test_the_health_of_the_image_is_asked_by_a_command_that_there_is():
    text = _text("Dockerfile").replace("\\\n", " ")
    (command,) = re.findall(r"^HEALTHCHECK .*CMD (.*)$", text, re.M)
    name, *arguments = shlex.split(command)
    assert name == "estimator-runtime"
    main.parse(arguments)
    (job,) = re.findall(r"^CMD \[\"sh\", \"-c\", \"(.*)\"\]$", text, re.M)
    program, name, *arguments = shlex.split(job.replace('\\"', '"'))
    assert (program, name) == ("exec", "estimator-runtime")
    assert (ROOT / main.parse(arguments).program[0]).exists()


def test_each_variable_that_may_be_set_is_on_its_page_and_no_other():
    of_processes = {  # that the runtime sets for its own
        *("CHILDREN", "JOB", "JOB_ATTEMPT", "LEGACY_KERAS", "REPORTS"),
    }
    read = {name.upper() for name in OPTIONS}
    for file in (ROOT / "estimator_runtime").rglob("*.py"):
        read |= set(re.findall(r'"ESTIMATOR_RUNTIME_(\w+)"', file.read_text()))
    rows = re.findall(r"^\| (.*?) \|", _text("docs/environment.md"), re.M)
    listed = set(re.findall(r"ESTIMATOR_RUNTIME_(\w+)", " ".join(rows)))
    assert listed == read - of_processes
    assert of_processes < read


def test_an_older_python_is_told_which_one_is_needed(run_python):
    program = (
        "import sys; sys.version_info = (3, 9, 1)\n"
        f"exec(compile(open({str(ROOT / 'setup.py')!r}).read(), 'setup.py', 'exec'))"
    )
    done = run_python("-c", program)
    assert done.returncode == 1
    text = "estimator_runtime needs Python 3.10 to 3.13, and this is 3.9 ("
    assert done.stderr.startswith(text)
    assert "Python 3.10 to 3.13" in "".join(_text("README.md").splitlines()[:12])


def test_each_file_that_the_image_takes_is_there():
    for names in re.findall(r"^COPY (?!--from)(.*) \S+$", _text("Dockerfile"), re.M):
        for name in names.split():
            assert (ROOT / name).exists(), name


def test_the_architecture_names_modules_that_there_are():
    package = ROOT / "estimator_runtime"
    folders = "|".join(each.name for each in package.iterdir() if each.is_dir())
    named = set(re.findall(rf"\b(?:{folders})(?:/\w+)+", _text("docs/architecture.md")))
    assert {"launch/job", "estimator/seam", "checkpoint/restore/recovery"} <= named
    gone = [
        name
        for name in named
        if not (package / name).is_dir() and not (package / f"{name}.py").exists()
    ]
    assert gone == []


def test_the_exit_statuses_of_the_docs_are_those_of_the_help():
    explained = re.findall(r"^  (\d[\d, ]*)  ", main.parsers()[0].epilog, re.M)
    listed = re.findall(r"^\| ([\d, ]+) \|", _text("docs/command_line.md"), re.M)
    of_signals = "129, 130, 138, 140, 143, 152"
    assert listed == explained == ["0", "1", "2", "3", of_signals]


def _text(name):
    return (ROOT / name).read_text()
