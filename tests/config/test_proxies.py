"""The tasks of a cluster connect to each other without the environment's proxy."""

import pytest

from estimator_runtime.config import proxies

_ADDRESSES = ["127.0.0.1:2222", "[::1]:2222", "ps0.example:2222", "127.0.0.1:2223"]
_HOSTS = "127.0.0.1,::1,ps0.example"


@pytest.mark.parametrize("name", ["grpc_proxy", "https_proxy", "http_proxy"])
@pytest.mark.parametrize(
    ("given", "exempt"),
    [
        ({}, _HOSTS),
        ({"no_proxy": "a.example,::1"}, "a.example,::1,127.0.0.1,ps0.example"),
        (
            {"no_proxy": "a.example", "no_grpc_proxy": "b.example"},
            f"b.example,{_HOSTS}",
        ),
        # gRPC then does not read the other variable.
        ({"no_proxy": "a.example", "no_grpc_proxy": ""}, _HOSTS),
    ],
)
def test_the_hosts_of_a_cluster_are_exempt_and_nothing_else_changes(
    name, given, exempt
):
    environ = {name: "http://proxy.example:3128", **given}
    before = dict(environ)
    proxies.exempt(_ADDRESSES, environ)
    assert environ == {**before, "no_grpc_proxy": exempt}
    proxies.exempt(_ADDRESSES, environ)
    assert environ == {**before, "no_grpc_proxy": exempt}


@pytest.mark.parametrize(
    "environ", [{}, {"http_proxy": ""}, {"HTTP_PROXY": "http://proxy.example:3128"}]
)
def test_without_a_proxy_of_grpc_nothing_is_set(environ):
    before = dict(environ)
    proxies.exempt(_ADDRESSES, environ)
    assert environ == before
