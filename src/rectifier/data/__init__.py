"""Data: readers of benchmarks and of your own images, the store of decoded pixels, and the loader of batches."""
