"""Three hundred jobs of the four kinds, each on a machine that is right for it, run for real."""

from pathlib import Path

import pytest

from tests.e2e.mixed import TYPES, check_mixed, send_mixed
from tests.e2e.world import deployed, write_deployment

pytestmark = pytest.mark.proof


def test_three_hundred_mixed_jobs_get_their_machines(tmp_path: Path) -> None:
    path = write_deployment(tmp_path, "mixed")
    path.write_text(path.read_text(encoding="utf-8") + TYPES, encoding="utf-8")
    with deployed(path) as world:
        jobs = send_mixed(world, 300)
        assert len(jobs) == 300
        check_mixed(world, jobs)
