"""A deployment of two workloads, synthesised once."""

import pytest

from tests.infra.assembly import Assembly, synthesise_once, write_project


@pytest.fixture(scope="session")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    return synthesise_once(tmp_path_factory, "plain-and-rich", write_project)
