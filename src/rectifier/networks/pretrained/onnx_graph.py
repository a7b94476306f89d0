"""Backbones as ONNX models that take raw pixels: EfficientNet-Lite node by node, other networks by torch's exporter.

Writing the nodes takes a tenth of a second; the exporter traces the network first, which takes many.
"""

from __future__ import annotations

import logging
import math
import warnings
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights

from rectifier.networks.pretrained.efficientnet_lite import Block, ConvNorm, EfficientNetLite, SpatialMean
from rectifier.networks.pretrained.taps import Taps

_OPSET, _IR = 17, 8  # understood by every runtime of the last years
PIXELS = "pixels"


def can_write(trunk: nn.Module) -> bool:
    """Say whether a network can become an ONNX model here: ours always, others where the exporter is installed."""
    return find_spec("onnx") is not None and (
        isinstance(trunk, EfficientNetLite) or find_spec("onnxscript") is not None
    )


def onnx_model(trunk: nn.Module, taps: Taps, size: tuple[int, int]) -> bytes:
    """Return an ONNX model from uint8 pixels ``(N, H, W, 3)`` to the layers of ``taps``, each output with its name."""
    return _written(taps, size) if isinstance(trunk, EfficientNetLite) else _exported(taps, size)


def _exported(taps: Taps, size: tuple[int, int]) -> bytes:
    pixels = torch.zeros(2, *size, 3, dtype=torch.uint8)  # a batch of one would be taken for a constant
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own
        logger.setLevel(logging.ERROR)  # it misses a torchvision that no backbone needs
        program = torch.onnx.export(
            taps.eval(),
            (pixels,),
            input_names=[PIXELS],
            output_names=list(taps.layers),
            dynamic_shapes=({0: torch.export.Dim("images", min=1)},),
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    logger.setLevel(level)
    content: bytes = program.model_proto.SerializeToString()  # type: ignore[union-attr]
    return content


def _written(taps: Taps, size: tuple[int, int]) -> bytes:
    graph = _Graph(size)
    pixels = graph.node("Cast", graph.node("Transpose", PIXELS, perm=[0, 3, 1, 2]), to=1)  # 1: float
    values = [graph.node("Sub", pixels, graph.constant(taps.mean.view(1, 3, 1, 1)))]
    for number, step in enumerate(taps.steps):
        # The division by the deviation is part of the first convolution. The mean cannot be: the zeros of the
        # padding are added after it is subtracted.
        values.append(graph.step(values[-1], step, taps.std if number == 0 else None))
    for layer, place in taps.places.items():
        if layer == "penultimate":
            graph.node("Flatten", graph.node("GlobalAveragePool", values[place]), name=layer)
        else:
            graph.node("Identity", values[place], name=layer)
    return graph.model(taps)


class _Graph:
    """The nodes and constants of an ONNX model of EfficientNet-Lite, with normalisation folded into convolutions."""

    def __init__(self, size: tuple[int, int]) -> None:
        from onnx import TensorProto, helper, numpy_helper

        self.helper, self.numpy_helper, self.kinds = helper, numpy_helper, TensorProto
        self.size = self.sides = size  # of the images, and of the maps so far
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def step(self, value: str, step: nn.Module, divisor: Tensor | None = None) -> str:
        if isinstance(step, ConvNorm):
            return self.convolution(value, step, divisor)
        if isinstance(step, Block):
            return self.block(value, step)
        if isinstance(step, SpatialMean):
            return self.node("Flatten", self.node("GlobalAveragePool", value))
        return value  # flattening vectors changes nothing

    def block(self, value: str, block: Block) -> str:
        wide = value if block.expand is None else self.convolution(value, block.expand)
        after = self.convolution(self.convolution(wide, block.depthwise), block.project)
        return self.node("Add", value, after) if block.residual else after

    def convolution(self, value: str, layer: ConvNorm, divisor: Tensor | None = None) -> str:
        conv, norm = layer.conv, layer.norm
        statistics = norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
        fused, bias = fuse_conv_bn_weights(conv.weight, None, *statistics)  # type: ignore[arg-type]
        weight = fused if divisor is None else fused / divisor.view(1, -1, 1, 1)
        (top, bottom), (left, right) = conv.padding_of(*self.sides)
        height, width = self.sides
        self.sides = math.ceil(height / conv.stride[0]), math.ceil(width / conv.stride[1])
        maps = self.node(
            "Conv",
            *(value, self.constant(weight), self.constant(bias)),
            pads=[top, left, bottom, right],
            strides=list(conv.stride),
            kernel_shape=list(conv.kernel_size),
            group=conv.groups,
        )
        return (
            self.node("Clip", maps, self.constant(torch.tensor(0.0)), self.constant(torch.tensor(6.0)))
            if layer.relu
            else maps
        )

    def node(self, kind: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        name = name or f"{kind}{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(kind, inputs, [name], **attributes))
        return name

    def constant(self, values: Tensor) -> str:
        name = f"constant{len(self.constants)}"
        self.constants.append(self.numpy_helper.from_array(values.detach().cpu().float().numpy(), name))
        return name

    def model(self, taps: Taps) -> bytes:
        helper, kinds = self.helper, self.kinds
        pixels = helper.make_tensor_value_info(PIXELS, kinds.UINT8, ["images", *self.size, 3])
        outputs = [
            helper.make_tensor_value_info(layer, kinds.FLOAT, ["images", *taps.shapes[layer]]) for layer in taps.layers
        ]
        graph = helper.make_graph(self.nodes, "backbone", [pixels], outputs, self.constants)
        opset = [helper.make_opsetid("", _OPSET)]
        content: bytes = helper.make_model(graph, opset_imports=opset, ir_version=_IR).SerializeToString()
        return content
