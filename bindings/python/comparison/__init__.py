"""The parts of compare_with_torch.py, in the order in which a comparison passes through them:

    problems      which problems: shapes files in the format of `attune tune --shapes`
    inputs        their tensors
    references    what is right, in double precision
    contenders    who computes it: Attune, PyTorch's backends, peer libraries (peer_library)
    timing        how long each takes, by one of two protocols; the GPU's clock meanwhile (gpu_state)
    stored        what the tuning database says of it
    differences   why the two differ: one cause at a time
    tables        text, Markdown and the verdicts

No module imports torch before a function is called that needs it: shapes are read and refused on any machine.
"""


class BadInput(Exception):
    """The user's input, by a sentence."""
