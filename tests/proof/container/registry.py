"""A registry with one image, as far as pulling needs it: OCI distribution specification 1.1.

``python -m tests.proof.container.registry DIRECTORY`` serves what ``write_image`` has written.
"""

import gzip
import hashlib
import io
import json
import platform
import subprocess
import sys
import tarfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PORT = 5000
NAME = "spindown/busybox"
TAG = "1"
IMAGE = f"localhost:{PORT}/{NAME}:{TAG}"
_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG = "application/vnd.docker.container.image.v1+json"
_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def write_image(directory: Path, busybox: str) -> str:
    """Write an image that holds a static busybox and nothing else; return its digest."""
    layer = _make_layer(Path(busybox))
    config = {
        "architecture": _ARCHITECTURES[platform.machine()],
        "os": "linux",
        "config": {"Env": ["PATH=/bin"], "Cmd": ["echo", "the image's own command"]},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
    }
    blobs = {_CONFIG: json.dumps(config).encode(), _LAYER: gzip.compress(layer, mtime=0)}
    parts = [
        {"mediaType": kind, "size": len(data), "digest": _digest(data)}
        for kind, data in blobs.items()
    ]
    manifest = json.dumps(
        {"schemaVersion": 2, "mediaType": _MANIFEST, "config": parts[0], "layers": parts[1:]}
    ).encode()
    for data in (*blobs.values(), manifest):
        (directory / _digest(data)).write_bytes(data)
    (directory / TAG).write_bytes(manifest)
    return _digest(manifest)


def _make_layer(busybox: Path) -> bytes:
    listed = subprocess.run([busybox, "--list"], check=True, capture_output=True, text=True)
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for name, mode in (("bin", 0o755), ("tmp", 0o1777), ("proc", 0o755)):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            tar.addfile(entry)
        entry = tarfile.TarInfo("bin/busybox")
        entry.size, entry.mode = busybox.stat().st_size, 0o755
        tar.addfile(entry, io.BytesIO(busybox.read_bytes()))
        for name in set(listed.stdout.split()) - {"busybox"}:
            entry = tarfile.TarInfo(f"bin/{name}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(entry)
    return layer.getvalue()


def _digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    """Answers for one image."""

    directory: Path

    def do_GET(self) -> None:
        """Send a manifest or a blob."""
        self._send(has_body=True)

    def do_HEAD(self) -> None:
        """Send what a manifest or a blob would come with."""
        self._send(has_body=False)

    def _send(self, *, has_body: bool) -> None:
        kind = _MANIFEST if "/manifests/" in self.path else "application/octet-stream"
        data = b"{}"
        if self.path.rstrip("/") != "/v2":
            path = self.directory / self.path.rpartition("/")[2]
            if not self.path.startswith(f"/v2/{NAME}/") or not path.is_file():
                errors = [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]
                return self._answer(
                    404, "application/json", json.dumps({"errors": errors}).encode()
                )
            data = path.read_bytes()
        return self._answer(200, kind, data, has_body=has_body)

    def _answer(self, status: int, kind: str, data: bytes, *, has_body: bool = True) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Docker-Content-Digest", _digest(data))
        self.send_header("Docker-Distribution-API-Version", "registry/2.0")
        self.end_headers()
        if has_body:
            self.wfile.write(data)


def serve(directory: Path) -> None:
    """Serve until the end of the process."""
    _Handler.directory = directory
    ThreadingHTTPServer(("127.0.0.1", PORT), _Handler).serve_forever()


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
