"""Every figure: kernels against this machine's limits, by models of other CPUs and against other libraries, Python,
memory of a fused model, loading checkpoints, first requests.

    ./dev bench [--quick] [--check] [--json] [part ...]

Parts: kernels, static, python, import, memory, checkpoints, peers, first-request; any other name is a subject of the
kernels.
`./dev peers` installs what peers and first-request compare with; without it they measure this library alone.
Prints each part's own table. Leaves with 0 unless --check is given and a goal was missed, or a part did not run.
"""

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PARTS = {
    "kernels": [str(ROOT / "build/bin/clikart-bench")],
    "static": [str(ROOT / "build/bin/clikart-mca"), "--check"],
    "python": [sys.executable, str(ROOT / "bench/python_calls.py")],
    "import": [sys.executable, str(ROOT / "bench/import_time.py")],
    "memory": [sys.executable, str(ROOT / "bench/memory.py")],
    "checkpoints": [sys.executable, str(ROOT / "bench/checkpoints.py")],
    "peers": [sys.executable, str(ROOT / "bench/peers_codes.py")],
    "first-request": [sys.executable, str(ROOT / "bench/first_request.py")],
}
MISSED = 1  # the status by which a part says that a goal was missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"{', '.join(PARTS)}, or a subject of the kernels")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions of the kernels, a smaller checkpoint")
    parser.add_argument("--check", action="store_true", help="leave with 1 where a goal was missed")
    parser.add_argument("--json", action="store_true", help="JSON instead of tables")
    options = parser.parse_intermixed_args()
    subjects = [part for part in options.parts if part not in PARTS]
    wanted = [part for part in PARTS if not options.parts or part in options.parts or (part == "kernels" and subjects)]

    missed = False
    for part in wanted:
        command = [*PARTS[part], *(["--json"] if options.json else [])]
        if part == "kernels":
            command += ["--check", *subjects] + (["--quick"] if options.quick else [])
        elif part == "memory" and options.quick:
            command += ["--gigabytes", "0.2"]
        elif part in ("checkpoints", "peers", "first-request") and options.quick:
            command += ["--quick"]
        status = subprocess.run(command, check=False).returncode
        if status not in (0, MISSED):
            print(f"bench: {part} failed with status {status}", file=sys.stderr)
            return status if status > 0 else 1
        missed = missed or status == MISSED
    return MISSED if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
