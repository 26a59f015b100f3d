"""Which frames of a task's tracebacks are shown."""

from estimator_runtime.launch.frames import LibraryFrames


def test_frames_of_libraries_are_hidden_and_those_of_the_program_are_shown():
    of_program = [
        "Traceback (most recent call last):",
        '  File "/home/me/train.py", line 9, in <module>',
        "    train()",
        "ValueError: in user code:",
        "",
        '    File "/home/me/train.py", line 3, in model_fn  *',
        "        loss()",
        "    ValueError: no loss",
    ]
    of_library = [
        '  File "/venv/lib/python3.11/site-packages/tensorflow/a.py", line 1, in run',
        "    return self.run(",
        "I0000 00:00:1.5 7 port.cc:1] a log line of another thread",
        "           ^^^^^^^^",
        "",
        '  File "/tmp/__autograph_generated_filez.py", line 13, in tf__call',
        "    net = call(",
    ]
    lines = [*of_program[:3], *of_library, *of_program[3:]]
    of_program.insert(3, of_library[2])
    frames = LibraryFrames()
    assert [line for line in lines if not frames.has(line)] == of_program
