"""The chores of this repository, each in an environment of its own.

    nox -s main_job     train the example on real data, to a held-out accuracy
    nox -s tests        run the fast tests, and one job of each kind, on TensorFlow 2.21
    nox -s quick        run the unit tests and the files given, in an environment kept
    nox -s tests_all    run all tests on TensorFlow 2.21 and 2.15
    nox -s gpu          run the tests that need a GPU
    nox -s coverage     print the statements that the tests run, by package
    nox -s smoke        train one model of each kind on TensorFlow 2.15 to 2.21
    nox -s nightly      apply the patches to TensorFlow's nightly build, and train there
    nox -s lint         check style and types
    nox -s reference    write the pages of docs/ that are made from the code
    nox -s docs         build the site in build/site, from README.md and docs/
    nox -s release      build the sdist and the wheel in dist/, check and try them

What follows `--` goes to the example or to pytest: `nox -s tests -- -k session`.
`nox -R -s ...` keeps the environment of the last time, as it was installed then.
"""

import configparser
import os
import pathlib
import shutil
import sys

import nox

nox.needs_version = ">=2026.10.20"  # Pinned in constraints/dev.txt.
nox.options.sessions = ["lint", "tests"]
# pip everywhere: what uv makes of the constraint files is not tested.
nox.options.default_venv_backend = "virtualenv"
# Only the Pythons of this machine, and a missing one is no failure, on CI neither.
nox.options.download_python = "never"
nox.options.error_on_missing_interpreters = False

# Where the newest tested TensorFlow has wheels, first to last.
NEWEST_TENSORFLOW = "2.21"
NEWEST_TENSORFLOW_PYTHONS = ((3, 10), (3, 13))
# What some tests use if it is there: dependencies of programs, not of the package.
OPTIONAL = ("pandas", "matplotlib")
# TensorFlow and Python for the smoke test; constraints/ has a file for each TensorFlow.
SMOKE = [
    *(("2.15", python) for python in ("3.10", "3.11")),
    *((f"2.{minor}", "3.11") for minor in range(16, 21)),
    *((f"2.{minor}", "3.12") for minor in range(16, 21)),
    *(("2.21", python) for python in ("3.10", "3.11", "3.12", "3.13")),
]


def check_python(session):
    """End the session with one clear line if this Python cannot have TensorFlow."""
    first, last = NEWEST_TENSORFLOW_PYTHONS
    current = sys.version_info[:2]
    if not first <= current <= last:
        session.error(
            "TensorFlow {} needs Python {}.{} to {}.{}, and nox runs on {}.{}; make "
            ".venv with one of those".format(NEWEST_TENSORFLOW, *first, *last, *current)
        )


def install_package(session, tensorflow, requirement):
    """Install the package as a user would, with the pinned versions of a TensorFlow.

    Not editable: the tests and the example import what was installed, so a module
    that setup.cfg forgets to package is found here and not by the first user.
    """
    # Whatever an earlier build left there would be packaged again.
    shutil.rmtree("build/lib", ignore_errors=True)
    pins = f"--constraint=constraints/tf-{tensorflow}.txt"
    # Constraints do not reach pip's isolated builds: build with the pinned setuptools.
    session.install(pins, "setuptools")
    session.install(pins, "--no-build-isolation", requirement)


@nox.session
def main_job(session):
    """Train the example on real data, to a held-out accuracy that it prints."""
    check_python(session)
    install_package(session, NEWEST_TENSORFLOW, ".")
    session.run(
        "estimator-runtime",
        "run",
        "examples/digits.py",
        "--model_dir=build/digits",  # A later --model_dir among the others wins.
        *session.posargs,
    )


def install_tests(session, tensorflow, *others):
    """Install the package and what its tests use, and other packages."""
    install_package(session, tensorflow, ".[tests,ray]")
    if others:
        session.install(f"--constraint=constraints/tf-{tensorflow}.txt", *others)


@nox.session
def tests(session):
    """Run the fast tests and one job of each kind, on the newest TensorFlow.

    Arguments replace the selection: `nox -s tests -- tests/launch` runs all of launch.
    """
    check_python(session)
    # Without pandas and matplotlib, which are no dependencies: Keras imports them where
    # it finds them, a fifth of the time that `import tensorflow` takes.
    install_tests(session, NEWEST_TENSORFLOW)
    selected = session.posargs or ("-m", "(unit or graph or smoke) and not weekly")
    # The program, not `python -m pytest`, which puts the checkout first on sys.path.
    # A process that is done takes tests over from another: they differ a hundredfold.
    session.run("pytest", "--numprocesses=auto", "--dist=worksteal", *selected)


@nox.session(reuse_venv=True)
def quick(session):
    """Run the unit tests, then the files given, in an environment that is kept.

    The checkout itself is tested. The environment is made again when a pinned version
    or setup.cfg has changed.
    """
    check_python(session)
    pins = pathlib.Path(f"constraints/tf-{NEWEST_TENSORFLOW}.txt")
    wanted = pins.read_text() + pathlib.Path("setup.cfg").read_text()
    stamp = pathlib.Path(session.virtualenv.location) / "installed-from"
    if not stamp.exists() or stamp.read_text() != wanted:
        install_tests(session, NEWEST_TENSORFLOW, *OPTIONAL)
        session.run("pip", "uninstall", "--quiet", "--yes", "estimator_runtime")
        stamp.write_text(wanted)
    path = os.pathsep.join(filter(None, (os.getcwd(), os.environ.get("PYTHONPATH"))))
    parallel = ("--numprocesses=auto", "--dist=worksteal")
    session.run("pytest", "-q", "-m", "unit", *parallel, env={"PYTHONPATH": path})
    if session.posargs:
        session.run("pytest", *session.posargs, env={"PYTHONPATH": path})


@nox.session
@nox.parametrize(
    "python,tensorflow",
    [
        nox.param(None, NEWEST_TENSORFLOW, id=f"TensorFlow {NEWEST_TENSORFLOW}"),
        # A range: nox's own Python if that fits, else one found on this machine,
        # else nox skips the session and says which Pythons it looked for.
        nox.param(">=3.10,<3.12", "2.15", id="TensorFlow 2.15"),
    ],
)
def tests_all(session, tensorflow):
    """Run all tests: on TensorFlow 2.15 those that could differ there."""
    is_newest = tensorflow == NEWEST_TENSORFLOW
    if is_newest:
        check_python(session)
    install_tests(session, tensorflow, *OPTIONAL)
    tiers = () if is_newest else ("-m", "smoke or not newest")
    parallel = ("--numprocesses=logical", "--dist=loadgroup")
    session.run("pytest", *parallel, *tiers, *session.posargs)


@nox.session
def gpu(session):
    """Run the tests that need a GPU, with NVIDIA's libraries."""
    check_python(session)
    install_package(session, NEWEST_TENSORFLOW, ".[tests,gpu]")
    session.run("pytest", "tests/gpu", *session.posargs)


@nox.session
def coverage(session):
    """Run CI's tests on TensorFlow 2.21, and print statement coverage by package.

    Includes child processes, except killed ones. Tests that fail do not fail the
    session, because some depend on how a process starts, ends or takes its time.
    """
    check_python(session)
    install_tests(session, NEWEST_TENSORFLOW, *OPTIONAL)
    session.install("--constraint=constraints/dev.txt", "coverage")
    folder = pathlib.Path("build/coverage").resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    # Each Python process of this environment that has these variables is measured.
    env = {
        "COVERAGE_PROCESS_START": str(pathlib.Path("setup.cfg").resolve()),
        "COVERAGE_FILE": str(folder / "data"),
    }
    selected = session.posargs or ("-m", "not weekly")
    parallel = ("--numprocesses=logical", "--dist=loadgroup")
    session.run("pytest", *parallel, *selected, env=env, success_codes=[0, 1])
    session.run("coverage", "combine", "--quiet", env=env)
    report = folder / "report.json"
    session.run("coverage", "json", "--quiet", "-o", str(report), env=env)
    session.run("python", "tools/coverage_by_package.py", str(report))


@nox.session
@nox.parametrize(
    "python,tensorflow",
    [
        nox.param(python, tensorflow, id=f"TensorFlow {tensorflow}, Python {python}")
        for tensorflow, python in SMOKE
    ],
)
def smoke(session, tensorflow):
    """Run the smoke test on one TensorFlow and Python."""
    install_package(session, tensorflow, ".[tests]")
    session.run("pytest", "tests/smoke", *session.posargs)


@nox.session
def nightly(session):
    """Name the patches that fail on TensorFlow's nightly build; then train there."""
    setup = configparser.ConfigParser()
    setup.read("setup.cfg")
    wanted = setup["options"]["install_requires"].splitlines()
    # setup.cfg asks for tested versions of these two.
    others = [
        each for each in wanted if not each.startswith(("tensorflow>", "tf-keras"))
    ]
    session.install("tf-nightly", "tf-keras-nightly", *filter(None, others))
    session.install("pytest<9.2", "pytest-timeout", "pytest-xdist")
    session.install("--no-deps", ".")
    session.run("python", "tools/patches.py")
    session.run("pytest", "tests/smoke", "tests/tf_internals")


@nox.session
def lint(session):
    """Check style and types; `ruff format .` and `ruff check --fix .` mend most."""
    session.install("--constraint=constraints/dev.txt", "ruff", "mypy")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")


@nox.session
def reference(session):
    """Write the pages of docs/ that are made from docstrings and tables."""
    check_python(session)
    install_package(session, NEWEST_TENSORFLOW, ".")
    session.run("python", "docs/run_config.py")
    session.run("python", "docs/command_line.py")
    session.run("python", "docs/life_of_a_task.py")


@nox.session
def docs(session):
    """Build the site in build/site; a warning or a broken link fails."""
    session.install(
        *("--constraint=constraints/release.txt", "mkdocs-material"),
        "mkdocstrings[python]",
    )
    # The pages link to files beside docs/, so the source has the repository's layout.
    source = pathlib.Path("build/site-source")
    shutil.rmtree(source, ignore_errors=True)
    for folder in ("docs", "examples", "benchmarks"):
        shutil.copytree(
            folder, source / folder, ignore=shutil.ignore_patterns("__pycache__")
        )
    pages = ("README", "CHANGELOG", "CODE_OF_CONDUCT", "CONTRIBUTING", "SECURITY")
    for file in (*(f"{page}.md" for page in pages), "Dockerfile", "LICENSE"):
        shutil.copy(file, source)
    session.run("mkdocs", "build", "--strict", "--site-dir=build/site")


@nox.session
def release(session):
    """Build the sdist, and the wheel from it; check and try both in a clean folder."""
    check_python(session)
    pins = f"--constraint=constraints/tf-{NEWEST_TENSORFLOW}.txt"
    session.install("--constraint=constraints/release.txt", "build", "twine")
    session.install(pins, "setuptools")
    # What an earlier build has listed there would be packed again.
    shutil.rmtree("estimator_runtime.egg-info", ignore_errors=True)
    shutil.rmtree("dist", ignore_errors=True)
    # `build` makes the wheel from the sdist that it has unpacked, not from the clone.
    session.run("python", "-m", "build", "--no-isolation")
    session.run("twine", "check", "--strict", *map(str, pathlib.Path("dist").iterdir()))
    (sdist,) = pathlib.Path("dist").glob("*.tar.gz")
    (wheel,) = pathlib.Path("dist").glob("*.whl")
    session.install(pins, f"estimator_runtime[tests] @ {wheel.resolve().as_uri()}")
    folder = pathlib.Path(session.create_tmp())
    shutil.rmtree(folder)
    shutil.unpack_archive(sdist, folder)
    session.chdir(folder / sdist.name.removesuffix(".tar.gz"))
    # Some of the sdist's own tests, of the wheel: real jobs, and recorded data.
    tests = session.posargs or (
        *("tests/smoke", "tests/test_release.py", "tests/config"),
        *("tests/checkpoint/tensor_bundle", "tests/benchmarks/test_harness.py"),
    )
    session.run("pytest", "-q", *tests)
