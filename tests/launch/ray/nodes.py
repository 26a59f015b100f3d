"""A Ray cluster of several nodes on this machine; it ends with its standard input.

Each node is a raylet with a loopback address of its own. A line on standard input is a
JSON object: {"kill": ADDRESS} kills the raylet of a node, as if the machine were lost;
another one has the arguments for one more node. After the start, and after each line, the
address of the cluster is written as a JSON line.
"""

import json
import sys

from ray.cluster_utils import Cluster

_NODE = {"num_cpus": 2, "object_store_memory": 80_000_000, "include_dashboard": False}


def tell(cluster):
    print(json.dumps({"address": cluster.address}), flush=True)


def find(address):
    (node,) = [
        node for node in cluster.list_all_nodes() if node.node_ip_address == address
    ]
    return node


def kill(node):
    raylet = node.all_processes["raylet"][0].process
    raylet.kill()
    raylet.wait()  # one that is left as a zombie would be taken for alive


cluster = Cluster(
    initialize_head=True,
    head_node_args={
        **_NODE,
        "num_cpus": 1,
        # Not 127.0.0.1, which Ray takes for any address of this machine.
        "node_ip_address": "127.0.0.2",
        "_system_config": {
            # A Python for each CPU as soon as somebody connects: too much for a test.
            "prestart_worker_first_driver": False,
            # A node that is gone is declared dead after 5 s, not 15.
            "health_check_initial_delay_ms": 0,
            "health_check_period_ms": 1000,
        },
    },
)
cluster.add_node(**_NODE, node_ip_address="127.0.0.3")
cluster.add_node(**_NODE, node_ip_address="127.0.0.4")
tell(cluster)
for line in sys.stdin:
    request = json.loads(line)
    if "kill" in request:
        kill(find(request["kill"]))
    else:
        cluster.add_node(**{**_NODE, **request})
    tell(cluster)
cluster.shutdown()
