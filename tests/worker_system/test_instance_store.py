"""What a worker writes goes to the instance store, if there is one that is better than the root."""

from pathlib import Path

import pytest

from tests.worker_system.kit import SYSTEM, Stubs

STORE, EBS = "Amazon EC2 NVMe Instance Storage", "Amazon Elastic Block Store"
WORK, HOME, PACKAGES = "var/lib/spindown/work", "var/lib/spindown/run", "opt/spindown/run"
FOLDERS = [WORK, HOME, PACKAGES]


class Disks:
    """A machine's disks as files, and stubs of the programs that would change real ones."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "root"
        #: Where the Deep Learning AMIs mount theirs.
        self.at = self.root / "opt" / "dlami" / "nvme"
        self.stubs = Stubs(directory)
        self.said = ""
        for name in (*FOLDERS, "sys/block", "dev", "run", "mounted", "signed"):
            (self.root / name).mkdir(parents=True)
        (self.root / WORK).chmod(0o2750)
        (self.root / HOME).chmod(0o700)
        for name in ("mkfs.ext4", "dd"):
            self.stubs.add(name)
        self.stubs.add("systemctl", "exit 1")
        self.stubs.add("timeout", 'shift && exec "$@"')
        self.stubs.add("wipefs", f'for last; do :; done; cat "{self.root}/signed/${{last##*/}}"')
        as_name = '$(echo "$last" | tr / _)'
        mounted = f'for last; do :; done; {{}} "{self.root}/mounted/{as_name}"'
        self.stubs.add("mount", mounted.format("touch"))
        self.stubs.add("mountpoint", mounted.format("test -e"))
        self.let_room(root=60, store=110)

    def add(self, name: str, model: str = STORE, *, gb: int = 125, signed: str = "") -> None:
        device = self.root / "sys" / "block" / name / "device"
        device.mkdir(parents=True)
        # The kernel tells it in a field of fixed width.
        (device / "model").write_text(f"{model:40}\n")
        (device.parent / "size").write_text(f"{gb * 10**9 // 512}\n")
        (self.root / "dev" / name).touch()
        (self.root / "signed" / name).write_text(signed)

    def let_room(self, *, root: int, store: int) -> None:
        """Set what is left of the root volume and of the instance store, GiB."""
        sizes = f'case "$*" in *store* | *nvme*) left={store} ;; *) left={root} ;; esac'
        self.stubs.add("df", f'{sizes}; echo Avail; echo "  $((left << 20))"')

    def add_dlami(self, *, mounts: bool) -> None:
        """Add the unit of AWS's Deep Learning AMIs, which mounts the disks once it is started."""
        self.at.mkdir(parents=True)
        mark = self.root / "mounted" / str(self.at).replace("/", "_")
        start = f'if [ "$1" = start ]; then touch "{mark}"; fi' if mounts else ""
        self.stubs.add("systemctl", start)

    def mount(self) -> None:
        done = self.stubs.run(SYSTEM / "mount-instance-store.sh", self.root)
        self.said = done.stdout + done.stderr
        assert done.returncode == 0, self.said

    @property
    def formatted(self) -> list[str]:
        return [call.rpartition("/")[2] for call in self.stubs.calls_of("mkfs.ext4")]

    @property
    def moved(self) -> list[str]:
        """The folders that were bound to the store, each with the same options."""
        binds = [call for call in self.stubs.calls_of("mount") if call.startswith("--bind")]
        assert all(call.split()[2] == "noatime,nodev,nosuid" for call in binds)
        return [call.split()[-1].removeprefix(f"{self.root}/") for call in binds]


@pytest.fixture
def disks(tmp_path: Path) -> Disks:
    return Disks(tmp_path)


def test_the_largest_empty_instance_store_holds_it_all(disks: Disks) -> None:
    disks.add("nvme0n1", EBS, gb=900)
    disks.add("nvme1n1", gb=125)
    disks.add("nvme2n1", gb=250)

    disks.mount()

    assert disks.formatted == ["nvme2n1"]
    device = f"{disks.root}/dev/nvme2n1 {disks.root}/run/spindown-store"
    assert f"-o noatime,nodev,nosuid {device}" in disks.stubs.calls_of("mount")
    assert disks.moved == FOLDERS


def test_the_folders_keep_their_modes_and_none_else_may_look(disks: Disks) -> None:
    disks.add("nvme1n1")

    disks.mount()

    own = disks.root / "run" / "spindown-store" / "spindown"
    modes = [(own / name).stat().st_mode & 0o7777 for name in (".", WORK, HOME)]
    assert modes == [0o700, 0o2750, 0o700]


@pytest.mark.parametrize("signed", ["gpt", "ext4 data", "LVM2_member", "linux_raid_member", "swap"])
def test_a_disk_that_bears_a_signature_is_left_alone(disks: Disks, signed: str) -> None:
    disks.add("nvme1n1", signed=f"{signed}\n")

    disks.mount()

    assert (disks.formatted, disks.moved) == ([], [])
    assert disks.said.count("\n") == 1


def test_a_disk_that_cannot_be_looked_at_is_left_alone(disks: Disks) -> None:
    disks.add("nvme1n1")
    (disks.root / "signed" / "nvme1n1").unlink()

    disks.mount()

    assert (disks.formatted, disks.moved) == ([], [])


def test_ebs_volumes_are_never_touched(disks: Disks) -> None:
    disks.add("nvme0n1", EBS, gb=900)

    disks.mount()

    assert (disks.formatted, disks.moved) == ([], [])


def test_after_a_reboot_the_same_disk_is_mounted_again(disks: Disks) -> None:
    disks.add("nvme1n1", signed="ext4 spindown\n")
    (disks.root / "run" / "spindown-store" / "spindown").mkdir(parents=True)
    disks.let_room(root=60, store=10)

    disks.mount()

    assert (disks.formatted, disks.moved) == ([], FOLDERS)


def test_run_again_it_changes_nothing(disks: Disks) -> None:
    disks.add("nvme1n1")
    disks.mount()
    before = disks.stubs.calls_of("mount"), disks.formatted

    disks.mount()

    assert (disks.stubs.calls_of("mount"), disks.formatted) == before
    assert disks.said == ""


@pytest.mark.parametrize(
    ("program", "script", "why"),
    [
        ("mkfs.ext4", "exit 1", "cannot be formatted"),
        ("mount", "exit 32", "cannot be mounted"),
        ("dd", "exit 124", "writes more slowly"),
        ("df", "exit 1", "has less room"),
    ],
)
def test_whatever_fails_leaves_the_root_volume(
    disks: Disks, program: str, script: str, why: str
) -> None:
    disks.add("nvme1n1")
    disks.stubs.add(program, script)

    disks.mount()

    assert disks.moved == []
    assert why in disks.said


def test_a_root_volume_with_more_room_stays_in_use(disks: Disks) -> None:
    disks.add("nvme1n1")
    disks.let_room(root=400, store=110)

    disks.mount()

    assert disks.moved == []


def test_what_an_image_holds_already_stays_where_it_is(disks: Disks) -> None:
    disks.add("nvme1n1")
    (disks.root / PACKAGES / "bin").mkdir()

    disks.mount()

    assert disks.moved == [WORK, HOME]


def test_the_volume_of_a_deep_learning_ami_is_used_as_it_is(disks: Disks) -> None:
    disks.add("nvme1n1")
    disks.add_dlami(mounts=True)

    disks.mount()

    assert (disks.formatted, disks.moved) == ([], FOLDERS)
    assert (disks.at / "spindown" / WORK).is_dir()


def test_disks_that_another_unit_owns_are_not_formatted(disks: Disks) -> None:
    disks.add("nvme1n1")
    disks.add_dlami(mounts=False)

    disks.mount()

    assert (disks.formatted, disks.moved) == ([], [])
