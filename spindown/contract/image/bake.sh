#!/bin/sh
# Installs on this instance, of which an image is made, what its workers will need.
set -eu
export HOME=/root
