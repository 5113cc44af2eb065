"""What the project promises about itself: commands, licence, dependencies."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_dev_lists_its_commands():
    out = subprocess.run([ROOT / "dev"], capture_output=True, text=True, check=True).stdout
    for command in ("build", "test", "demo", "bench", "peers", "lint", "format", "clean"):
        assert re.search(rf"^\./dev {command}\b", out, re.M)


def test_dev_refuses_an_unknown_command():
    run = subprocess.run([ROOT / "dev", "biuld"], capture_output=True, text=True)
    assert run.returncode == 1
    assert "unknown command biuld" in run.stderr


def test_ci_runs_the_test_command():
    assert "./dev test" in (ROOT / ".ci/run").read_text()


def test_every_installed_package_is_accounted_for():
    listed = (ROOT / "third_party/README.md").read_text()
    lists = re.findall(r"^(?:BUILD|TEST)_PACKAGES=\((.*?)\)", (ROOT / "dev").read_text(), re.S | re.M)
    packages = " ".join(lists).split()
    assert len(lists) == 2
    tools = {"build-essential", "cmake", "ninja-build", "ccache", "git", "python3", "python3-dev", "python3-venv"}
    assert [p for p in packages if p not in tools and f"`{p}`" not in listed] == []
