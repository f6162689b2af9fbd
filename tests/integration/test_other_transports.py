"""Scans in a real container of podman, where it is installed, and as if in a pod of Kubernetes."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from conftest import StartVictim
from scans import FAILED, run_cli
from test_elsewhere import asked, box, cache, left
from test_helper_alone import VTABLE, device, on
from victims import need, wait_until
from worlds import need_root, public_folder

from reachscan.transport import where

pytestmark = need_root

__all__ = ["box", "cache", "device"]

CONFIGURATION = '[containers]\ndefault_ulimits = []\n[engine]\nevents_logger = "none"\n'
POLICY = '{"default": [{"type": "insecureAcceptAnything"}]}'


@pytest.fixture
def podman(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return a podman that keeps everything to itself, and that `--on podman:` uses."""
    real, runtime = need("podman", "podman runc"), need("runc", "runc")
    with public_folder() as own:  # whose path is short, as podman wants it
        (own / "containers.conf").write_text(CONFIGURATION)
        folders = f"--root {own}/store --runroot {own}/run --tmpdir {own}/tmp"
        program = own / "podman"
        program.write_text(
            f"#!/bin/sh\nexec env CONTAINERS_CONF={own}/containers.conf {real} {folders} "
            f'--storage-driver vfs --cgroup-manager cgroupfs --runtime {runtime} "$@"\n'
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{own}:{os.environ['PATH']}")
        yield str(program)
        wait_until(lambda: not is_named(str(own)), "what podman left behind has cleaned up")


def is_named(path: str) -> bool:
    """Whether a process has this path in its arguments."""
    lines = (process.info["cmdline"] or () for process in psutil.process_iter(["cmdline"]))
    return any(path in argument for line in lines for argument in line)


def said_by(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


@pytest.fixture
def container(podman: str, box: Path, tmp_path: Path) -> Iterator[str]:
    """Start the program in a container as podman makes them: few rights, a filter of calls."""
    shutil.copy(need("busybox", "busybox-static"), box / "bin/sleep")
    image, policy = tmp_path / "image.tar", tmp_path / "policy.json"
    said_by("tar", "-C", str(box), "-cf", str(image), ".")
    policy.write_text(POLICY)
    said_by(podman, "import", "--signature-policy", str(policy), str(image), "box")
    try:
        run = (podman, "run", "-d", "--name", "box", "--network", "none", "box")
        said_by(*run, "/bin/sh", "-c", "sleep 1000 | /program once")
        wait_until(lambda: "ready" in said_by(podman, "logs", "box"), "the program is ready")
        yield "podman:box"
    finally:
        said_by(podman, "rm", "-f", "-t", "0", "box")


def test_a_container(container: str, podman: str) -> None:
    report = asked("scan", "--on", container, "program")
    assert report["leaks"]["allocations"] == 2400
    assert VTABLE in str(report["groups"])
    assert said_by(podman, "exec", "box", "ls", "/dev/shm", "/tmp").split() == [
        "/dev/shm:",
        "/tmp:",
    ]
    nobody = run_cli(["scan", "--on", "podman:boxes", 1])
    assert nobody.status == FAILED and 'no container with name or ID "boxes"' in nobody.talk


DEBUG = "kubectl debug -qi web-1 --image=busybox --target=app --profile=general --"
# No package has a cluster. This stands in for kubectl, and knows one pod.
KUBECTL = """#!/bin/sh
case "$*" in
  "exec -i -n shop web-1 -c app -- sh") ;;
  "debug -qi web-1 --image=busybox --target=app --profile=general -- sh") ;;
  *) echo 'Error from server (NotFound): pods "web-1" not found' >&2; exit 1 ;;
esac
exec {enter} --target {pid} --mount --root sh
"""


def test_a_pod(
    victim: StartVictim, box: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = victim("leaky_sessions", command=on(box, "/program", "once"))
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(KUBECTL.format(enter=need("nsenter", "util-linux"), pid=target.pid))
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    report = asked("scan", target.pid)
    assert asked("scan", "--on", "kubectl:shop/web-1/app", target.pid) == report
    assert asked("scan", "--on", f"exec:{DEBUG}", target.pid) == report
    nobody = run_cli(["scan", "--on", "kubectl:web-1", target.pid])
    assert nobody.status == FAILED and 'pods "web-1" not found' in nobody.talk
    assert left(str(box)) == []


@pytest.mark.parametrize("place", ["kubectl:web-1", "kubectl:shop/web-1/app", f"exec:{DEBUG}"])
def test_the_real_kubectl_takes_these_words(place: str) -> None:
    """It comes as far as a server that is not there; an unknown option would end it before."""
    words = [need("kubectl", "kubernetes-client"), "--server=http://127.0.0.1:1"]
    words += where.parse(place).shell()[1:]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "127.0.0.1:1" in done.stderr, done.stderr
