"""Random programs leave the process as other tests expect it."""

import logging
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True, scope="package")
def _settings_put_back() -> Iterator[None]:
    level = logging.getLogger("glowplug").level
    threads, always = torch.get_num_threads(), torch.is_warn_always_enabled()
    yield
    logging.getLogger("glowplug").setLevel(level)
    torch.set_num_threads(threads)
    torch.set_warn_always(always)
