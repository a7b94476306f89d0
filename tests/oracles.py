"""Slow twins: obvious loop versions of everything vectorised, written from the paper and the design, not the code.

Scalars are kept as tensors only so that autograd gives the gradients to compare with.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

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


def cosine_logits(features: Tensor, weight: Tensor, sizes: list[int]) -> Tensor:
    """Return 30 times each sample's cosine with each class, 0 where one has no direction."""
    rows = []
    for sample in features:
        row, column = [], 0
        for label, size in enumerate(sizes):
            own = sample if sample.dim() == 1 else sample[label]
            for _ in range(size):
                row.append(30 * cosine(own.unbind(), weight[column].unbind()))
                column += 1
        rows.append(torch.stack(row))
    return torch.stack(rows)


def cosine(x: tuple[Tensor, ...], y: tuple[Tensor, ...]) -> Tensor:
    dot = sum(a * b for a, b in zip(x, y, strict=True))
    squares = sum(a * a for a in x) * sum(b * b for b in y)
    return dot / squares.sqrt() if squares > 0 else 0 * dot


def part_by_part(
    weights: list[tuple[Tensor, Tensor]], images: Tensor, windows: list[tuple[int, int, int, int]], side: int
) -> Tensor:
    """Return PANDA's features: one part after the other, each by a network of its own.

    ``weights`` are those of the four convolutions and of the fully connected layer, all parts in turn in each.
    """
    features = []
    for part, (top, bottom, left, right) in enumerate(windows):
        maps = images[:, :, top:bottom, left:right]
        maps = torch.nn.functional.interpolate(maps, (side, side), mode="bilinear", antialias=True)
        for weight, bias in weights[:-1]:
            own, added = weight.chunk(len(windows))[part], bias.chunk(len(windows))[part]
            maps = torch.nn.functional.conv2d(maps, own, added, padding=own.shape[-1] // 2).clamp(min=0)
            maps = response_norm(torch.nn.functional.max_pool2d(maps, 2))
        weight, bias = (tensor.chunk(len(windows))[part] for tensor in weights[-1])
        features.append((maps.flatten(1) @ weight.flatten(1).T + bias).clamp(min=0))
    return torch.cat(features, 1)


def response_norm(maps: Tensor) -> Tensor:
    """Divide by (1 + 0.0001 / 5 times the squares of 5 neighbouring maps) to the power of 0.75, map by map."""
    normalised = []
    for c in range(maps.shape[1]):
        squares = maps[:, max(0, c - 2) : c + 3].square().sum(1)
        normalised.append(maps[:, c] / (1 + 0.0001 / 5 * squares) ** 0.75)
    return torch.stack(normalised, 1)


def log_softmax_of(z: list[Tensor]) -> list[Tensor]:
    """Log-probabilities of one sample under one label, from its logits."""
    total = torch.logsumexp(torch.stack(z), 0)
    return [value - total for value in z]


def sample_losses(name: str, logits: Tensor, targets: Tensor, sizes: list[int], **options: Any) -> Tensor:
    """The loss of every sample under every label, ``(N, A)``, one at a time; 0 where missing."""
    rows = []
    for i in range(len(logits)):
        row, start = [], 0
        for label, size in enumerate(sizes):
            z, y = list(logits[i, start : start + size]), int(targets[i, label])
            counts = options["counts"][label].tolist() if "counts" in options else None
            row.append(logits.sum() * 0 if y < 0 else ONE_SAMPLE[name](z, y, counts, options))
            start += size
        rows.append(torch.stack(row))
    return torch.stack(rows) if rows else logits.new_zeros(0, len(sizes))


def one_cross_entropy(z: list[Tensor], y: int, counts: Any, options: dict[str, Any]) -> Tensor:
    return -log_softmax_of(z)[y]


def one_focal(z: list[Tensor], y: int, counts: Any, options: dict[str, Any]) -> Tensor:
    log_p = log_softmax_of(z)[y]
    return -((1 - log_p.exp()) ** options["gamma"]) * log_p


def one_adjusted(z: list[Tensor], y: int, counts: Any, options: dict[str, Any]) -> Tensor:
    held = [max(n, 0.5) for n in counts]
    return -log_softmax_of([v + options["tau"] * math.log(n / sum(held)) for v, n in zip(z, held, strict=True)])[y]


def one_ldam(z: list[Tensor], y: int, counts: Any, options: dict[str, Any]) -> Tensor:
    rarest = min((n for n in counts if n > 0), default=1)
    widths = [(n if n > 0 else rarest) ** -0.25 for n in counts]
    margin = options["largest"] * widths[y] / max(widths)
    cosines = [v / options["scale"] for v in z]
    return -log_softmax_of([options["scale"] * (v - margin if c == y else v) for c, v in enumerate(cosines)])[y]


def one_asymmetric(z: list[Tensor], y: int, counts: Any, options: dict[str, Any]) -> Tensor:
    p = log_softmax_of(z)[1].exp()
    if y == 1:
        return -((1 - p) ** options["positive"]) * p.log()
    shifted = torch.relu(p - options["shift"])
    return -(shifted ** options["negative"]) * (1 - shifted).log()


ONE_SAMPLE = {
    "cross-entropy": one_cross_entropy,
    "focal": one_focal,
    "adjusted": one_adjusted,
    "ldam": one_ldam,
    "asymmetric": one_asymmetric,
}


def weighted_means(
    sides: list[tuple[Tensor, Tensor, Tensor]], sizes: list[int], weights: Tensor | None = None
) -> Tensor:
    """Per label the mean over samples and sides; a side is (losses, targets, share), all ``(N, A)``.

    With two sides, a label that one of them lacks is the other's alone.
    """
    means, start = [], 0
    for label, size in enumerate(sizes):
        total, weight = sides[0][0].sum() * 0, 0.0
        for i in range(len(sides[0][0])):
            present = [side for side in sides if side[1][i, label] >= 0]
            for losses, targets, share in present:
                part = float(share[i, label]) if len(present) == len(sides) else 1.0
                part *= 1.0 if weights is None else float(weights[start + int(targets[i, label])])
                total, weight = total + part * losses[i, label], weight + part
        means.append(total / weight if weight > 0 else total)
        start += size
    return torch.stack(means)


def effective_number_weights(counts: list[int], beta: float) -> list[float]:
    """Of one label: (1 - beta) / (1 - beta^n) as the sum 1 + beta + ... of n terms, turned over; mean 1."""
    raw = [1 / sum(beta**j for j in range(max(n, 1))) for n in counts]
    present = [w for w, n in zip(raw, counts, strict=True) if n > 0]
    return [w / (sum(present) / len(present)) for w in raw]


def easy_anchors(scores: list[float], labels: list[int], c: int, kappa: int) -> list[int]:
    """The kappa best scored samples of class c."""
    own = [i for i, y in enumerate(labels) if y == c]
    return sorted(own, key=lambda i: (-scores[i], i))[:kappa]


def extended_crl(
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
    scores: str = "probability",
    anchors: str = "all",
) -> Tensor:
    """The Class Rectification Loss per label, with log-probabilities or easy anchors."""
    losses, start = [], 0
    zero = logits.sum() * 0 + (0 if features is None else features.sum() * 0)
    for label, size in enumerate(sizes):
        y = targets[:, label].tolist()
        z = logits[:, start : start + size]
        s = torch.log_softmax(z, 1) if scores == "log-probability" else torch.softmax(z, 1)
        f = None if features is None else features if features.dim() == 2 else features[:, label]
        found = []
        for c in mined(y, size, rho, scope):
            every = [i for i, own in enumerate(y) if own == c]
            chosen = easy_anchors(s[:, c].tolist(), y, c, kappa) if anchors == "easy" else every
            pairs = anchors_of_label(s, f, y, [c], level, kappa)  # one for each sample of c, in order
            found += [pair for i, pair in zip(every, pairs, strict=True) if i in chosen]
        default = 1.0 if scores == "log-probability" else 0.5
        if level == "instance":
            default = 2 * math.pi / size if comparison == "relative" else 1.0
        m = default if margin is None else margin
        if comparison == "relative":
            losses.append(relative(found, m, zero))
        elif comparison == "absolute":
            losses.append(absolute(found, m, zero))
        else:
            losses.append(distribution(found, level, 100, zero))
        start += size
    return torch.stack(losses)


def negative_log_likelihood(logits: Tensor, targets: Tensor, sizes: list[int]) -> list[float]:
    """Of each label the sum over the samples that have it."""
    totals = []
    for label, p in enumerate(softmax_per_label(logits.double(), sizes)):
        totals.append(sum(-p[i, y].log().item() for i, y in enumerate(targets[:, label].tolist()) if y >= 0))
    return totals


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
            anywhere = [distance[j] for j in range(len(distance)) if class_of[j] == c]
            if not anywhere:
                row.append(never)
            elif not own:
                row.append(-max(distance) - min(anywhere))
            else:
                row.append(min(others) - max(own) if others else 0.0)
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


def mixed_images(images: Tensor, share: list[float]) -> Tensor:
    """Each image times its share, plus the next image of the batch times the rest, pixel by pixel."""
    rows = []
    for i, image in enumerate(images):
        other = images[(i + 1) % len(images)].flatten().tolist()
        pixels = [share[i] * x + (1 - share[i]) * y for x, y in zip(image.flatten().tolist(), other, strict=True)]
        rows.append(torch.tensor(pixels, dtype=images.dtype).view(image.shape))
    return torch.stack(rows)


def remixed_shares(
    share: list[float], targets: list[list[int]], counts: list[list[int]], kappa: float, tau: float
) -> list[list[float]]:
    """Remix's share of every label, from the definition: ratios of class sizes."""
    rows = []
    for i, own in enumerate(targets):
        row = []
        for label, (y, z) in enumerate(zip(own, targets[(i + 1) % len(targets)], strict=True)):
            value = share[i]
            if y >= 0 and z >= 0:
                ratio = max(counts[label][y], 0.5) / max(counts[label][z], 0.5)
                if ratio >= kappa and share[i] < tau:
                    value = 0.0
                elif ratio <= 1 / kappa and 1 - share[i] < tau:
                    value = 1.0
            row.append(value)
        rows.append(row)
    return rows


def head_logits(features: Tensor, weight: Tensor, bias: Tensor | None, sizes: list[int]) -> Tensor:
    """Every logit by itself: the sum over its label's features times its class's weights, plus its bias."""
    rows = []
    for n in range(len(features)):
        row, column = [], 0
        for label, size in enumerate(sizes):
            own = features[n] if features.dim() == 2 else features[n, label]
            for _ in range(size):
                products = [own[d] * weight[column, d] for d in range(len(own))]
                row.append(sum(products) + (0 if bias is None else bias[column]))
                column += 1
        rows.append(torch.stack(row))
    return torch.stack(rows)


def length_to_the(row: list[float], tau: float) -> float:
    return float(sum(x * x for x in row) ** (tau / 2))


def calibration_error_of(probabilities: list[list[float]], own: list[int], decided: list[int], bins: int) -> float:
    """Of one label whose samples all have it: in each bin of confidence, how far it is from the share of right ones."""
    cells: dict[int, list[tuple[float, bool]]] = {}
    for p, y, d in zip(probabilities, own, decided, strict=True):
        cells.setdefault(min(int(p[d] * bins), bins - 1), []).append((p[d], y == d))
    gaps = [abs(sum(p for p, _ in cell) - sum(hit for _, hit in cell)) for cell in cells.values()]
    return sum(gaps) / len(own)


def remembered_rows(rows: list[int], samples: int, age: int | None) -> list[tuple[int, int]]:
    """Which (batch, row) are remembered after batches of so many rows: the last ones, none too old, newest first."""
    newest_first = [(batch, row) for batch in reversed(range(len(rows))) for row in reversed(range(rows[batch]))]
    return [(b, row) for b, row in newest_first[:samples] if age is None or len(rows) - b <= age]


def crl_with_memory(
    past: list[tuple[Tensor, Tensor, Tensor]],
    batch: tuple[Tensor, Tensor, Tensor],
    *,
    samples: int,
    age: int | None,
    **options: Any,
) -> Tensor:
    """The Class Rectification Loss per label of (logits, targets, features) and what is remembered of past batches."""
    joined = [[part] for part in batch]
    for b, row in remembered_rows([len(targets) for _, targets, _ in past], samples, age):
        for parts, old in zip(joined, past[b], strict=True):
            parts.append(old[row : row + 1].detach())
    return extended_crl(*(torch.cat(parts) for parts in joined), **options)


def lmle(
    targets: Tensor, features: Tensor, rows: int, margins: tuple[float, float, float]
) -> tuple[list[Tensor], list[int]]:
    """The mean of each label's hinges over its quintuplets that count, and how many these are.

    A batch is (a, p+, p-, p--, n), each ``rows`` long; several such batches may follow each other.
    """
    labels = targets.shape[1]
    hinges: list[list[Tensor]] = [[] for _ in range(labels)]
    for first in range(0, len(targets), 5 * rows):
        for r in range(rows):
            label = r % labels
            five = [first + role * rows + r for role in range(5)]
            *same, other = (int(targets[i, label]) for i in five)
            if same[0] >= 0 and other >= 0 and set(same) == {same[0]} and other != same[0]:
                x = [features[i] if features.dim() == 2 else features[i, label] for i in five]
                hinges[label].append(quintuplet_hinges([x], margins))
    return [sum(own, features.sum() * 0) / max(1, len(own)) for own in hinges], [len(own) for own in hinges]
