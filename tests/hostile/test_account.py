"""Some accounts with rules of their own; many more in the proof."""

from hypothesis import given, settings

from tests.hostile.account import RULES, Rules, check


@settings(max_examples=25)
@given(RULES)
def test_what_an_account_allows_is_bought(rules: Rules) -> None:
    check(rules)
