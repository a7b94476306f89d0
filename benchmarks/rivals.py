"""Alternatives to this package's loss: a plain loop, vectorised code, and another library."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import relu

KAPPA = 25
MARGIN = 0.5


def triplet_loop(logits: Tensor, targets: Tensor, sizes: list[int]) -> Tensor:
    """Loop over every triplet in Python."""
    total, count = logits.sum() * 0, 0
    for p, y in _labels(logits, targets, sizes):
        for c in _minority(y, p.shape[1]):
            own, positives, negatives = _hard(p[:, c], y, c)
            for a in own.tolist():
                for i in positives.tolist():
                    for j in negatives.tolist():
                        if i != a:
                            total = total + relu(MARGIN + (p[a, c] - p[i, c]).abs() - (p[a, c] - p[j, c]))
                            count += 1
    return total / max(count, 1)


def dense_per_class(logits: Tensor, targets: Tensor, sizes: list[int]) -> Tensor:
    """Take the top k per minority class, then anchors x kappa x kappa triplets at once."""
    loss = logits.sum() * 0
    for p, y in _labels(logits, targets, sizes):
        total, count = logits.sum() * 0, 0
        for c in _minority(y, p.shape[1]):
            own, positives, negatives = _hard(p[:, c], y, c)
            score = p[:, c]
            near = (score[own][:, None] - score[positives]).abs()
            far = score[own][:, None] - score[negatives]
            exists = own[:, None] != positives
            triplets = relu(MARGIN + near[:, :, None] - far[:, None, :]) * exists[:, :, None]
            total = total + triplets.sum()
            count += int(exists.sum()) * len(negatives)
        loss = loss + total / max(count, 1)
    return loss


def dense_at_once(logits: Tensor, targets: Tensor, sizes: list[int]) -> Tensor:
    """Do as ``dense_per_class``, with one (anchors, kappa, kappa) tensor for all classes of a label."""
    loss = logits.sum() * 0
    for p, y in _labels(logits, targets, sizes):
        classes = _minority(y, p.shape[1])
        if not classes:
            continue
        mined = torch.tensor(classes, device=y.device)
        scores, is_own = p.t()[mined], y == mined[:, None]
        kappa = min(KAPPA, len(y))
        positive, positive_idx = scores.masked_fill(~is_own, 2).topk(kappa, largest=False)
        negative, _ = scores.masked_fill(is_own | (y < 0), -1).topk(kappa)
        row, anchor = is_own.nonzero(as_tuple=True)
        score = scores[row, anchor][:, None]
        exists = (positive[row] <= 1) & (positive_idx[row] != anchor[:, None])
        exists = exists[:, :, None] & (negative[row] >= 0)[:, None, :]
        near, far = (score - positive[row]).abs(), score - negative[row]
        loss = loss + (relu(MARGIN + near[:, :, None] - far[:, None, :]) * exists).sum() / exists.sum()
    return loss


def metric_learning(features: Tensor, targets: Tensor) -> Tensor:
    """Use pytorch-metric-learning's triplet loss with its own hard miner, label by label."""
    from pytorch_metric_learning.losses import TripletMarginLoss
    from pytorch_metric_learning.miners import TripletMarginMiner

    criterion, miner = TripletMarginLoss(), TripletMarginMiner(type_of_triplets="hard")
    loss = features.sum() * 0
    for label in range(targets.shape[1]):
        f, y = features[:, label], targets[:, label]
        loss = loss + criterion(f, y, miner(f, y))
    return loss


def _labels(logits: Tensor, targets: Tensor, sizes: list[int]) -> list[tuple[Tensor, Tensor]]:
    blocks = logits.split(sizes, dim=1)
    return [(block.softmax(1), targets[:, label]) for label, block in enumerate(blocks)]


def _minority(y: Tensor, classes: int) -> list[int]:
    counts = torch.bincount(y[y >= 0], minlength=classes).tolist()
    taken, running = [], 0
    for c in sorted((c for c in range(classes) if counts[c]), key=lambda c: (counts[c], c)):
        running += counts[c]
        if running > 0.5 * sum(counts):
            break
        taken.append(c)
    return [c for c in taken if counts[c] >= 2]


def _hard(score: Tensor, y: Tensor, c: int) -> tuple[Tensor, Tensor, Tensor]:
    own, other = (y == c).nonzero().flatten(), ((y >= 0) & (y != c)).nonzero().flatten()
    positives = own[score[own].topk(min(KAPPA, len(own)), largest=False).indices]
    negatives = other[score[other].topk(min(KAPPA, len(other))).indices]
    return own, positives, negatives
