"""What the tuning database says of a problem, asked of the command `attune`: the library itself tells no times."""

import json
import os
import pathlib
import shutil
import subprocess

from . import BadInput

_ROOT = pathlib.Path(__file__).resolve().parents[3]


def find_command():
    """The path of `attune`: $ATTUNE_COMMAND, else as the build leaves it, else by $PATH. None if there is none."""
    given = os.environ.get("ATTUNE_COMMAND")
    if given:
        return given
    found = [_ROOT / "bin" / "attune"] + [folder / "bin" / "attune" for folder in sorted(_ROOT.glob("build*"))]
    return next((str(path) for path in found if os.access(path, os.X_OK)), None) or shutil.which("attune")


class Command:
    """`attune` on the GPU that PyTorch calls `ordinal`: both see the devices of $CUDA_VISIBLE_DEVICES. Questions raise BadInput if it cannot
    answer."""

    def __init__(self, path, ordinal):
        self._path, self._device = path, f"cuda:{ordinal}"

    def _ask(self, *arguments):
        try:
            ended = subprocess.run([self._path, *arguments, "--device", self._device, "--json"], capture_output=True, text=True)
        except OSError as error:
            raise BadInput(f"{self._path} cannot be run: {error.strerror}; set ATTUNE_COMMAND to the path of attune") from None
        try:
            document = json.loads(ended.stdout)
        except ValueError:
            said = (ended.stderr.strip().splitlines() or [f"it ended with status {ended.returncode}"])[-1]
            raise BadInput(f"{self._path} {arguments[0]}: {said}") from None
        if document.get("status") == "error":
            raise BadInput(f"{self._path} {arguments[0]}: {document['message']}")
        return document

    def stored(self, problem, config):
        """The row of this very problem and config, if it is the pick: config, median_us, tflops, rigor, database, created_at. None if it is
        not, or has no time."""
        pick = self._ask("explain", "--problem", problem.text(), "--limit", "1")["candidates"][0]
        wanted = ("config", "median_us", "tflops", "rigor", "database", "created_at")
        return {name: pick[name] for name in wanted} if pick["config"] == config and pick.get("tflops") else None

    def bench(self, problem, config, seconds):
        """What the tuner's own timing says now: median_us, sm_clock_mhz, protocol, ..."""
        return self._ask("bench", "--problem", problem.text(), "--config", config, "--seconds", str(seconds))
