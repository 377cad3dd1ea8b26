"""Learned sizes cost less than those asked for, and no less than who knows each need pays."""

from research.size import run


def test_two_days_of_learning_pay() -> None:
    accounts, _ = run(1, 48)
    asked, applied, known = (sum(accounts[n].dollars) for n in ("asked", "applied", "known"))

    assert known < applied < 0.7 * asked
    assert sum(accounts["applied"].killed) < 0.01 * sum(accounts["applied"].jobs)
