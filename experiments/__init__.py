"""The paper's tables and figures, one short file each. ``rectifier reproduce NAME`` runs one.

``paper.py`` holds the paper's numbers, ``recipes.py`` how networks are trained where the paper does not say.
"""
