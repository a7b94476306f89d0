"""Every network in small forms, and images for them."""

from __future__ import annotations

import torch

from rectifier.networks.network import Network
from rectifier.networks.registry import build_network

LAYOUTS = {"cifar": [100], "celeba": [2] * 40, "mixed": [6, 9, 55]}

# Other forms of the same networks, small enough to be tried often. Depth is what makes a network slow here, not what
# it shows.
FORMS = {
    "deepid2": ("deepid2", {}),
    "deepid2 local": ("deepid2", {"local": True}),
    "mtct": ("mtct", {}),
    "cifarnet": ("cifarnet", {}),
    "cifarnet cuda-convnet": ("cifarnet", {"form": "cuda-convnet"}),
    "cifarnet branches": ("cifarnet", {"branch": 16}),
    "resnet8": ("resnet32", {"depth": 8}),
    "resnet8 branches": ("resnet32", {"depth": 8, "branch": (16, 8), "dropout": 0.1}),
    "densenet": ("densenet", {"depth": 10, "growth": 4}),
    "densenet-bc": ("densenet", {"depth": 16, "growth": 4, "bottleneck": True, "compression": 0.5, "dropout": 0.2}),
    "resnet50": ("resnet50", {}),
    "panda": ("panda", {"side": 24, "maps": 6, "features": 8}),
    "panda grid": ("panda", {"parts": "grid", "side": 16, "maps": 6, "features": 8, "branch": 5, "dropout": 0.1}),
    "anet": ("anet", {"shift": 5}),
    "ddan": ("ddan", {"branch": 16}),
    "darn": ("darn", {"shared": (48, 32), "branch": 16}),
    "fashionnet": ("fashionnet", {"shared": (48, 32)}),
    "efficientnet-lite0": ("efficientnet-lite0", {"hidden": 24}),
    "efficientnet-lite1": ("efficientnet-lite1", {}),
    "efficientnet-lite2": ("efficientnet-lite2", {}),
    "mlp": ("mlp", {}),
    "mlp deep": ("mlp", {"hidden": (32, 16), "branch": 8, "dropout": 0.2}),
}
TRIED = {  # else 8 x 9
    "deepid2": (39, 41),
    "mtct": (71, 75),
    "cifarnet": (12, 9),
    "resnet50": (33, 40),
    "panda": (20, 23),
    "anet": (40, 38),
    "ddan": (43, 39),
    "darn": (75, 71),
    "fashionnet": (32, 39),
    **{f"efficientnet-lite{number}": (64, 65) for number in range(3)},
}


def make(form: str, layout: str = "mixed", channels: int = 3, seed: int = 0) -> Network:
    name, options = FORMS[form]
    return build_network(name, LAYOUTS[layout], (*TRIED.get(name, (8, 9)), channels), seed=seed, **options)


def images_for(network: Network, samples: int = 4, seed: int = 0) -> torch.Tensor:
    return torch.randn(samples, *network.sample_shape, generator=torch.Generator().manual_seed(seed))


def settled(network: Network) -> Network:
    """In evaluation, after batch normalisation has seen some images: deep ones overflow on fresh statistics."""
    network.train()
    with torch.no_grad():
        for seed in range(3):
            network(images_for(network, 8, seed))
    return network.eval()
