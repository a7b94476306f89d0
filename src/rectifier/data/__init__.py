"""Data: readers of the benchmarks and of one's own images, the store of decoded pixels, and the loader of batches."""
