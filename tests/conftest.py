from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import HealthCheck, settings

# The same cases on every machine: a failure found anywhere can be repeated everywhere.
settings.register_profile(
    "tests", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile("tests")
torch.set_num_threads(1)  # tests run side by side


@pytest.fixture(autouse=True, scope="session")
def _cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep decoded images and features out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RECTIFIER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def _no_autocast_left_behind() -> Iterator[None]:
    """Leave every autocast level: the compiler can leave one open, and then bfloat16 weights are cast once for ever."""
    yield
    for _ in range(torch.autocast_increment_nesting()):
        torch.autocast_decrement_nesting()
    torch.clear_autocast_cache()
