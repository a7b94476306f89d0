from __future__ import annotations

import torch
from hypothesis import HealthCheck, settings

# The same cases on every machine: a failure found anywhere can be repeated everywhere.
settings.register_profile(
    "tests", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile("tests")
torch.set_num_threads(1)  # tests run side by side
