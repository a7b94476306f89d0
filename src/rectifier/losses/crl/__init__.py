"""The Class Rectification Loss, one file per step of the paper's section 3."""
