"""A deployment of two workloads, synthesised once."""

import pytest

from tests.infra.assembly import Assembly, synthesise, write_project


@pytest.fixture(scope="session")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    project = write_project(tmp_path_factory.mktemp("project"))
    return synthesise(project, tmp_path_factory.mktemp("assembly"))
