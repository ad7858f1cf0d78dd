"""A cluster whose clients connect through proxies."""

from cluster import Cluster
from proxy import Proxy


class ProxiedCluster(Cluster):
    """Clients connect to the commit manager and to the nodes through proxies. Nodes connect to the manager directly."""

    def __init__(self, **options):
        super().__init__(**options)
        self.to_manager = None
        self.to_nodes = [Proxy(None) for _ in self.nodes]

    def launch_node(self, node, pause=None, manager=None):
        self.node_options_of[node.name] = ["--advertise", self.to_nodes[self.nodes.index(node)].address]
        super().launch_node(node, pause, manager)

    def note_address(self, process):
        super().note_address(process)
        if process is self.manager:
            self.to_manager = self.to_manager or Proxy(self.address)
        else:
            self.to_nodes[self.nodes.index(process)].target = self.addresses[process.name]

    @property
    def client_address(self):
        return self.to_manager.address

    def proxies(self):
        return [self.to_manager, *self.to_nodes]

    def close(self):
        super().close()
        for proxy in self.proxies():
            if proxy is not None:
                proxy.close()
