"""A program under `estimator-runtime run` and under plain python, side by side.

Every program here is run twice, by real processes, and what plain python does is the
expectation. None needs TensorFlow, and none may find it imported.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import textwrap

import pytest

import estimator_runtime

PLAIN = [sys.executable]
OURS = [sys.executable, "-m", "estimator_runtime", "run"]
TIMEOUT_SECS = 60


def environment(**extra):
    root = pathlib.Path(estimator_runtime.__file__).parents[1]
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name != "TF_CONFIG" and not name.startswith("PYTHON")
    }
    return {**inherited, "PYTHONPATH": str(root), **extra}


def run(command, folder, *, stdin=b"", stderr=subprocess.PIPE, **variables):
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(**variables),
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=stderr,
        timeout=TIMEOUT_SECS,
    )
    return done.returncode, done.stdout, done.stderr


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")


# What plain `python -m` adds to a traceback: the frames of runpy.
RUNPY_FRAME = re.compile(
    rb'  File "(?:<frozen runpy>|[^"]*/runpy\.py)", line .*\n(?:    .*\n)*'
)

# Ends each program that gets to its last line.
NO_TENSORFLOW = "import sys; assert 'tensorflow' not in sys.modules\n"

SCRIPTS = {
    "arguments": """
        import sys
        print(sys.argv)
        """,
    "names in __main__": """
        import sys
        shown = {n: v for n, v in globals().items() if not n.startswith("__loader")}
        print(shown, sys.modules["__main__"].__dict__ is globals())
        print(type(__loader__), __loader__.name, __loader__.path)
        """,
    "exception": """
        print("before")
        def f():
            return 1 / 0
        f()
        """,
    "one of our errors": """
        from estimator_runtime.errors import ConfigError
        raise ConfigError("mine")
        """,
    "exit 3": "import sys; sys.exit(3)",
    "exit with a message": """
        print("out")
        raise SystemExit("the reason")
        """,
    "keyboard interrupt": """
        import atexit
        atexit.register(print, "at exit")
        print("out")
        def f():
            raise KeyboardInterrupt
        f()
        """,
    "excepthook": """
        import sys, traceback
        def hook(kind, error, tb):
            print(kind, error, traceback.extract_tb(tb), sys.exc_info())
            print(error.__traceback__ is tb, sys.last_value is error)
        sys.excepthook = hook
        1 / 0
        """,
    "exit handlers": """
        import atexit, sys
        atexit.register(lambda: print(sys.argv, sys.modules["__main__"].value))
        value = "still here"
        1 / 0
        """,
    "thread that outlives the script": """
        import pickle, sys, threading
        class Point: ...
        main = threading.main_thread()
        def late():
            main.join()
            print(pickle.loads(pickle.dumps(Point())).__class__, sys.argv)
        threading.Thread(target=late).start()
        print("last line")
        """,
    "pickle": """
        import dataclasses, pickle
        @dataclasses.dataclass(frozen=True)
        class Point:
            x: int
            y: "int" = 2
        print(pickle.loads(pickle.dumps(Point(1))), pickle.dumps(Point(1)))
        """,
    "source of a function and a class": """
        import inspect, linecache
        def f():
            return "source"
        class C:
            def method(self): ...
        print(inspect.getsource(f), inspect.getsource(C), inspect.getsourcefile(f))
        print(inspect.getmodule(f), linecache.getline(__file__, 2))
        """,
    "fork": """
        import multiprocessing
        class Point:
            def __init__(self, x):
                self.x = x
        def move(point):
            return Point(point.x + 1)
        with multiprocessing.get_context("fork").Pool(1) as pool:
            print(pool.map(move, [Point(1)])[0].x)
        """,
    "spawn": """
        import multiprocessing
        class Point:
            def __init__(self, x):
                self.x = x
        def move(point):
            import sys
            assert "tensorflow" not in sys.modules
            return Point([point.x, __name__, sys.argv, sys.path, __file__])
        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(move, [Point(1)])[0].x)
        """,
    "standard input": """
        import sys
        print(input(), sys.stdin.read())
        """,
    "unicode": "print('größer → 大'); raise ValueError('größer → 大')",
    "change of folder": """
        import os
        os.chdir("/")
        raise ValueError(__file__)
        """,
    "import of a neighbour": """
        import neighbour
        print(neighbour.__name__, neighbour.__file__)
        neighbour.fail()
        """,
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_does_what_it_does_under_plain_python(name, tmp_path):
    script = tmp_path / "train.py"
    text = textwrap.dedent(SCRIPTS[name])
    script.write_bytes(f"{text}\n{NO_TENSORFLOW}".encode())
    write(
        tmp_path,
        {
            "neighbour.py": "def fail():\n    raise LookupError('neighbour')\n",
        },
    )
    command = ["train.py", "--steps=3", "input file"]
    options = {"stdin": b"one\ntwo\n", "PYTHONDONTWRITEBYTECODE": "1"}
    expected = run([*PLAIN, *command], tmp_path, **options)
    assert run([*OURS, *command], tmp_path, **options) == expected


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["-m", "other"],
        ["--"],
        ["--", "--", "a", "--"],
        ["run", "-h"],
        ["--no-such-option", "-x", "-1"],
        ["", " ", "-", "größer", "a=b", "@file", "*"],
    ],
)
@pytest.mark.parametrize("program", [["train.py"], ["-m", "train"]])
def test_what_follows_the_program_is_its_own(program, arguments, tmp_path):
    write(tmp_path, {"train.py": "import sys; print(ascii(sys.argv))"})
    command = [*program, *arguments]
    assert run([*OURS, *command], tmp_path) == run([*PLAIN, *command], tmp_path)


@pytest.mark.parametrize(
    "path",
    [
        "job/train.py",
        "job/../job/train.py",
        "{folder}/job/train.py",
        "link.py",
        "job/größer script",
    ],
)
@pytest.mark.parametrize("safe_path", ["", "1"])
def test_a_script_is_named_and_finds_its_neighbours_by_any_path(
    path, safe_path, tmp_path
):
    text = """
        import sys
        print(sys.argv, sys.path, __file__, __loader__.path)
        import neighbour
        neighbour.fail()
        """
    write(
        tmp_path,
        {
            "job/train.py": text,
            "job/größer script": text,
            "job/neighbour.py": "def fail():\n    1 / 0\n",
        },
    )
    (tmp_path / "link.py").symlink_to("job/train.py")
    path = path.format(folder=tmp_path)
    expected = run([*PLAIN, path], tmp_path, PYTHONSAFEPATH=safe_path)
    assert run([*OURS, path], tmp_path, PYTHONSAFEPATH=safe_path) == expected


PACKAGE = {
    "package/__init__.py": "import sys; print('parent', sys.argv)",
    "package/__main__.py": """
        from . import sibling
        print(sibling.NAME, __package__, __spec__.name)
        """,
    "package/sibling.py": "NAME = 'sibling'",
    "package/train.py": """
        import pickle, sys
        from package.sibling import NAME
        class Point: ...
        print(NAME, pickle.dumps(Point()), sys.argv, sys.path)
        hidden = ("__loader__", "__builtins__", "__spec__", "hidden")
        print({n: v for n, v in globals().items() if n not in hidden})
        print(__spec__.name, __spec__.origin, __spec__.loader is __loader__)
        print(__builtins__, sys.modules["__main__"].__dict__ is globals())
        """,
    "package/fails.py": "def f():\n    return 1 / 0\nf()\n",
    "package/spawns.py": """
        import multiprocessing, sys
        class Point: ...
        def where(_):
            return __name__, __spec__.name, Point, sys.argv
        if __name__ == "__main__":
            pool = multiprocessing.get_context("spawn").Pool(1)
            print(pool.map(where, [Point()]), flush=True)
            pool.close()
            pool.join()
        """,
    "needy/__init__.py": "import no_such_dependency",
    "needy/train.py": "",
}


@pytest.mark.parametrize(
    "module",
    [
        "package",
        "package.train",
        "package.fails",
        "package.spawns",
        "needy.train",
    ],
)
@pytest.mark.parametrize("safe_path", ["", "1"])
def test_a_module_does_what_it_does_under_plain_python(module, safe_path, tmp_path):
    write(tmp_path, PACKAGE)
    command = ["-m", module, "--steps", "-m"]
    variables = {"PYTHONDONTWRITEBYTECODE": "1"}
    if safe_path:
        root = environment()["PYTHONPATH"]
        variables |= {"PYTHONSAFEPATH": "1", "PYTHONPATH": f"{root}:{tmp_path}"}
    status, output, errors = run([*PLAIN, *command], tmp_path, **variables)
    expected = status, output, RUNPY_FRAME.sub(b"", errors)
    assert run([*OURS, *command], tmp_path, **variables) == expected


def test_ctrl_c_ends_the_process_by_the_signal(tmp_path):
    write(
        tmp_path,
        {
            "train.py": """
                import atexit, signal
                atexit.register(print, "at exit")
                signal.raise_signal(signal.SIGINT)
                """
        },
    )
    # A shell starts its background jobs with the signal ignored, and we inherit that.
    usual = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        expected = run([*PLAIN, "train.py"], tmp_path)
        found = run([*OURS, "train.py"], tmp_path)
    finally:
        signal.signal(signal.SIGINT, usual)
    assert expected[:2] == (-signal.SIGINT, b"at exit\n")
    assert found == expected


def test_a_compiled_script_runs(tmp_path):
    write(tmp_path, {"train.py": "print(__file__, type(__loader__))\n1 / 0\n"})
    compiling = "import py_compile; py_compile.compile('train.py', 'train.pyc')"
    assert run([*PLAIN, "-c", compiling], tmp_path) == (0, b"", b"")
    expected = run([*PLAIN, "train.pyc"], tmp_path)
    assert run([*OURS, "train.pyc"], tmp_path) == expected
