"""The slow twin of a convolution with TensorFlow's "same" padding."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def same_convolution(images: Tensor, weight: Tensor, stride: int) -> Tensor:
    """Convolve ``(N, C, H, W)`` with ``(C_out, C, k, k)``, output by output; outside the image all is zero.

    As TensorFlow documents it: the output has ceil(side / stride) pixels. What the windows need beyond the image is
    shared between both sides, and an odd one goes to the end.
    """
    kernel = weight.shape[2]
    sides = [math.ceil(side / stride) for side in images.shape[2:]]
    needed = [(out - 1) * stride + kernel - side for out, side in zip(sides, images.shape[2:], strict=True)]
    first = [max(extra, 0) // 2 for extra in needed]
    result = torch.zeros(len(images), len(weight), *sides, dtype=images.dtype)
    for row in range(sides[0]):
        for column in range(sides[1]):
            for down in range(kernel):
                for across in range(kernel):
                    y, x = row * stride + down - first[0], column * stride + across - first[1]
                    if 0 <= y < images.shape[2] and 0 <= x < images.shape[3]:
                        result[:, :, row, column] += images[:, :, y, x] @ weight[:, :, down, across].T
    return result
