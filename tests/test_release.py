"""What a release has in it, from MANIFEST.in, setup.cfg and setup.py."""

import configparser
import pathlib
import re
import subprocess

import pytest
from setuptools.command.egg_info import FileList

import estimator_runtime

from distutils.core import run_setup  # isort: skip

ROOT = pathlib.Path(__file__).parents[1]


def test_the_sdist_has_each_file_of_the_repository_and_no_other(monkeypatch):
    monkeypatch.chdir(ROOT)
    if not pathlib.Path(".git").exists():
        pytest.skip("not in a clone")
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(
        listing, capture_output=True, text=True, check=True, timeout=30
    )
    files = FileList()
    for line in pathlib.Path("MANIFEST.in").read_text().splitlines():
        if not line.startswith("#"):
            files.process_template_line(line)
    assert sorted(set(files.files)) == sorted(
        name for name in done.stdout.splitlines() if pathlib.Path(name).exists()
    )


def test_the_page_of_the_package_index_links_only_to_what_it_can_show(monkeypatch):
    monkeypatch.chdir(ROOT)
    page = run_setup("setup.py", stop_after="config").metadata.long_description
    readme = pathlib.Path("README.md").read_text()
    links = re.findall(r"\]\((.*?)\)", readme)
    assert re.findall(r"\]\((.*?)\)", page) == [x for x in links if x[:4] == "http"]
    headings = re.compile(r"^#+ .*", re.M)
    assert headings.findall(page) == headings.findall(readme)


def test_the_conda_recipe_requires_what_the_package_does():
    # setuptools writes the sdist's setup.cfg anew, without comments and with tabs.
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(ROOT / "setup.cfg")
    listed = setup["options"]["install_requires"].split("\n")
    required = [line for line in listed if line and line[0] != "#"]
    recipe = pathlib.Path(ROOT / "tools/conda/recipe.yaml").read_text()
    (run,) = re.findall(r"^  run:\n((?:    - .*\n)+)", recipe, re.M)
    packages = [line[6:].replace(" ", "") for line in run.splitlines()]
    assert packages == ["python>=${{python_min}}", "__linux", *required]
    assert f'version: "{estimator_runtime.__version__}"' in recipe
