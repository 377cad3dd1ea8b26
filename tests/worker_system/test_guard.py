"""Whether the user's code may ask instance metadata is decided at each start of the worker."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.worker_system.kit import SYSTEM, Stubs

#: The rule, as ``nft --check`` has read it; a change of the file must be checked with nft again.
CHAINS = {
    "output": [
        'meta skuid "spindown-run" ip daddr 169.254.169.254 reject',
        'meta skuid "spindown-run" ip6 daddr fd00:ec2::254 reject',
        'meta skuid "spindown-build" ip daddr 169.254.169.254 reject',
        'meta skuid "spindown-build" ip6 daddr fd00:ec2::254 reject',
    ],
    "forward": [
        "ip daddr 169.254.169.254 reject",
        "ip6 daddr fd00:ec2::254 reject",
    ],
}


@pytest.fixture
def stubs(tmp_path: Path) -> Stubs:
    stubs = Stubs(tmp_path)
    stubs.add("nft")
    return stubs


@pytest.mark.parametrize(
    ("curl", "is_guarded"),
    [
        pytest.param("echo allow", False, id="the workload asks for it"),
        pytest.param("echo deny", True, id="another value"),
        pytest.param("exit 22", True, id="no such tag"),
        pytest.param("exit 28", True, id="no answer"),
    ],
)
def test_the_guard_is_up_unless_the_instance_bears_the_tag(
    stubs: Stubs, curl: str, is_guarded: bool
) -> None:
    stubs.add("curl", curl)

    done = stubs.run(SYSTEM / "guard-metadata.sh")

    assert done.returncode == 0, done.stderr
    loaded = [f"--file {SYSTEM}/metadata.nft"]
    assert stubs.calls_of("nft") == (loaded if is_guarded else ["delete table inet spindown"])


def test_a_guard_that_cannot_be_loaded_lets_no_worker_start(stubs: Stubs) -> None:
    stubs.add("curl", "exit 22")
    stubs.add("nft", "exit 1")

    assert stubs.run(SYSTEM / "guard-metadata.sh").returncode != 0


def test_the_rule_is_as_it_was_checked(tmp_path: Path) -> None:
    text = (SYSTEM / "metadata.nft").read_text(encoding="utf-8")
    chains = dict(re.findall(r"chain (\w+) \{(.*?)\n    \}", text, re.DOTALL))

    rules = {
        name: [line.strip() for line in body.splitlines() if line.strip().endswith("reject")]
        for name, body in chains.items()
    }

    assert rules == CHAINS
    nft = shutil.which("nft")
    if nft is not None:
        # The user need not be here.
        rule = tmp_path / "rule.nft"
        rule.write_text(re.sub('"spindown-(run|build)"', "0", text).replace("delete table", "# "))
        checked = subprocess.run([nft, "--check", "--file", rule], check=False, capture_output=True)
        assert checked.returncode == 0 or b"not permitted" in checked.stderr, checked.stderr


GROUP = 'test "$1" = group'


@pytest.mark.parametrize(
    ("curl", "groups", "calls"),
    [
        pytest.param("echo allow", "spindown", ["usermod -aG docker spindown"], id="containers"),
        pytest.param("exit 22", "spindown", [], id="none"),
        pytest.param("exit 22", "docker", ["gpasswd -d spindown docker"], id="none any more"),
    ],
)
def test_only_a_worker_of_containers_may_ask_docker(
    stubs: Stubs, curl: str, groups: str, calls: list[str]
) -> None:
    stubs.add("curl", curl)
    stubs.add("getent", GROUP)
    stubs.add("id", f"echo {groups}")
    for name in ("usermod", "gpasswd"):
        stubs.add(name)

    done = stubs.run(SYSTEM / "grant-docker.sh")

    assert done.returncode == 0, done.stderr
    assert [call for call in stubs.calls if call.split()[0] in {"usermod", "gpasswd"}] == calls


def test_a_machine_without_docker_grants_nothing(stubs: Stubs) -> None:
    stubs.add("getent", "exit 2")

    assert stubs.run(SYSTEM / "grant-docker.sh").returncode == 0
    assert stubs.calls == ["getent group docker"]
