"""A deployment of two workloads, synthesised once."""

import pytest

from tests.infra.assembly import CONFIG, Assembly, synthesise_once, write_project


@pytest.fixture(scope="session")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    return synthesise_once(tmp_path_factory, "plain-and-rich", write_project)


@pytest.fixture(scope="session")
def with_shell(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    """The same with Session Manager."""
    config = CONFIG.replace("budget_per_month", "session_manager = true\nbudget_per_month")
    return synthesise_once(
        tmp_path_factory, "with-shell", lambda directory: write_project(directory, config)
    )
