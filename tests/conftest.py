"""What all tests share. TensorFlow is not imported here: some tests are about that."""

import json

import pytest


@pytest.fixture(autouse=True)
def _no_tf_config(monkeypatch):
    """Run on one machine, whatever the environment of the test run says."""
    monkeypatch.delenv("TF_CONFIG", raising=False)


@pytest.fixture(autouse=True)
def _no_inheritance(monkeypatch):
    """Let the processes that a test starts be plain python, if it says no more."""
    monkeypatch.delenv("ESTIMATOR_RUNTIME_CHILDREN", raising=False)
    monkeypatch.setenv("ESTIMATOR_RUNTIME_AUTO", "0")


@pytest.fixture
def set_tf_config(monkeypatch):
    """Give a function that puts an object, or any text, into TF_CONFIG."""

    def set_tf_config(content):
        text = content if isinstance(content, str) else json.dumps(content)
        monkeypatch.setenv("TF_CONFIG", text)

    return set_tf_config
