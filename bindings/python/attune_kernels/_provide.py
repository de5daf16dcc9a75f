"""attune.provide_flash_attn(): `import flash_attn` finds Attune's drop-ins, in the program and in every library that it uses."""

import importlib.abc
import importlib.machinery
import importlib.metadata
import pathlib
import sys

_FUNCTIONS = "attune_kernels.flash_attn"
# By the name of a module: that which its names come from, and whether modules lie in it.
_MODULES = {
    "flash_attn": (_FUNCTIONS, True),
    "flash_attn.flash_attn_interface": (_FUNCTIONS, False),
    "flash_attn.bert_padding": ("attune_kernels._bert_padding", False),
    "flash_attn.cute": ("attune_kernels.cute", True),
    "flash_attn.cute.interface": ("attune_kernels.cute", False),
    "flash_attn.layers": (None, True),
    "flash_attn.layers.rotary": (None, False),
    "flash_attn_interface": ("attune_kernels.flash_attn_interface", False),
}
# What libraries import at once and call late, or never.
_REFUSED = {"flash_attn.layers.rotary": {"apply_rotary_emb": "rotary embeddings", "apply_rotary_emb_func": "rotary embeddings", "RotaryEmbedding": "rotary embeddings"},
            "flash_attn.bert_padding": {"unpad_input_for_concatenated_sequences": "unpad_input_for_concatenated_sequences"}}
_DISTRIBUTIONS = {"flash-attn": "flash_attn", "flash-attn-3": "flash_attn_interface"}  # by name: the module, whose __version__ is theirs


def provide_flash_attn():
    """From now on `import flash_attn` and `import flash_attn_interface` find attune_kernels.flash_attn and attune_kernels.flash_attn_interface, with
    flash_attn.bert_padding and flash_attn.cute, whether or not flash-attn is installed; importlib.metadata tells of versions 2.8.3 and 3.0.0. What
    Attune does not serve raises NotServed when it is called, and other modules of flash-attn are not found. Call it before anything imports
    flash_attn, or asks whether it is there, as Transformers does once: attn_implementation="flash_attention_2" runs on Attune then.

    Returns a handle whose remove() ends it, as the end of a with statement does; who has imported the modules keeps them. Raises RuntimeError where
    another flash_attn has been imported already."""
    if _finder in sys.meta_path:
        return _Provided()
    for name in _MODULES:
        other = sys.modules.get(name)
        if other is not None:
            where = getattr(other, "__file__", None) or "somewhere else"
            raise RuntimeError(f"{name} has been imported already, from {where}: call provide_flash_attn() before whatever imports it")
    sys.meta_path.insert(0, _finder)
    return _Provided()


class _Provided:
    def remove(self):
        if _finder in sys.meta_path:
            sys.meta_path.remove(_finder)
        for name in _MODULES:
            if isinstance(getattr(getattr(sys.modules.get(name), "__spec__", None), "loader", None), _Loader):
                del sys.modules[name]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()


class _Loader(importlib.abc.Loader):
    def create_module(self, spec):
        return None

    def exec_module(self, module):
        name = module.__name__
        source = _MODULES[name][0]
        if source is not None:
            found = importlib.import_module(source)
            for public in (*found.__all__, "__version__"):
                if hasattr(found, public):
                    setattr(module, public, getattr(found, public))
            module.__doc__ = found.__doc__
        for refused, feature in _REFUSED.get(name, {}).items():
            setattr(module, refused, _refusing(refused, feature))


def _refusing(name, feature):
    def function(*_, **__):
        from ._drop_in import NotServed

        raise NotServed(feature, "compute it by tensor operations")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "Raises NotServed."
    return function


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        if fullname in _MODULES:
            return importlib.machinery.ModuleSpec(fullname, _Loader(), is_package=_MODULES[fullname][1])
        if fullname.startswith("flash_attn."):
            raise ModuleNotFoundError(f"no module named {fullname!r}: attune.provide_flash_attn() provides flash-attn's functions of attention, and none of "
                                      "its layers", name=fullname)
        return None

    def find_distributions(self, context=importlib.metadata.DistributionFinder.Context()):
        name = context.name and context.name.lower().replace("_", "-")
        return [_Distribution(one) for one in _DISTRIBUTIONS if name is None or name == one]


class _Distribution(importlib.metadata.Distribution):
    """What importlib.metadata tells of it: a name, a version and a module."""

    def __init__(self, name):
        self._name = name

    def read_text(self, filename):
        module = _DISTRIBUTIONS[self._name]
        version = importlib.import_module(_MODULES[module][0]).__version__
        return {"METADATA": f"Metadata-Version: 2.1\nName: {self._name}\nVersion: {version}\nSummary: provided by attune_kernels\n",
                "top_level.txt": f"{module}\n"}.get(filename)

    def locate_file(self, path):
        return pathlib.Path(__file__).parent / path


_finder = _Finder()
