"""The README is true: its example runs as printed, its links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def test_the_example_runs_and_prints_what_it_says():
    (code,) = re.findall(r"```python\n(.*?)```", README, re.S)
    assert len([line for line in code.splitlines() if line.strip()]) <= 16
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    promised = re.search(r"print\(query.*# (.*)", code).group(1)
    assert done.stdout.splitlines()[0] == promised
    assert "qkv" in done.stdout


def test_links_lead_somewhere():
    for target in re.findall(r"\]\((?!http)([^)]+)\)", README):
        assert (ROOT / target).exists(), target


def test_its_commands_exist():
    for command in re.findall(r"\./dev (\w+)", README):
        assert re.search(rf"^  {command}\)", (ROOT / "dev").read_text(), re.M), command
