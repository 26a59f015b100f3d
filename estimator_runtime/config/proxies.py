"""The proxy of the environment, which TensorFlow's gRPC asks for every address.

It asks for 127.0.0.1 too, and waits for ever if the proxy does not know it. It reads
`grpc_proxy`, `https_proxy` and `http_proxy`, in lower case only. It exempts the hosts
in `no_grpc_proxy` or, if that is not set, those in `no_proxy` (`HttpProxyMapper` in
gRPC's C++ code).

Standard library only, because the launching half imports it.
"""

from collections.abc import Iterable, MutableMapping

_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
_EXEMPT = "no_grpc_proxy"


def exempt(addresses: Iterable[str], environ: MutableMapping[str, str]) -> None:
    """Make TensorFlow connect to these addresses without a proxy.

    The runtime itself asks the tasks of a cluster directly, so they can be reached
    without the proxy. Only gRPC's own variable is set: what else the program connects
    to goes as before.

    Args:
        addresses: Each "host:port".
        environ: The environment, such as `os.environ`; it is changed if it has a proxy.
    """
    if not any(map(environ.get, _PROXIES)):
        return
    already = environ.get(_EXEMPT, environ.get("no_proxy", ""))
    hosts = [each.rpartition(":")[0].strip("[]") for each in addresses]
    exempt_hosts = dict.fromkeys([*filter(None, already.split(",")), *hosts])
    environ[_EXEMPT] = ",".join(exempt_hosts)
