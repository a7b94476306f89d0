"""How cross-entropy is trained best, as validation sees it: before any method is compared."""

from rectifier.reproduce import Cell, Experiment, views

from .recipes import CELEBA, CIFAR, FASHION, HELD_OUT, QUICK_ONE_LABEL

STEP = {"schedule": "step", "milestones": [0.5, 0.75], "decay": 0.1}
_CIFAR = {**CIFAR, "data": f"cifar100:imb=1,{HELD_OUT}"}
_OF_CIFAR = {"a cosine": {}, "a step schedule": STEP, "a cosine, decay 0.001": {"weight_decay": 0.001}}

TRIED = {
    "CelebA, DeepID2": (
        CELEBA,
        {
            "the paper's rate 0.001 and decay 0.0005": {"lr": 0.001, "weight_decay": 0.0005},
            "rate 0.02": {"weight_decay": 0.0005},
            "rate 0.02, 120 epochs": {"weight_decay": 0.0005, "epochs": 120},
            "rate 0.02, decay 0.001": {"weight_decay": 0.001},
            "rate 0.02, decay 0.002": {},
            "rate 0.02, decay 0.004": {"weight_decay": 0.004},
            "rate 0.02, dropout": {"weight_decay": 0.0005, "network.dropout": 0.5},
            "rate 0.02, dropout, decay 0.002": {"network.dropout": 0.5},
            "rate 0.02, dropout, decay 0.002, 30 epochs": {"network.dropout": 0.5, "epochs": 30},
            "rate 0.05, dropout, decay 0.002": {"network.dropout": 0.5, "lr": 0.05},
        },
    ),
    "fashion products, MTCT": (
        FASHION,
        {
            "the paper's rate 0.001": {"lr": 0.001},
            "rate 0.01": {},
            "rate 0.02": {"lr": 0.02},
            "rate 0.05": {"lr": 0.05},
            "rate 0.02, 60 epochs": {"lr": 0.02, "epochs": 60},
            "rate 0.02, decay 0.002": {"lr": 0.02, "weight_decay": 0.002},
            "rate 0.02, dropout": {"lr": 0.02, "network.dropout": 0.5},
            "rate 0.02, images of 128 x 96": {"lr": 0.02, "size": "128x96"},
            "rate 0.02, batches of 256": {"lr": 0.02, "batch_size": 256},
        },
    ),
    "CIFAR-100 imb(1), ResNet32": (_CIFAR, {**_OF_CIFAR, "a cosine, decay 0.002": {"weight_decay": 0.002}}),
    "CIFAR-100 imb(1), CifarNet": ({**_CIFAR, "network": "cifarnet"}, _OF_CIFAR),
    "CIFAR-100 imb(1), DenseNet": ({**_CIFAR, "network": "densenet"}, _OF_CIFAR),
}
TAKEN = {
    "CelebA, DeepID2": "rate 0.02, decay 0.002",
    "fashion products, MTCT": "rate 0.01",
    **{f"CIFAR-100 imb(1), {network}": "a cosine" for network in ("ResNet32", "CifarNet", "DenseNet")},
}

EXPERIMENT = Experiment(
    title="How cross-entropy is trained best, as validation sees it",
    source="Not in the paper, which states rates and epochs, but no schedules; its images are four times as many",
    about=(
        "Class-balanced accuracy on validation under the rule that it prefers there. What is taken holds for every"
        " method of the tables. On CIFAR-100 the tables keep the paper's decay, whatever does better here;"
        " readings-cifar100 has the other ones."
    ),
    show=views.validation(TAKEN),
    cells=[
        Cell(row, column, {**recipe, **settings, "method": "ce"})
        for column, (recipe, tried) in TRIED.items()
        for row, settings in tried.items()
    ],
    quick=QUICK_ONE_LABEL,
    seeds=2,
)
