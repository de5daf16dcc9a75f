"""Called while torch.compile makes a graph, and never by the graph. Imported there: it loads the compiler."""

import torch

from . import _reasons


@torch.compiler.assume_constant_result
def tell(what, instead):
    _reasons.say_once(what, instead)
    return True


@torch.compiler.assume_constant_result
def may_break_graph():
    """Whether the graph that is being made may end here and a new one begin. False where PyTorch does not tell."""
    if torch.compiler.is_exporting():
        return False
    try:
        from torch._dynamo.symbolic_convert import InstructionTranslator

        return not InstructionTranslator.current_tx().one_graph
    except (ImportError, AttributeError):
        return False
