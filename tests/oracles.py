"""Slow twins: obvious loop versions of everything vectorised, written from the paper and the design, not the code.

Scalars are kept as tensors only so that autograd gives the gradients to compare with.
"""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from torch import Tensor


def softmax_per_label(logits: Tensor, sizes: list[int]) -> list[Tensor]:
    start, blocks = 0, []
    for size in sizes:
        blocks.append(torch.softmax(logits[:, start : start + size], dim=1))
        start += size
    return blocks


def minority(labels: list[int], classes: int, rho: float) -> list[int]:
    """Classes of one label, ascending by count, while they hold at most rho of its samples."""
    present = [y for y in labels if y >= 0]
    counts = {c: present.count(c) for c in range(classes) if c in present}
    taken, running = [], 0
    for c in sorted(counts, key=lambda c: (counts[c], c)):
        running += counts[c]
        if running > rho * len(present):
            break
        taken.append(c)
    return taken


def mined(labels: list[int], classes: int, rho: float, scope: str) -> list[int]:
    present = [y for y in labels if y >= 0]
    wanted = minority(labels, classes, rho) if scope == "minority" else sorted(set(present))
    return [c for c in wanted if present.count(c) >= 2 and present.count(c) < len(present)]


def hard_of_class(p: Tensor, labels: list[int], c: int, kappa: int) -> tuple[list[int], list[int]]:
    """The kappa lowest p(c) among the samples of c, the kappa highest among the others."""
    own = [i for i, y in enumerate(labels) if y == c]
    other = [i for i, y in enumerate(labels) if y >= 0 and y != c]
    own.sort(key=lambda i: (p[i, c].item(), i))
    other.sort(key=lambda i: (-p[i, c].item(), i))
    return own[:kappa], other[:kappa]


def hard_of_anchor(distance: list[float], labels: list[int], a: int, kappa: int) -> tuple[list[int], list[int]]:
    """The kappa farthest of the anchor's class, the kappa nearest of other classes."""
    own = [i for i, y in enumerate(labels) if y == labels[a] and i != a]
    other = [i for i, y in enumerate(labels) if y >= 0 and y != labels[a]]
    own.sort(key=lambda i: (-distance[i], i))
    other.sort(key=lambda i: (distance[i], i))
    return own[:kappa], other[:kappa]


def euclid(x: Tensor, y: Tensor) -> Tensor:
    """Euclidean distance whose slope at 0 is 0."""
    squared = ((x - y) ** 2).sum()
    return squared.sqrt() if squared.item() > 0 else squared * 0


def anchors_of_label(
    p: Tensor, features: Tensor | None, labels: list[int], classes: list[int], level: str, kappa: int
) -> list[tuple[list[Tensor], list[Tensor]]]:
    """For every anchor its distances to positives and to negatives."""
    anchors = []
    for c in classes:
        for a in [i for i, y in enumerate(labels) if y == c]:
            if level == "class":
                own, other = hard_of_class(p, labels, c, kappa)
                positive = [(p[a, c] - p[i, c]).abs() for i in own if i != a]
                negative = [p[a, c] - p[i, c] for i in other]
            else:
                assert features is not None
                every = [euclid(features[a], f) for f in features]
                own, other = hard_of_anchor([d.item() for d in every], labels, a, kappa)
                positive, negative = [every[i] for i in own], [every[i] for i in other]
            anchors.append((positive, negative))
    return anchors


def relative(anchors: list[tuple[list[Tensor], list[Tensor]]], margin: float, zero: Tensor) -> Tensor:
    triplets = []
    for pos, neg in anchors:
        triplets += [torch.relu(margin + d_p - torch.stack(neg)) for d_p in pos]  # one per negative
    return torch.cat(triplets).mean() if triplets else zero


def absolute(anchors: list[tuple[list[Tensor], list[Tensor]]], margin: float, zero: Tensor) -> Tensor:
    near = [d**2 for pos, _ in anchors for d in pos]
    far = [torch.relu(margin - d) ** 2 for _, neg in anchors for d in neg]
    return (torch.stack(near).mean() + torch.stack(far).mean()) / 2 if near else zero


def distribution(anchors: list[tuple[list[Tensor], list[Tensor]]], level: str, bins: int, zero: Tensor) -> Tensor:
    near = [d for pos, _ in anchors for d in pos]
    far = [d for _, neg in anchors for d in neg]
    if not near:
        return zero
    low, high = (-1.0, 1.0) if level == "class" else (0.0, max(d.item() for d in near + far))
    h_pos, h_neg = histogram(near, low, high, bins), histogram(far, low, high, bins)
    return sum((h_pos[t] * sum(h_neg[: t + 1], zero) for t in range(bins)), zero)


def histogram(distances: list[Tensor], low: float, high: float, bins: int) -> list[Tensor]:
    """Triangular weights; a distance on a node belongs to the piece above it, on the last node to the one below."""
    step = (high - low) / (bins - 1) if high > low else 1.0
    h = [distances[0] * 0 for _ in range(bins)]
    for d in distances:
        t = min(max(math.floor((d.item() - low) / step), 0), bins - 2)
        h[t] = h[t] + (low + (t + 1) * step - d) / step / len(distances)
        h[t + 1] = h[t + 1] + (d - low - t * step) / step / len(distances)
    return h


def crl(
    logits: Tensor,
    targets: Tensor,
    features: Tensor | None = None,
    *,
    sizes: list[int],
    level: str = "class",
    comparison: str = "relative",
    kappa: int = 25,
    rho: float = 0.5,
    margin: float | None = None,
    scope: str = "minority",
    mining: str = "hard",
    bins: int = 100,
) -> Tensor:
    """The Class Rectification Loss per label, ``(A,)``."""
    losses = []
    zero = logits.sum() * 0 + (0 if features is None else features.sum() * 0)
    for label, (p, size) in enumerate(zip(softmax_per_label(logits, sizes), sizes, strict=True)):
        y = targets[:, label].tolist()
        f = None if features is None else features if features.dim() == 2 else features[:, label]
        top = len(y) if mining == "all" else kappa
        anchors = anchors_of_label(p, f, y, mined(y, size, rho, scope), level, top)
        default = 0.5 if level == "class" else 2 * math.pi / size if comparison == "relative" else 1.0
        m = default if margin is None else margin
        if comparison == "relative":
            losses.append(relative(anchors, m, zero))
        elif comparison == "absolute":
            losses.append(absolute(anchors, m, zero))
        else:
            losses.append(distribution(anchors, level, bins, zero))
    return torch.stack(losses)


def cross_entropy(logits: Tensor, targets: Tensor, sizes: list[int]) -> Tensor:
    losses = []
    for label, p in enumerate(softmax_per_label(logits, sizes)):
        terms = [-p[i, y].log() for i, y in enumerate(targets[:, label].tolist()) if y >= 0]
        losses.append(torch.stack(terms).mean() if terms else logits.sum() * 0)
    return torch.stack(losses)


def class_balanced_accuracy(logits: Tensor, targets: Tensor, sizes: list[int]) -> float:
    per_label = []
    for label, p in enumerate(softmax_per_label(logits, sizes)):
        y, guess = targets[:, label].tolist(), p.argmax(1).tolist()
        shares = []
        for c in range(sizes[label]):
            own = [i for i in range(len(y)) if y[i] == c]
            if own:
                shares.append(sum(guess[i] == c for i in own) / len(own))
        if shares:
            per_label.append(sum(shares) / len(shares))
    return sum(per_label) / len(per_label) if per_label else math.nan


def unit(x: Tensor) -> Tensor:
    return x / x.norm()


def semi_hard_triplets(features: Tensor, targets: Tensor, margin: float) -> tuple[Tensor, list[int]]:
    """FaceNet's semi-hard triplet loss per label, ``(A,)``, and the number of its pairs."""
    losses, numbers = [], []
    for label in range(targets.shape[1]):
        y = targets[:, label].tolist()
        f = [unit(x) for x in (features if features.dim() == 2 else features[:, label])]
        hinges = []
        for a in range(len(y)):
            distance = [((f[a] - g) ** 2).sum() for g in f]
            rounded = [torch.tensor(d.item(), dtype=torch.float32).item() if d > 1e-12 else 0.0 for d in distance]
            negatives = [i for i in range(len(y)) if y[i] >= 0 and y[i] != y[a]]
            for p in range(len(y)):
                if p == a or y[a] < 0 or y[p] != y[a] or not negatives:
                    continue
                farther = [i for i in negatives if rounded[i] > rounded[p]]
                n = min(farther, key=rounded.__getitem__) if farther else max(negatives, key=rounded.__getitem__)
                hinges.append(torch.relu(margin + distance[p] - distance[n]))
        losses.append(torch.stack(hinges).mean() if hinges else features.sum() * 0)
        numbers.append(len(hinges))
    return torch.stack(losses), numbers


def ranked_triplets(features: Tensor, targets: Tensor, margin: float) -> tuple[Tensor, int]:
    """Positives agree with the anchor in the largest share of labels; the negative is the nearest that agrees less."""
    rows, f = targets.tolist(), [unit(x.flatten()) for x in features]
    hinges = []
    for a, own in enumerate(rows):
        distance = [((f[a] - g) ** 2).sum() for g in f]
        rounded = [torch.tensor(d.item(), dtype=torch.float32).item() if d > 1e-12 else 0.0 for d in distance]
        share = {}
        for i, other in enumerate(rows):
            common = [(x, y) for x, y in zip(own, other, strict=True) if x >= 0 and y >= 0]
            if i != a and common:
                share[i] = Fraction(sum(x == y for x, y in common), len(common))
        negatives = [i for i in share if share[i] < max(share.values())]
        if negatives:
            n = min(negatives, key=rounded.__getitem__)
            hinges += [torch.relu(margin + distance[p] - distance[n]) for p in share if share[p] == max(share.values())]
    return torch.stack(hinges).mean() if hinges else features.sum() * 0, len(hinges)


def quintuplet_hinges(rows: list[list[Tensor]], margins: tuple[float, float, float]) -> Tensor:
    """LMLE's triple-header hinge, the mean over rows (a, p+, p-, p--, n)."""
    total = []
    for a, *others in rows:
        d = [((unit(a) - unit(x)) ** 2).sum() for x in others]
        total.append(sum(torch.relu(margins[i] + d[i] - d[i + 1]) for i in range(3)))
    return torch.stack(total).mean()


def squared(x: Tensor, y: Tensor) -> float:
    """Squared distance, rounded to float32, so that equal features tie."""
    return torch.tensor(((x.double() - y.double()) ** 2).sum().item()).item()


def quintuplet(
    features: Tensor, assigned: list[int], class_of: list[int], a: int
) -> tuple[int, int, int, int, int, bool]:
    """LMLE's quintuplet of one anchor, with what stands in for what does not exist."""
    labelled = [i for i in range(len(assigned)) if assigned[i] >= 0]
    if assigned[a] < 0:
        return (a, a, a, a, a, False)
    own = class_of[assigned[a]]
    distance = {i: squared(features[a], features[i]) for i in labelled}
    cluster = [i for i in labelled if assigned[i] == assigned[a]]
    elsewhere = [i for i in labelled if class_of[assigned[i]] == own and assigned[i] != assigned[a]]
    other = [i for i in labelled if class_of[assigned[i]] != own]
    if not other:
        return (a, a, a, a, a, False)
    near = max(cluster, key=distance.__getitem__) if len(cluster) > 1 else a
    nearer = min(elsewhere, key=distance.__getitem__) if elsewhere else near
    farther = max(elsewhere, key=distance.__getitem__) if elsewhere else near
    return (a, near, nearer, farther, min(other, key=distance.__getitem__), True)


def cluster_scores(
    queries: Tensor, centres: Tensor, class_of: list[int], classes: int, nearest: int | None, never: float
) -> list[list[float]]:
    """Least distance to a cluster of another class minus the largest to one of the class, among the nearest."""
    scores = []
    for query in queries:
        distance = [((query - centre) ** 2).sum().item() for centre in centres]
        kept = sorted(range(len(distance)), key=distance.__getitem__)[:nearest]
        row = []
        for c in range(classes):
            own = [distance[j] for j in kept if class_of[j] == c]
            others = [distance[j] for j in kept if class_of[j] != c]
            row.append(never if not own else min(others) - max(own) if others else 0.0)
        scores.append(row)
    return scores


def neighbour_scores(queries: Tensor, references: Tensor, targets: Tensor, sizes: list[int], k: int) -> Tensor:
    """The log of each class's share among the k nearest that have the label and one vote shared by all classes."""
    rows = []
    for q in range(len(queries)):
        row: list[float] = []
        for label, size in enumerate(sizes):
            query = queries[q] if queries.dim() == 2 else queries[q, label]
            others = references if references.dim() == 2 else references[:, label]
            y = targets[:, label].tolist()
            order = sorted((squared(query, others[i]), i) for i in range(len(y)) if y[i] >= 0)[:k]
            votes = [y[i] for _, i in order]
            row += [math.log((votes.count(c) + 1 / size) / (len(votes) + 1)) for c in range(size)]
        rows.append(row)
    return torch.tensor(rows)
