"""RectifierClassifier: training, decision and score behind scikit-learn's interface."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin  # type: ignore[import-untyped]
from sklearn.utils import check_random_state  # type: ignore[import-untyped]
from sklearn.utils.metaestimators import available_if  # type: ignore[import-untyped]
from sklearn.utils.validation import check_is_fitted, validate_data  # type: ignore[import-untyped]
from torch import Tensor, nn

from rectifier._base import check
from rectifier.data.dataset import as_size
from rectifier.labels import columns
from rectifier.methods import METHODS, check_method, find_method
from rectifier.networks.registry import default_size
from rectifier.sklearn.fitting import Data, fit_network
from rectifier.sklearn.inputs import FILES, VECTORS, image_array, kind_of, read_files, sample_shape
from rectifier.sklearn.loop import outputs, own_randomness
from rectifier.sklearn.rule import RULES, rule_of
from rectifier.sklearn.targets import balanced_accuracy, decode, encode, find_classes, label_space, read_labels

Array = NDArray[Any]
SUPPORTED = tuple(name for name, method in METHODS.items() if not (method.features or method.decision))
"""The methods that train a classifier. The others decide by features."""


def _has_one_label(self: RectifierClassifier) -> bool:
    if isinstance(getattr(self, "classes_", None), list):
        raise AttributeError("decision_function is for one label. For several, predict_log_proba gives the same.")
    return True


class RectifierClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classify vectors, images or image files whose classes are imbalanced, with any trainable method.

    X is numeric ``(n, features)``, image arrays ``(n, H, W)``, ``(n, H, W, C)`` or ``(n, C, H, W)``, or a list or
    column of file names. y is ``(n,)``, or ``(n, labels)`` for several labels. None, NaN and blanks in y are missing
    labels, which training and ``score`` leave out.

    Args:
        method: a name in ``METHODS`` such as ``"crl"``, ``"balanced-softmax"`` or ``"crl+mixup"``.
        network: ``"auto"`` (``"mlp"`` for vectors, a small ``"resnet32"`` for images), any name that ``build_network``
            takes, an ``nn.Module``, or a function of ``(sizes, shape)`` that returns one. A module maps float tensors
            ``(N, F)`` or ``(N, C, H, W)`` to logits, one column for each class of each label. ``fit`` trains a copy.
        method_options: options of the method, such as ``{"eta": 0.1}`` for CRL.
        network_options: options of the network, such as ``{"hidden": (64, 64)}`` for ``"mlp"``.
        epochs: passes over the training data. The learning rate falls to 0 over all of them.
        batch_size: samples per step.
        learning_rate: first learning rate of AdamW.
        weight_decay: weight decay of AdamW; biases do not decay.
        early_stopping: hold out ``validation_fraction`` of the data, stop after ``patience`` epochs without a better
            class-balanced accuracy on it, and keep the best epoch.
        validation_fraction: share of the data to hold out for early stopping or for a rule that is fitted.
        patience: epochs without improvement before training stops early.
        decision_rule: ``"prior"`` corrects the logits for the class frequencies, ``"argmax"`` leaves them, ``"tuned"``
            fits thresholds on held-out data. ``"auto"`` is ``"prior"``, but ``"argmax"`` for a method that corrects in
            training. Methods with their own rule keep it.
        standardize: subtract the training mean and divide by the deviation, per feature or image channel.
        augment: function that changes a training batch of images ``(N, C, H, W)``, such as a torchvision transform.
        image_size: size to which image files are resized: a number or ``(height, width)``. None is the network's.
        random_state: seed of split, weights and order. Global random states are neither used nor changed.
        device: ``"cpu"``, ``"cuda"``, ..., or ``"auto"``: a GPU for images if there is one, else the CPU.
        verbose: report every epoch.

    Attributes:
        classes_: the classes, or a list of them for several labels.
        label_space_: names of labels and classes, a ``LabelSpace``.
        network_: the trained network; it includes the standardisation.
        rule_: the decision rule, a module of logits; ``"argmax"`` is a ``PriorRule`` with tau 0.
        class_counts_: training samples of each class, one tensor per label.
        n_iter_: number of epochs.
        loss_curve_: mean training loss of each epoch.
        validation_scores_: class-balanced accuracy of each epoch with early stopping, else empty.

    >>> from sklearn.datasets import make_classification
    >>> X, y = make_classification(300, weights=[0.9], random_state=0)
    >>> classifier = RectifierClassifier(epochs=20, random_state=0).fit(X, y)
    >>> classifier.score(X, y) > 0.9
    True
    """

    def __init__(
        self,
        method: str = "crl",
        network: str | nn.Module | Callable[..., nn.Module] = "auto",
        *,
        method_options: Mapping[str, Any] | None = None,
        network_options: Mapping[str, Any] | None = None,
        epochs: int = 100,
        batch_size: int = 128,
        learning_rate: float = 0.01,
        weight_decay: float = 1.0,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        patience: int = 10,
        decision_rule: str = "auto",
        standardize: bool = True,
        augment: Callable[[Tensor], Tensor] | None = None,
        image_size: int | tuple[int, int] | None = None,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        verbose: int = 0,
    ) -> None:
        self.method = method
        self.network = network
        self.method_options = method_options
        self.network_options = network_options
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.decision_rule = decision_rule
        self.standardize = standardize
        self.augment = augment
        self.image_size = image_size
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:  # noqa: N803
        """Fit to X and y. A whole ``sample_weight`` repeats a sample, and 0 leaves it out."""
        self._check_parameters()
        labels = read_labels(y)
        samples = self._read(X, fitting=True)
        labels.check_length(len(samples))
        weights = _checked_weights(sample_weight, len(samples))
        used = (weights > 0) & labels.labelled()
        labels, rows = labels.at(used), torch.from_numpy(used)
        classes = find_classes(labels)
        data = Data(samples[rows], encode(labels, classes), torch.from_numpy(weights)[rows])
        self.label_space_ = label_space(labels, classes)
        self.sample_shape_ = sample_shape(samples)
        self.classes_ = classes[0] if len(classes) == 1 else classes
        seed, device = _seed(self.random_state), self._device(samples)
        with own_randomness(seed, device):
            fitted = fit_network(self, data, self.label_space_, seed, device)
        self.network_, self.rule_, self.class_counts_ = fitted.network, fitted.rule, fitted.counts
        self.loss_curve_, self.validation_scores_ = fitted.curves.losses, fitted.curves.scores
        self.n_iter_ = len(self.loss_curve_)
        return self

    def predict(self, X: Any) -> Array:  # noqa: N803
        """Return the classes ``(n,)``, or ``(n, labels)`` for several labels."""
        return decode(self._predicted(X), self._classes())

    def predict_proba(self, X: Any) -> Array | list[Array]:  # noqa: N803
        """Return probabilities ``(n, classes)``, or a list with one array per label, after the decision rule.

        Under the rule ``"prior"`` they are those of a world where all classes are equally frequent.
        """
        found = self.predict_log_proba(X)
        return [np.exp(own) for own in found] if isinstance(found, list) else np.exp(found)

    def predict_log_proba(self, X: Any) -> Array | list[Array]:  # noqa: N803
        """Return the logarithm of ``predict_proba``."""
        logits = self._adjusted_logits(X)
        by_label = columns.log_softmax(logits, self.label_space_.sizes).split(self.label_space_.sizes, 1)
        return [own.numpy() for own in by_label] if len(by_label) > 1 else by_label[0].numpy()

    @available_if(_has_one_label)  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Array:  # noqa: N803
        """Return the logits after the decision rule, ``(n, classes)``. Of two classes, the second minus the first."""
        logits: Array = self._adjusted_logits(X).numpy()
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """Return the class-balanced accuracy: the mean recall of the classes, and the mean of that over the labels."""
        predicted, labels = self._predicted(X), read_labels(y)
        labels.check_length(len(predicted))
        weights = _checked_weights(sample_weight, len(predicted))
        return balanced_accuracy(predicted, labels, self._classes(), weights)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.target_tags.multi_output = tags.classifier_tags.multi_label = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        if "network_" in state:  # so that a machine without this device can load it
            state["network_"] = deepcopy(state["network_"]).cpu()
        return state

    def _check_parameters(self) -> None:
        share, augment = self.validation_fraction, self.augment
        check.raise_all(
            [
                check.count("epochs", self.epochs),
                check.count("batch_size", self.batch_size),
                check.positive("learning_rate", self.learning_rate),
                check.not_negative("weight_decay", self.weight_decay),
                check.switch("early_stopping", self.early_stopping),
                check.that(
                    "validation_fraction", share, "a number between 0 and 1", check.is_real(share) and 0 < share < 1
                ),
                check.count("patience", self.patience),
                check.choice("decision_rule", self.decision_rule, RULES),
                check.switch("standardize", self.standardize),
                check.that("augment", augment, "a function, or None", augment is None or callable(augment)),
                check.that("network", self.network, "a name, a module or a function", _is_network(self.network)),
            ]
        )
        method, options = find_method(self.method), self.method_options or {}
        if method.features or method.decision:
            listed = f"one of {', '.join(SUPPORTED)}, or several joined by +"
            check.fail("method", listed, f"{self.method!r}, which decides by features")
        check.options_of(f"method {self.method!r}", options, method.options)
        check_method(self.method, self.epochs, options)
        rule_of(self.method, self.decision_rule)

    def _read(self, x: Any, fitting: bool = False) -> Tensor:
        """Return X as a tensor: float64 vectors, or images in bytes or float32."""
        kind = kind_of(x)
        if kind == VECTORS:
            vectors = validate_data(self, x, dtype=np.float64, reset=fitting)
            samples = torch.from_numpy(np.array(vectors))  # a copy, because memory maps may be read-only
        elif kind == FILES:
            samples = read_files(x, *self._file_shape(fitting))
        else:
            samples = image_array(x)
        if fitting and kind != VECTORS:  # of an earlier fit to vectors
            for name in ("n_features_in_", "feature_names_in_"):
                self.__dict__.pop(name, None)
        elif not fitting and sample_shape(samples) != self.sample_shape_:
            shape = sample_shape(samples)
            check.fail("X", f"of samples of shape {self.sample_shape_}, as in fit", f"samples of shape {shape}")
        return samples

    def _file_shape(self, fitting: bool) -> tuple[int, ...]:
        """Return height, width and channels to decode files to: those of the fit, if there was one."""
        if fitting:
            name = self.network if isinstance(self.network, str) else ""
            return (*(as_size(self.image_size) or default_size("resnet32" if name == "auto" else name)), 3)
        if len(self.sample_shape_) == 1:
            check.fail("X", f"vectors of {self.sample_shape_[0]} features, as in fit", FILES)
        return self.sample_shape_

    def _device(self, samples: Tensor) -> torch.device:
        if self.device == "auto":
            return torch.device("cuda" if samples.dim() == 4 and torch.cuda.is_available() else "cpu")
        try:
            return torch.device(self.device)
        except (RuntimeError, TypeError):
            check.fail("device", "'auto' or a device of PyTorch such as 'cpu' or 'cuda'", repr(self.device))

    def _classes(self) -> list[Array]:
        return self.classes_ if isinstance(self.classes_, list) else [self.classes_]

    def _adjusted_logits(self, x: Any) -> Tensor:
        check_is_fitted(self, "network_")
        samples = self._read(x)
        logits, _ = outputs(self.network_, samples, self._device(samples))
        adjusted: Tensor = self.rule_(logits.double())
        return adjusted

    def _predicted(self, x: Any) -> Tensor:
        """Return the number of the best class of each label, ``(n, labels)``."""
        return columns.argmax(self._adjusted_logits(x), self.label_space_.sizes)


def _is_network(network: object) -> bool:
    return isinstance(network, str) or callable(network)  # a module is callable


def _seed(random_state: Any) -> int:
    """Return a seed. None takes it from the system, because NumPy's global state is for others."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    return int(check_random_state(random_state).randint(2**31 - 1))


def _checked_weights(weights: Any, samples: int) -> NDArray[np.float64]:
    if weights is None:
        return np.ones(samples)
    found = np.asarray(weights, np.float64)
    if found.ndim == 0:
        found = np.full(samples, float(found))
    if found.shape != (samples,):
        check.fail("sample_weight", f"of shape ({samples},)", f"shape {found.shape}")
    if not np.isfinite(found).all() or (found < 0).any():
        check.fail("sample_weight", "numbers of at least 0", "negative, infinite or missing ones")
    if not found.any():
        raise ValueError("All weights in sample_weight are zero.")
    return found
