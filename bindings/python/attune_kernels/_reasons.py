"""What is left to other kernels, and why: said once for each reason, as a warning of the logger "attune"."""

import logging
import re

import torch

_told = set()


def tell_once(what, instead):
    """Says that Attune does not serve `what`, and what happens instead. Under torch.compile it is said while the graph is made."""
    if torch.compiler.is_compiling():
        from ._traced import tell

        tell(what, instead)
        return
    say_once(what, instead)


def say_once(what, instead):
    """Sentences that differ in numbers alone are one reason: lengths may grow with each call."""
    reason = re.sub(r"\d+", "N", what), instead
    if reason not in _told:
        _told.add(reason)
        logging.getLogger("attune").warning("Attune does not serve %s; %s.", what, instead)


def forget():
    """All reasons are said again."""
    _told.clear()
