"""Networks: images ``(N, C, H, W)`` in, ``Output(logits, features)`` out."""

from rectifier.networks.head import MultiLabelHead, Output
from rectifier.networks.network import Network
from rectifier.networks.registry import NETWORKS, build_network

__all__ = ["NETWORKS", "MultiLabelHead", "Network", "Output", "build_network"]
