"""ResNet32 for 32 x 32 images (He et al. 2016): the network whose training step is timed."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import pad, relu


class Block(nn.Module):
    def __init__(self, inputs: int, maps: int, stride: int) -> None:
        super().__init__()
        self.convolve = nn.Sequential(
            nn.Conv2d(inputs, maps, 3, stride, 1, bias=False),
            nn.BatchNorm2d(maps),
            nn.ReLU(inplace=True),
            nn.Conv2d(maps, maps, 3, 1, 1, bias=False),
            nn.BatchNorm2d(maps),
        )
        self.stride, self.more = stride, maps - inputs

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x[:, :, :: self.stride, :: self.stride]
        if self.more:
            shortcut = pad(shortcut, (0, 0, 0, 0, self.more // 2, self.more // 2))
        return relu(self.convolve(x) + shortcut)


def resnet32(classes: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True)]
    inputs = 16
    for maps in (16, 32, 64):
        for block in range(5):
            layers.append(Block(inputs, maps, 2 if block == 0 and maps > 16 else 1))
            inputs = maps
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))
