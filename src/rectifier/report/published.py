"""What the paper reports about its data sets: imbalance ratios and numbers of images, each with its table.

Tables and sections are those of "Imbalanced Deep Learning by Minority Class Incremental Rectification"
(Dong, Gong, Zhu). A ratio of 43 means 1 : 43, smallest to largest class of the training images.
"""

from __future__ import annotations

from typing import Any, Final

Published = dict[str, Any]
"""A ``ratio`` of the paper with its ``source``; for a data set as a whole also the images of each part."""

_DEEPFASHION = "Table 1, Section 4.2"

# Tables 1 and 2; Section 4.2 gives the images of DeepFashion.
DATA: Final[dict[str, Published]] = {
    "celeba": {"ratio": 43, "total": 202_599, "train": 162_770, "test": 19_867, "source": "Tables 1, 2"},
    "xdomain": {"ratio": 4_162, "total": 245_467, "train": 165_467, "test": 80_000, "source": "Tables 1, 2"},
    "cifar100": {"ratio": 1, "total": 60_000, "train": 50_000, "test": 10_000, "source": "Tables 1, 2"},
    "deepfashion": {"ratio": 733, "train": 209_222, "validation": 40_000, "test": 40_000, "source": _DEEPFASHION},
}

# Table 3, in its order, as ratios and CelebA's own names of the attributes.
_CELEBA_BY_RATIO: Final = """
    1 Attractive Mouth_Slightly_Open Smiling Wearing_Lipstick High_Cheekbones Male
    2 Heavy_Makeup Wavy_Hair
    3 Oval_Face Pointy_Nose Arched_Eyebrows Black_Hair Big_Lips Big_Nose
    4 Young Straight_Hair Brown_Hair Bags_Under_Eyes Wearing_Earrings
    5 No_Beard
    6 Bangs Blond_Hair Bushy_Eyebrows
    7 Wearing_Necklace
    8 Narrow_Eyes 5_o_Clock_Shadow
    11 Receding_Hairline
    13 Wearing_Necktie
    14 Eyeglasses Rosy_Cheeks
    15 Goatee
    16 Chubby
    17 Sideburns
    18 Blurry
    19 Wearing_Hat
    20 Double_Chin
    22 Pale_Skin
    23 Gray_Hair
    24 Mustache
    43 Bald
"""
CELEBA: Final[dict[str, int]] = {
    name: int(ratio) for ratio, *names in map(str.split, _CELEBA_BY_RATIO.strip().splitlines()) for name in names
}

# Table 5.
XDOMAIN: Final[dict[str, int]] = {
    "category": 2,
    "colour": 138,
    "collar": 210,
    "button": 242,
    "pattern": 476,
    "shape": 2_138,
    "length": 3_401,
    "sleeve-shape": 4_115,
    "sleeve-length": 4_162,
}

# Table 7. Each is a group of attributes; its ratio compares their numbers of images.
DEEPFASHION: Final[dict[str, int]] = {"texture": 733, "fabric": 393, "shape": 314, "part": 350, "style": 149}

_BY_LABEL: Final = {
    "celeba": (CELEBA, "Table 3"),
    "xdomain": (XDOMAIN, "Table 5"),
    "deepfashion": (DEEPFASHION, "Table 7"),
}


def published_data(name: str) -> Published | None:
    """Return what the paper says about a data set as a whole, or None.

    >>> published_data("celeba:split=paper")["train"]
    162770
    >>> published_data("cifar100:imb=1") is None  # the paper does not say how many images it kept
    True
    """
    base, made = _parse(name)
    return None if made else DATA.get(base)


def published_ratio(name: str, label: str) -> Published | None:
    """Return the paper's ratio for one label, or group of labels, of a data set; None if it gives none.

    >>> published_ratio("celeba", "Bald")
    {'ratio': 43, 'source': 'Table 3'}
    >>> published_ratio("cifar100:imb=1", "class"), published_ratio("cifar100", "class")
    ({'ratio': 20, 'source': 'Section 4.3'}, {'ratio': 1, 'source': 'Table 1'})
    """
    base, made = _parse(name)
    if "largest=" in name:  # other sizes than the paper's
        return None
    if base == "cifar100":  # one label, under any name; the paper's rule makes 500 : 25
        known = {"": (1, "Table 1"), "bln": (1, "Section 4.3"), "imb": (20, "Section 4.3")}.get(made)
    else:
        ratios, source = _BY_LABEL.get(base, ({}, ""))
        known = (ratios[label], source) if label in ratios else None
    return {"ratio": known[0], "source": known[1]} if known else None


def _parse(name: str) -> tuple[str, str]:
    """Split the name of opened data into the data set and the option that sets its class sizes, if any."""
    base, _, options = name.partition(":")
    pairs = [option.partition("=")[::2] for option in options.split(",")]
    made, value = next((pair for pair in pairs if pair[0] in ("imb", "bln", "exp", "step")), ("", ""))
    beyond = made in ("imb", "bln") and not 0.2 <= float(value) <= 1  # the paper's gammas
    return base, f"{made} beyond the paper's" if beyond else made
