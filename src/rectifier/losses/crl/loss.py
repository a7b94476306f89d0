"""The Class Rectification Loss: find minority classes, mine hard samples, compare them."""

from __future__ import annotations

import torch
from torch import Tensor

from rectifier.labels import columns
from rectifier.labels.columns import Sizes
from rectifier.labels.space import LabelSpace
from rectifier.losses.crl.choosing import Chosen, choose
from rectifier.losses.crl.choosing import Rectification as Rectification
from rectifier.losses.crl.design import Design, make_design
from rectifier.losses.crl.memory import Memory, make_memory
from rectifier.losses.crl.scores import Scores
from rectifier.losses.inputs import no_autocast, prepare
from rectifier.losses.module import in_training
from rectifier.losses.sample import check_reduction, reduce_labels


def class_rectification_loss(
    logits: Tensor,
    targets: Tensor,
    features: Tensor | None = None,
    *,
    level: str = "class",
    comparison: str = "relative",
    kappa: int = 25,
    rho: float = 0.5,
    margin: float | None = None,
    scope: str = "minority",
    mining: str = "hard",
    bins: int = 100,
    normalize: bool = False,
    sizes: Sizes | None = None,
    label_reduction: str = "sum",
    generator: torch.Generator | None = None,
    gather: bool = False,
    scores: str = "probability",
    anchors: str = "all",
) -> Tensor:
    """Compute the Class Rectification Loss of a batch; see ``ClassRectificationLoss`` for the options.

    With ``gather``, all ranks must call it, because each waits for the others.

    >>> logits = torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 0.5], [0.0, 1.0], [1.0, 0.0]])
    >>> class_rectification_loss(logits, torch.tensor([0, 0, 1, 1, 0]))
    tensor(0.1514)
    """
    if torch.compiler.is_compiling():
        kappa, bins = len(range(kappa)), len(range(bins))  # constants, even if a graph has a symbol for every number
    design = make_design(level, comparison, kappa, rho, margin, scope, mining, bins, normalize, scores, anchors)
    per_label = _per_label(logits, targets, features, sizes, design, generator, gather)
    return reduce_labels(per_label, check_reduction(label_reduction))


class ClassRectificationLoss(torch.nn.Module):
    """The Class Rectification Loss (CRL) of Dong, Gong and Zhu: rectify the minority classes of every batch.

    For each label of a batch: take the minority classes (Eq. 3), mine their hard positives and negatives (Eqs. 4 to 7)
    and compare them (Eqs. 9 to 16). Call it as ``loss(logits, targets, features=None)`` with logits ``(N, K)``, integer
    targets ``(N,)`` or ``(N, A)`` (negative where missing) and, for the instance level, features ``(N, D)`` or ``(N, A,
    D)``. Pass logits, never probabilities.

    Args:
        level: ``"class"`` compares scores of a class, ``"instance"`` distances between features.
        comparison: ``"relative"`` (triplets), ``"absolute"`` (pairs) or ``"distribution"`` (histograms).
        kappa: Number of hard positives, and of hard negatives, to mine.
        rho: Minority classes together hold at most this share of the samples.
        margin: None for the paper's: class level 0.5; instance level 2 pi / classes (relative), 1 (absolute). The
            distribution comparison has none. For log-probabilities: 1.
        scope: Rectify the ``"minority"`` classes or ``"all"`` classes of the batch.
        mining: Take the ``"hard"`` samples, ``"random"`` ones, or ``"all"``.
        bins: Number of histogram nodes (distribution).
        normalize: Scale features to unit length first (instance level).
        sizes: Number of classes of each label, or a LabelSpace. None is one label with all columns.
        label_reduction: ``"sum"`` over labels (the paper's), ``"mean"``, or ``"none"`` for ``(A,)``.
        generator: Random generator of ``mining="random"``. None is PyTorch's default generator of the device.
        gather: Under ``torch.distributed``, mine in the joined batch of all ranks, in training mode with gradients.
        scores: The class level compares the ``"probability"`` of a class (the paper's) or its ``"log-probability"``,
            which keeps a gradient where the softmax is saturated. Not for the distribution comparison.
        anchors: Use ``"all"`` samples of a mined class as anchors (the paper's), or only the ``"easy"`` ones: the kappa
            with the highest probability (Wang et al. 2019, Dynamic Curriculum Learning).
        memory: Mine and compare this many recent samples with each batch, so that rare classes have more positives.
            Needs ``sizes``. Only the batch gets a gradient, but the mean is over all samples, so a large memory weakens
            the loss. Evaluation mode stores nothing. 0 is the paper's.
        memory_age: Ignore samples seen more than this many batches ago. None keeps all samples in memory.

    >>> loss = ClassRectificationLoss(sizes=[2, 3])
    >>> loss(torch.zeros(4, 5), torch.tensor([[0, 2], [0, 2], [1, -1], [1, 1]]))
    tensor(0.5000)
    """

    def __init__(
        self,
        level: str = "class",
        comparison: str = "relative",
        kappa: int = 25,
        rho: float = 0.5,
        margin: float | None = None,
        scope: str = "minority",
        mining: str = "hard",
        bins: int = 100,
        normalize: bool = False,
        sizes: Sizes | None = None,
        label_reduction: str = "sum",
        generator: torch.Generator | None = None,
        gather: bool = False,
        scores: str = "probability",
        anchors: str = "all",
        memory: int = 0,
        memory_age: int | None = None,
    ) -> None:
        super().__init__()
        self.design = Design(
            level, comparison, kappa, rho, margin, scope, mining, bins, normalize, scores, anchors
        ).checked()
        self.sizes = None if sizes is None else columns.kept_sizes(sizes)
        self.label_reduction = check_reduction(label_reduction)
        self.generator, self.gather = generator, gather
        self.memory = make_memory(memory, self.sizes, memory_age)

    def forward(self, logits: Tensor, targets: Tensor, features: Tensor | None = None) -> Tensor:
        gather = self.gather and in_training(self)
        how = (self.sizes, self.design, self.generator, gather, self.memory)
        return reduce_labels(_per_label(logits, targets, features, *how), self.label_reduction)

    def extra_repr(self) -> str:
        return self.design.described()


def _per_label(
    logits: Tensor,
    targets: Tensor,
    features: Tensor | None,
    sizes: Sizes | None,
    design: Design,
    generator: torch.Generator | None,
    gather: bool,
    memory: Memory | None = None,
) -> Tensor:
    if torch.compiler.is_compiling() and not isinstance(sizes, LabelSpace):  # constants, too
        listed = logits.shape[1:] if sizes is None else (sizes,) if isinstance(sizes, int) else sizes
        sizes = tuple(len(range(size)) for size in listed)
    with no_autocast(logits):
        given = prepare(logits, targets, features, sizes, design.level, gather)
        scores = given.logits
        if design.reads_scores or memory is not None:
            score = columns.log_softmax if design.scores == "log-probability" else columns.softmax
            scores = score(given.logits, given.sizes)
        chosen = _plan(scores, False, given.targets, given.features, given.sizes, design, generator, gather, memory)
        return chosen.losses(*columns.take(scores, [chosen.places]))[0]


def plan(
    log_p: Tensor,
    targets: Tensor,
    features: Tensor | None,
    sizes: tuple[int, ...],
    design: Design,
    generator: torch.Generator | None = None,
    gather: bool = False,
    memory: Memory | None = None,
) -> Chosen:
    """Choose what to compare, from log-probabilities ``(N, K)`` and checked targets ``(N, A)``.

    Read ``log_p`` at the chosen places, with whatever else a loss reads of it, and hand it to ``compare``.
    """
    exponential = design.scores == "probability"
    return _plan(log_p, exponential, targets, features, sizes, design, generator, gather, memory)


def rectify(
    scores: Tensor,
    targets: Tensor,
    features: Tensor | None,
    sizes: tuple[int, ...],
    design: Design,
    generator: torch.Generator | None = None,
    gather: bool = False,
    memory: Memory | None = None,
) -> Rectification:
    """Compute the loss of every label from probabilities ``(N, K)`` and checked targets ``(N, A)``.

    For ``design.scores = "log-probability"``, ``scores`` are log-probabilities.
    """
    chosen = _plan(scores, False, targets, features, sizes, design, generator, gather, memory)
    return chosen.compare(*columns.take(scores, [chosen.places]))


def _plan(
    values: Tensor,
    exponential: bool,
    targets: Tensor,
    features: Tensor | None,
    sizes: tuple[int, ...],
    design: Design,
    generator: torch.Generator | None,
    gather: bool,
    memory: Memory | None,
) -> Chosen:
    negative = design.scores == "log-probability"
    if memory is None:
        return choose(Scores(values, exponential, negative), targets, features, sizes, design, generator, gather)
    joined, targets, features = memory(values.exp() if exponential else values, targets, features)
    chosen = choose(Scores(joined, negative=negative), targets, features, sizes, design, generator, gather)
    # Its places are in batch and memory together, so the caller reads nothing.
    return chosen._replace(
        places=chosen.places[:0], losses=lambda _: chosen.losses(*columns.take(joined, [chosen.places]))
    )
