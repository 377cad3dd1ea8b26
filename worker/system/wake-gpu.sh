#!/bin/sh
# Loads what CUDA asks of the kernel and makes the GPUs' device files, before the worker starts.
#
#   wake-gpu.sh [DEV]     DEV: where device files are, /dev
#
# Where the distribution does not do it, the driver does at its first use, with a program that is
# setuid root (nvidia-modprobe(1)). Nothing that the worker starts may gain privileges, and so there
# the first program on an instance would find no GPU, though nvidia-smi sees them: it needs no
# unified memory. Whatever fails here, the worker's own test and the program's message tell.
set -eu
dev=${1:-/dev}
if ! command -v nvidia-smi >/dev/null; then exit; fi
[ -e "$dev/nvidia0" ] || nvidia-smi -L || :
[ -e "$dev/nvidia-uvm" ] || nvidia-modprobe -u -c=0
