"""Features of images: computed once by a frozen network, kept in a cache, gathered in batches."""

from rectifier.data.features.cache import CachedFeatures, cached_features
from rectifier.data.features.compute import Compute
from rectifier.data.features.unreadable import unreadable_images

__all__ = ["CachedFeatures", "Compute", "cached_features", "unreadable_images"]
