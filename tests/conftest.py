import pytest
import torch
from hypothesis import HealthCheck, settings

# One thread a worker: two workers share two cores, and small tensors gain nothing from more.
torch.set_num_threads(1)

settings.register_profile(
    "regard", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("regard")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
