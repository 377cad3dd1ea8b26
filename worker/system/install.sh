#!/bin/sh
# Makes an instance able to be a worker: while an image is baked, or at its start from user data.
#
#   install.sh [--root DIR] [--code ZIP] [--uv FILE] [--offline]
#
#   --root DIR   install below DIR; nothing is installed from the system's packages then
#   --code ZIP   code archive of the workload, whose requirements the user's code will find
#   --uv FILE    this uv instead of the one pinned in the kit
#   --offline    take every Python package from the kit's wheels/
#
# It lies in the system/ directory of a kit, beside locks/ (what to install, with hashes) and
# wheels/ (the worker, and any other wheel that should not come from an index). It starts and
# enables nothing, so that an instance on which an image is baked never works: user data does.
# Last, smoke.sh checks what is there.
# Run twice, it leaves what running it once leaves.
set -eu
umask 022

root='' code='' uv='' offline=''
while [ $# -gt 0 ]; do
    case $1 in
        --root) root=$2 && shift 2 ;;
        --code) code=$2 && shift 2 ;;
        --uv) uv=$2 && shift 2 ;;
        --offline) offline=--no-index && shift ;;
        *) echo "install.sh: unknown option $1; see the head of the script" >&2 && exit 2 ;;
    esac
done
kit=$(cd "$(dirname "$0")/.." && pwd)
home=$root/opt/spindown
mkdir -p "$home"
# On the disk on which all will lie, where packages are linked to their places: a copy would write
# each byte twice, and a boot waits for the disk. In /tmp, which is memory on Amazon Linux 2023
# (its release notes), large packages would have no room.
scratch=$(mktemp -d "$home/scratch.XXXXXX")
trap 'wait; rm -rf "$scratch"' EXIT
export UV_CACHE_DIR="$scratch/uv-cache" UV_LINK_MODE=hardlink
export UV_PYTHON_INSTALL_DIR="$home/python" PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

step() { echo "spindown install: $*"; }

# At its first start a system may update itself, and then holds apt's locks. For the one of dpkg apt
# waits for so long; at those of lists and archives it fails at once (tried with apt 2.6.1).
wait_s=300
apt_get() {
    tries=0
    until DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=$wait_s "$@"; do
        tries=$((tries + 1))
        [ $((tries * 10)) -lt $wait_s ] || return 1
        step "apt-get $1 once more, in 10 s"
        sleep 10
    done
}

# Whether systemd runs one of the updates; such a unit is "activating" until it ends.
is_updating() {
    for update in $updates; do
        case $(systemctl is-active "$update.service" 2>/dev/null) in
            active | activating | deactivating | reloading) return 0 ;;
        esac
    done
    return 1
}

# Packages of the system that are not there yet, installed together: each list that is read costs
# seconds.
absent=''
# need PACKAGE TEST...: install a package with the next ones unless TEST holds already.
need() {
    package=$1 && shift
    "$@" >/dev/null 2>&1 || absent="$absent $package"
}
provide() {
    [ -n "$absent" ] || return 0
    step "system packages:$absent"
    # shellcheck disable=SC2086 # a list
    if command -v apt-get >/dev/null; then
        apt_get update
        apt_get install --no-install-recommends $absent >/dev/null
    else
        dnf -q -y install $absent
    fi
    absent=''
}

# Beside a worker nothing is updated. That would replace the driver of a GPU in use, and restart
# what uses a replaced library (needrestart). Workers live for a day; their images are renewed.
step "no updates beside a worker"
updates='apt-daily apt-daily-upgrade dnf-automatic dnf-automatic-install'
mkdir -p "$root/etc/systemd/system" "$root/etc/needrestart/conf.d"
for update in $updates; do
    [ -n "$root" ] || systemctl --quiet stop "$update.timer" 2>/dev/null || :
    # The service too: a timer may have begun it already, and it waits for the network first.
    for unit in "$update.timer" "$update.service"; do
        ln -sf /dev/null "$root/etc/systemd/system/$unit"
    done
done
# It lists what it would restart.
echo "\$nrconf{restart} = 'l';" >"$root/etc/needrestart/conf.d/spindown.conf"

if [ -z "$root" ]; then
    # What waits to begin is refused from here on. An update under way ends first: it is not
    # stopped between two packages, and holds no lock of apt at its begin.
    systemctl daemon-reload 2>/dev/null || :
    waited=0
    while [ $waited -lt $wait_s ] && is_updating; do
        step "an update of the system is under way; once more in 5 s"
        sleep 5
        waited=$((waited + 5))
    done
    if command -v apt-get >/dev/null; then
        apt-get -qq -o DPkg::Lock::Timeout=$wait_s check || step "apt is not in order; going on"
    fi
    need nftables command -v nft
    # Amazon Linux 2023 runs on Python 3.9; its own package of a later one spares uv a download
    # (AL2023 User Guide, "Python in AL2023").
    if command -v dnf >/dev/null; then need python3.12 command -v python3.12; fi
    # Debian and Ubuntu package the wheel of pip apart; elsewhere it is there.
    [ -n "$uv" ] || need python3-venv python3 -c 'import ensurepip'
    provide
fi

step "users, units and rules"
mkdir -p "$home/system" "$home/bin" "$root/etc/sysusers.d" "$root/etc/tmpfiles.d" \
    "$root/etc/sysctl.d"
install -m 644 "$kit"/system/*.service "$kit"/system/*.timer "$root/etc/systemd/system/"
for kind in sysusers tmpfiles; do
    install -m 644 "$kit/system/$kind.conf" "$root/etc/$kind.d/spindown.conf"
done
# After the distribution's own files, whose names begin with lower numbers.
install -m 644 "$kit/system/sysctl.conf" "$root/etc/sysctl.d/90-spindown.conf"
install -m 644 "$kit/system/metadata.nft" "$home/system/"
for script in deadman grant-docker guard-metadata mount-instance-store run-build smoke wake-gpu; do
    install -m 755 "$kit/system/$script.sh" "$home/system/"
done
for script in run-code run-python; do
    install -m 755 "$kit/system/$script.sh" "$home/bin/$script"
done
systemd-sysusers --root="${root:-/}" spindown.conf
systemd-tmpfiles --root="${root:-/}" --create spindown.conf
# Where user data has begun, this instance is to work; what lies on the disks that its type brings is
# in no image.
if [ -z "$root" ] && [ -e /run/spindown-begun ]; then
    mkdir -p "$home/run"
    "$home/system/mount-instance-store.sh"
fi

if [ -z "$uv" ]; then
    step "uv"
    # pip runs from the wheel that Python brings for new environments. Making such an environment,
    # for this one package, took four times as long.
    pip=$(python3 -c 'import ensurepip, pathlib as p; here = p.Path(ensurepip.__file__).parent
print(next(one for at in (here / "_bundled", p.Path("/usr/share/python-wheels"))
           for one in at.glob("pip-*.whl")))')
    PYTHONPATH=$pip python3 -m pip install --quiet --no-deps --no-compile --target "$scratch/uv" \
        $offline --find-links "$kit/wheels" \
        --require-hashes --only-binary :all: -r "$kit/locks/bootstrap.txt"
    uv=$scratch/uv/bin/uv
fi

# add PYTHON OPTION...: install packages for one of the two interpreters.
add() {
    python=$1 && shift
    "$uv" pip install --quiet --python "$python" --compile-bytecode $offline \
        --find-links "$kit/wheels" "$@"
}

# Packages may run code while they are installed, and each start of an interpreter that has them
# runs more of it. So their own user installs them, whom nothing here belongs to and who cannot reach
# the credentials of this instance.
install_requirements() {
    step "the code's requirements meanwhile${wheels:+: from wheels only}"
    # On the disk to which the packages go: an instance may have several.
    build=$home/run/.build
    mkdir "$build"
    cp -R "$scratch/code" "$build/code"
    # The kit lies where root alone may look.
    cp -R "$kit/wheels" "$build/wheels"
    cp "$uv" "$build/uv"
    # Below another root there are no users.
    if [ -z "$root" ]; then
        nft --file "$home/system/metadata.nft"
        chown -R spindown-build:spindown-build "$home/run"
    fi
    # From within, since a requirement may name a file or a directory beside it.
    cd "$build/code"
    "$home/system/run-build.sh" "$build" "$build/uv" pip install --quiet \
        --python "$home/run/bin/python" --compile-bytecode $offline --find-links "$build/wheels" \
        ${wheels:+--only-binary :all:} -r "$requirements"
    cd /
    # Nothing that it has started goes on, and it owns nothing any more.
    [ -n "$root" ] || "$home/system/run-build.sh" "$build" sh -c 'kill -KILL -1' || :
    rm -rf "$build"
    if [ -z "$root" ]; then
        chown -R -h root:root "$home/run"
        chmod -R u-s,g-s,go-w "$home/run"
    fi
}

install_worker() {
    add "$home/worker/bin/python" --require-hashes --only-binary :all: -r "$kit/locks/worker.txt"
    add "$home/worker/bin/python" --no-deps "$wheel"
}

step "the worker"
for wheel in "$kit"/wheels/spindown-*.whl; do :; done
"$uv" venv --quiet --clear --python '>=3.11' "$home/worker"
# The user's code has an environment of its own, in which its packages win over the worker's: so
# no requirement can break the worker, and the child still finds Spindown.
"$uv" venv --quiet --clear --python "$home/worker/bin/python" "$home/run"
packages='import sysconfig; print(sysconfig.get_path("purelib"))'
"$home/worker/bin/python" -c "$packages" > \
    "$("$home/run/bin/python" -c "$packages")/spindown-worker.pth"
install_worker &
worker=$!
if [ -n "$code" ]; then
    "$home/worker/bin/python" -m zipfile -e "$code" "$scratch/code"
    tell="import sys; from pathlib import Path
from spindown.contract.run_spec import RUN_SPEC_NAME, decode_run_spec, ecr_registry
spec = decode_run_spec((Path(sys.argv[1]) / RUN_SPEC_NAME).read_bytes())
wheels = '' if spec.allow_source_builds else 'wheels'
print(spec.requirements or '', ecr_registry(spec.image) or '', wheels, sep='|')"
    told=$(PYTHONPATH=$wheel "$home/worker/bin/python" -c "$tell" "$scratch/code")
    requirements=${told%%|*} told=${told#*|}
    registry=${told%%|*} wheels=${told#*|}
    if [ -n "$requirements" ]; then install_requirements; fi
    if [ -n "$registry" ]; then
        # Signs in to Amazon ECR with the worker's role, whenever an image is pulled.
        if [ -z "$root" ]; then
            need amazon-ecr-credential-helper command -v docker-credential-ecr-login
            provide
        fi
        mkdir -p "$root/var/lib/spindown/.docker"
        printf '{"credHelpers": {"%s": "ecr-login"}}\n' "$registry" \
            >"$root/var/lib/spindown/.docker/config.json"
    fi
fi
wait "$worker"

step "check"
"$home/system/smoke.sh"
