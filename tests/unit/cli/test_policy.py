"""What `policy show` prints is what a configuration reads."""

import tomllib
from dataclasses import replace

from spindown import config
from spindown.cli.policy import spell_setting
from spindown.domain.policy import Dispatch, JobNeeds, JobType, Policy


def test_types_are_printed_as_they_are_read() -> None:
    tight = JobType(name="tight", needs=JobNeeds(memory_gib=8), dispatch=Dispatch.DEDICATED)
    policy = replace(
        Policy(), types=(tight, JobType(name="any")), requirements_at_most=JobNeeds(memory_gib=8)
    )
    printed = "\n".join(spell_setting(policy, key) for key in ("types", "requirements_at_most"))

    assert config.merge_policy(Policy(), tomllib.loads(printed)) == policy
