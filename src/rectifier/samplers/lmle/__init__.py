"""The batches of LMLE: clusters within each class, and quintuplets mined from them."""
