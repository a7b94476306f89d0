"""Covariance noise has the pooled covariance within classes."""

from __future__ import annotations

import torch
from torch import Generator

from rectifier.labels.space import LabelSpace
from rectifier.training.heads import FeatureTable, HeadSpec
from rectifier.training.heads.noise import indicators, residuals
from rectifier.training.heads.prepared import Prepared
from rectifier.training.heads.streams import Stream, Streams

SPACE = LabelSpace.from_sizes([3])


def made_table(labels: int = 1) -> FeatureTable:
    drawn = Generator().manual_seed(0)
    targets = torch.randint(3, (200, labels), generator=drawn)
    mixing = torch.randn(4, 4, generator=drawn)
    x = torch.randn(200, 4, generator=drawn) @ mixing + 3 * targets.sum(1, keepdim=True)
    return FeatureTable(x, targets, LabelSpace.from_sizes([3] * labels))


def test_with_one_label_a_residual_is_the_distance_to_the_class_mean() -> None:
    table = made_table()
    found = residuals(table.x, table.targets, (3,))
    for c in range(3):
        own = table.targets[:, 0] == c
        torch.testing.assert_close(found[own], table.x[own] - table.x[own].mean(0), rtol=1e-5, atol=1e-5)


def test_residuals_of_several_labels_are_those_of_least_squares() -> None:
    table = made_table(2)
    table.targets[:20, 1] = -1
    table.targets[table.targets[:, 0] == 2, 0] = 1  # an absent class
    design = indicators(table.targets, (3, 3))
    fit = torch.linalg.lstsq(design.double(), table.x.double(), driver="gelsd").solution
    found = residuals(table.x, table.targets, (3, 3))
    torch.testing.assert_close(found, (table.x.double() - design.double() @ fit).float(), rtol=1e-4, atol=1e-4)


def test_the_noise_that_training_adds_has_the_covariance_within_classes() -> None:
    data = Prepared(made_table())
    spec = HeadSpec(noise=0.5, batch_size=200)
    streams, plain = (Streams([Stream(each, data)], data) for each in (spec, HeadSpec(batch_size=200)))
    added = []
    for epoch in range(200):
        for one in (streams, plain):
            one.start(epoch)
        added.append(streams.batch(0).x[0] - plain.batch(0).x[0])
    noise = torch.cat(added)
    within = data.residuals.T @ data.residuals / len(data.residuals)
    torch.testing.assert_close(noise.mean(0), torch.zeros(4), rtol=0, atol=0.01)
    torch.testing.assert_close(noise.T @ noise / len(noise), 0.25 * within, rtol=0.05, atol=0.003)
