"""Random programs give compiled what they give eagerly."""

import pytest

from .workers import Summary, run_seeds


def holds(summary: Summary) -> None:
    print(summary)
    assert not summary.failures, "\n\n".join(map(str, summary.failures))
    # Programs that stay eager would prove nothing.
    assert summary.replayed > 1 / 3


def test_random_programs() -> None:
    holds(run_seeds(list(range(1, 501))))


@pytest.mark.slow
def test_many_random_programs() -> None:
    holds(run_seeds(list(range(1000, 21000))))
