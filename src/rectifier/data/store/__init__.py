"""The store: every image decoded once, in memory-mapped files."""

from rectifier.data.store.build import available_cores, build_store
from rectifier.data.store.manifest import is_store, open_store, unreadable_images

__all__ = ["available_cores", "build_store", "is_store", "open_store", "unreadable_images"]
