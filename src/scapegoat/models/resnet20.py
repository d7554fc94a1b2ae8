"""ResNet-20 for small images (He et al., 2016, section 4.2)."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from scapegoat.errors import InputError
from scapegoat.modelling.flat_model import ModelSpec, register


def _norm(kind: str, channels: int) -> nn.Module:
    return nn.GroupNorm(8, channels) if kind == "group" else nn.BatchNorm2d(channels)


class _Block(nn.Module):
    def __init__(self, before: int, after: int, stride: int, norm: str) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.norm1 = _norm(norm, after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm2 = _norm(norm, after)
        self.widen = after - before
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        out = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        if self.stride != 1 or self.widen:
            # Option A of the paper: a parameter-free shortcut that subsamples and pads with zero channels.
            x = F.pad(
                x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.widen // 2, self.widen - self.widen // 2)
            )
        return F.relu(out + x)


class _ResNet20(nn.Module):
    def __init__(self, channels: int, classes: int, norm: str, stride: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, 16, 3, stride, 1, bias=False)
        self.norm = _norm(norm, 16)
        widths = [(16, 16, 1)] * 3 + [(16, 32, 2)] + [(32, 32, 1)] * 2 + [(32, 64, 2)] + [(64, 64, 1)] * 2
        self.blocks = nn.Sequential(*(_Block(a, b, s, norm) for a, b, s in widths))
        self.head = nn.Linear(64, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        out = self.blocks(F.relu(self.norm(self.stem(x))))
        return self.head(out.mean(dim=(2, 3)))  # type: ignore[no-any-return]


@register("resnet20")
class ResNet20(ModelSpec):
    """0.27M parameters. GroupNorm by default: BatchNorm mixes a client's records and needs statistics of its own.

    With `norm: batch` each client normalises with its own batch; the running statistics that the evaluation uses are
    the mean of the picked clients'. Images of 96 pixels enter through a stem of stride 2.
    """

    norm: Literal["group", "batch"] = "group"
    """Normalisation: over groups of channels, or over the batch."""

    def build(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """The module for 1- or 3-channel images of at least 16 pixels."""
        if len(input_shape) != 3:
            raise InputError(
                f"model resnet20: takes images [channels, height, width], and these records are {input_shape}"
            )
        channels, height, width = input_shape
        if min(height, width) < 16:
            raise InputError(f"model resnet20: images of {height} x {width} are too small; at least 16 x 16")
        return _ResNet20(channels, classes, self.norm, stride=2 if min(height, width) >= 96 else 1)
