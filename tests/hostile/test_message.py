"""Some messages that nobody honest would send; many more in the proof."""

from hypothesis import given, settings

from tests.hostile.message import MESSAGES, check


@settings(max_examples=25)
@given(MESSAGES)
def test_every_message_ends_and_honest_work_is_done(sent: list[tuple[str, int]]) -> None:
    check(sent)
