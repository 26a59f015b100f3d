"""What the process behind the standard streams hides, passes on and makes of JSON."""

import contextlib
import json
import os
import pty
import subprocess
import sys
import threading

import pytest

from estimator_runtime.output import relay

# As TensorFlow 2.21 and 2.15 write it; the second word of the URL varies.
OF_2_21 = """\
W0000 00:00:1795578705.020689   22089 type_inference.cc:340] Type inference failed. This indicates an invalid graph that escaped type checking. Error message: INVALID_ARGUMENT: expected compatible input types, but input 1:
goo.gle/debugonly  \n\
type_id: TFT_OPTIONAL
args {
  type_id: TFT_PRODUCT
  args {
    type_id: TFT_TENSOR
    args {
      type_id: TFT_INT64
    }
  }
}
 is neither a subtype nor a supertype of the combined inputs preceding it:
goo.gle/debugstr    \n\
type_id: TFT_OPTIONAL
args {
  type_id: TFT_PRODUCT
  args {
    type_id: TFT_TENSOR
    args {
      type_id: TFT_INT32
    }
  }
}

\tfor Tuple type infernce function 0
\twhile inferring type of node 'dnn/zero_fraction/cond/output/_18'
"""  # fmt: skip
OF_2_15 = OF_2_21.replace(
    OF_2_21.partition("]")[0],
    "2026-11-25 03:51:37.151516: W tensorflow/core/common_runtime/type_inference.cc:339",
).replace("goo.gle/debugonly  \n", "")
ABOUT_GPU = [
    "2026-11-25 03:51:34.172951: E external/local_xla/xla/stream_executor/cuda/cuda_dnn.cc:9261] Unable to register cuDNN factory: Attempting to register factory for plugin cuDNN when one has already been registered",
    "2026-11-25 03:51:34.173017: E external/local_xla/xla/stream_executor/cuda/cuda_fft.cc:607] Unable to register cuFFT factory: Attempting to register factory for plugin cuFFT when one has already been registered",
    "2026-11-25 03:51:35.187248: W tensorflow/compiler/tf2tensorrt/utils/py_utils.cc:38] TF-TRT Warning: Could not find TensorRT",
    "E0000 00:00:1795578704.207837   22089 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: UNKNOWN ERROR (303)",
]  # fmt: skip
NOISE = (
    "I0000 00:00:1795578814.8   29161 port.cc:153] oneDNN custom operations are on. "
)


@pytest.mark.parametrize("message", [OF_2_21, OF_2_15])
def test_a_message_about_types_is_hidden_whole_and_what_follows_is_not(message):
    noise = relay.NoiseFilter(expects_gpu=False)
    lines = message.splitlines()
    assert len(lines) in (26, 27)
    assert [each for each in lines if not noise.hides(each)] == []
    assert not noise.hides("}") and not noise.hides("")


def test_a_line_of_the_program_within_such_a_message_is_shown():
    noise = relay.NoiseFilter(expects_gpu=False)
    header, *_ = OF_2_15.splitlines()
    assert noise.hides(header) and noise.hides("args {")
    assert not noise.hides("loss is 3")
    assert not noise.hides("}")


def test_the_node_below_a_line_is_hidden_with_it_and_shown_with_one_that_is_shown():
    noise = relay.NoiseFilter(expects_gpu=False)
    start = (
        "W0000 00:00:1795693724.1   12 local_rendezvous.cc:412] Local rendezvous is "
    )
    node = "\t [[{{node IteratorGetNext}}]]"
    assert noise.hides(f"{start}aborting with status: CANCELLED: Enqueue operation was cancelled")  # fmt: skip
    assert noise.hides(node)
    assert not noise.hides(f"{start}aborting with status: NOT_FOUND: nofile.csv")
    assert not noise.hides(node)


@pytest.mark.parametrize("line", ABOUT_GPU)
def test_that_there_is_no_gpu_is_hidden_unless_one_is_expected(line):
    assert relay.NoiseFilter(expects_gpu=False).hides(line)
    assert not relay.NoiseFilter(expects_gpu=True).hides(line)


@pytest.mark.parametrize(
    "line",
    [
        "2026-11-25 03:51:37.1: W tensorflow/core/x.cc:3] Could not find TensorRT",
        "E0000 00:00:1795578704.2   22089 local_rendezvous.cc:407] Local rendezvous is aborting with status: INVALID_ARGUMENT: bad",
        "Type inference failed. This indicates an invalid graph",
    ],
)  # fmt: skip
def test_another_line_passes(line):
    assert not relay.NoiseFilter(expects_gpu=False).hides(line)


def run(program, task=None, **options):
    start = (
        "import os, sys, time\n"
        "from estimator_runtime.output import relay\n"
        f"assert relay.start(task={task!r}, hides_noise=True, expects_gpu=False)\n"
        f"NOISE = {NOISE!r}\n"
    )
    return subprocess.run(
        [sys.executable, "-c", start + program],
        capture_output=True,
        timeout=30,
        **options,
    )


@contextlib.contextmanager
def running(program, **pipes):
    """Run a program beside the test, for 30 s at most."""
    with subprocess.Popen(
        [sys.executable, "-c", program], stderr=subprocess.PIPE, **pipes
    ) as process:
        timer = threading.Timer(30, process.kill)
        timer.start()
        try:
            yield process
        finally:
            timer.cancel()


def test_what_native_code_writes_passes_but_for_the_noise_which_is_counted():
    done = run(
        "os.write(2, f'one\\n{NOISE}\\ntwo\\n'.encode())\n"
        "assert relay.sync(20) == 1\n"
        "print('three', file=sys.stderr)\n"
        "os.write(2, b'the start of a line')\n"
        "time.sleep(0.3)\n"
        "os.write(2, f' and {NOISE}\\n'.encode())\n"
        "assert relay.sync(20) == 1\n"
    )
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.decode() == (
        f"one\ntwo\nthree\nthe start of a line and {NOISE}\n"
    )


def test_the_start_of_a_line_is_shown_before_its_end_comes():
    program = (
        "import os, sys\n"
        "from estimator_runtime.output import relay\n"
        "assert relay.start(task=None, hides_noise=True, expects_gpu=False)\n"
        "os.write(2, b'Password: ')\n"
        "assert sys.stdin.readline() == 'secret\\n'\n"
        "os.write(2, b'thanks\\n')\n"
    )
    with running(program, stdin=subprocess.PIPE) as process:
        assert os.read(process.stderr.fileno(), 100) == b"Password: "
        process.stdin.write(b"secret\n")
        process.stdin.flush()
        assert process.stderr.read() == b"thanks\n"
    assert process.returncode == 0


def test_a_line_without_an_end_is_not_kept_whole(tmp_path):
    sink = os.open(tmp_path / "lines", os.O_CREAT | os.O_WRONLY)
    stream = relay._RelayedStream(0, sink, lambda line: f"<{line}>", None)
    half = "." * (512 << 10)
    for part in (f"\r10 %{half}", f"\r20 %{half}", "\r30 %", "\n"):
        stream.take(part.encode(), lambda hidden: None)
    os.close(sink)
    written = (tmp_path / "lines").read_bytes().decode()
    assert written == f"<\r10 %{half}\r20 %{half}>\n<\r30 %>\n"


def test_the_last_words_of_a_process_that_crashes_arrive():
    done = run("os.write(2, b'F0000 check failed\\nno line break'); os.abort()")
    assert done.returncode == -6
    assert done.stderr == b"F0000 check failed\nno line break"


def test_a_program_has_no_child_of_ours_and_its_children_write_as_before():
    done = run(
        "import subprocess\n"
        "try:\n"
        "    os.wait()\n"
        "except ChildProcessError:\n"
        "    print('none')\n"
        "subprocess.run(['sh', '-c', 'echo child >&2'], check=True)\n"
        "if not os.fork():\n"
        "    print('fork', file=sys.stderr)\n"
        "    assert relay.sync(20) == 0\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    assert (done.returncode, done.stdout) == (0, b"none\n"), done.stderr
    assert sorted(done.stderr.split()) == [b"child", b"fork"]


def test_what_a_program_writes_after_it_has_redirected_standard_error_goes_there(
    tmp_path,
):
    done = run(
        "print('before', file=sys.stderr)\n"
        f"log = os.open({str(tmp_path / 'log')!r}, os.O_WRONLY | os.O_CREAT)\n"
        "os.dup2(log, 2)\n"
        "print('after', file=sys.stderr)\n"
        "os.write(2, b'and of C++\\n')\n"
    )
    assert (done.returncode, done.stderr) == (0, b"before\n")
    assert (tmp_path / "log").read_bytes() == b"after\nand of C++\n"


@pytest.mark.parametrize("most", [256, 4096])
def test_the_files_that_a_program_opens_after_it_has_closed_all_get_no_line(
    most, tmp_path
):
    done = run(
        f"os.closerange(3, {most})\n"
        f"os.chdir({str(tmp_path)!r})\n"
        "files = [open(str(number), 'w') for number in range(32)]\n"
        "print('shown', file=sys.stderr)\n"
        "os.write(2, f'{NOISE}\\n'.encode())\n"
        "relay.finish()\n"
    )
    assert (done.returncode, done.stderr) == (0, b"shown\n")
    assert [each.stat().st_size for each in tmp_path.iterdir()] == [0] * 32


def test_all_lines_may_be_objects_of_json():
    done = run(
        "print('INFO:tensorflow:loss = 3'); os.system('echo sub')\n"
        "os.write(2, f'{NOISE}\\nE0000 00:00:1.2   22 x.cc:3] bad\\n'.encode())\n"
        "print('no line break', end='', file=sys.stderr)\n"
        "relay.finish()\n"
        "os._exit(3)\n",
        task="worker 1",
    )
    assert done.returncode == 3

    def of(text):
        objects = [json.loads(line) for line in text.splitlines()]
        assert all(abs(each.pop("time") - os.times().elapsed) for each in objects)
        return objects

    assert of(done.stdout) == [
        {"task": "worker 1", "level": "info", "message": "INFO:tensorflow:loss = 3"},
        {"task": "worker 1", "level": "info", "message": "sub"},
    ]
    assert of(done.stderr) == [
        {
            "task": "worker 1",
            "level": "error",
            "message": "E0000 00:00:1.2   22 x.cc:3] bad",
        },
        {"task": "worker 1", "level": "info", "message": "no line break"},
    ]


def test_a_reader_that_has_gone_takes_only_its_own_stream_along():
    program = (
        "import os, sys\n"
        "from estimator_runtime.output import relay\n"
        "assert relay.start(task='main', hides_noise=True, expects_gpu=False)\n"
        "try:\n"
        "    while True:\n"
        "        print('no reader')\n"
        "except BrokenPipeError:\n"
        "    os.write(2, b'told as without it\\n')\n"
        "relay.finish()\n"
        "os._exit(0)\n"
    )
    with running(program, stdout=subprocess.PIPE) as process:
        process.stdout.close()
        (line,) = process.stderr.read().splitlines()
    assert process.returncode == 0
    assert json.loads(line)["message"] == "told as without it"


def test_on_a_terminal_the_stream_of_python_stays_one():
    main, terminal = pty.openpty()
    run_in = (
        "os.write(2, f'{NOISE}\\nnative\\n'.encode())\n"
        "assert relay.sync(20) == 1\n"
        "assert sys.stderr is sys.__stderr__ and sys.stderr.name == '<stderr>'\n"
        "print(sys.stderr.isatty(), sys.stderr.errors, file=sys.stderr)\n"
    )
    program = (
        "import os, sys\n"
        "from estimator_runtime.output import relay\n"
        "assert relay.start(task=None, hides_noise=True, expects_gpu=False)\n"
        f"NOISE = {NOISE!r}\n{run_in}"
    )
    done = subprocess.run([sys.executable, "-c", program], stderr=terminal, timeout=30)
    os.close(terminal)
    text = os.read(main, 1000)
    os.close(main)
    assert (done.returncode, text) == (0, b"native\r\nTrue backslashreplace\r\n")


def test_without_standard_error_nothing_changes():
    program = (
        "import os\n"
        "os.close(2)\n"
        "from estimator_runtime.output import relay\n"
        "assert not relay.start(task=None, hides_noise=True, expects_gpu=False)\n"
        "assert relay.sync(20) == 0\n"
    )
    done = subprocess.run([sys.executable, "-c", program], timeout=30)
    assert done.returncode == 0


def test_standard_streams_that_are_closed_stay_closed():
    program = (
        "import os\n"
        "os.close(0)\n"
        "os.close(1)\n"
        "from estimator_runtime.output import relay\n"
        "assert relay.start(task=None, hides_noise=True, expects_gpu=False)\n"
        "for number in (0, 1):\n"
        "    try:\n"
        "        os.fstat(number)\n"
        "    except OSError:\n"
        "        os.write(2, b'closed\\n')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=30
    )
    assert (done.returncode, done.stderr) == (0, b"closed\nclosed\n")


def test_where_the_process_cannot_be_started_nothing_changes():
    program = (
        "import os, sys\n"
        "from estimator_runtime.output import relay\n"
        "before = os.listdir('/proc/self/fd')\n"
        "sys.executable = '/nonexistent'\n"
        "assert not relay.start(task=None, hides_noise=True, expects_gpu=False)\n"
        "assert os.listdir('/proc/self/fd') == before\n"
        "print('shown', file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=30
    )
    assert (done.returncode, done.stderr) == (0, b"shown\n")
