"""Imported where torch.compile is at work: it loads the compiler."""

import torch


@torch.compiler.disable
def run(function, *arguments, **options):
    return function(*arguments, **options)
