"""A job on Ray in a folder in which anybody may have left a json.py: none of it is run."""

import json
import re
import subprocess
import sys

_ENTRY_POINT = (
    "import sys\nfrom estimator_runtime.cli.main import main\nsys.exit(main())\n"
)
_PACKAGES = ("numpy", "ray", "setproctitle", "tensorflow", "tqdm", "wrapt")


def _path_of(command, folder):
    done = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout
    return json.loads(re.search(r"path (\[.*\])$", done.stdout, re.M)[1])


def test_a_job_imports_nothing_from_the_current_folder(cluster, tmp_path):
    marks, command = tmp_path / "marks", tmp_path / "bin" / "estimator-runtime"
    script, folder = tmp_path / "scripts" / "show.py", tmp_path / "hostile"
    for each in (command.parent, script.parent, folder):
        each.mkdir()
    command.write_text(_ENTRY_POINT)
    script.write_text("import json, sys\nprint('path', json.dumps(sys.path))\n")
    for name in {*sys.stdlib_module_names, *_PACKAGES, "estimator_runtime"}:
        text = f"open({str(marks)!r}, 'a').write(__name__ + '\\n')\n"
        (folder / f"{name}.py").write_text(text)
    options = ("--backend", "ray", "--ray-address", cluster.address, "--workers", "0")
    ours = (sys.executable, command, "run", *options, script)
    path = _path_of(ours, folder)
    assert not marks.exists(), marks.read_text()
    assert path == _path_of((sys.executable, script), folder)
