"""What a problem says, by `attune show fields`, beside what the C struct and attention() take: no list may miss a field.

usage: python_fields.py REPOSITORY LIBATTUNE ATTUNE
"""

import ast
import inspect
import json
import os
import pathlib
import subprocess
import sys
import unittest

REPOSITORY, LIBRARY, ATTUNE = pathlib.Path(sys.argv.pop(1)), sys.argv.pop(1), sys.argv.pop(1)
os.environ.update(ATTUNE_LIBRARY=LIBRARY, CUDA_VISIBLE_DEVICES="")
sys.dont_write_bytecode = True
sys.path.insert(0, str(REPOSITORY / "bindings" / "python"))

import fake_torch  # noqa: E402

fake_torch.install()
import attune_kernels as attune  # noqa: E402
from attune_kernels import _library  # noqa: E402
from attune_kernels._options import OPTIONS, TERMS  # noqa: E402

FIELDS = json.loads(subprocess.run([ATTUNE, "show", "fields", "--json"], check=True, capture_output=True, text=True).stdout)["fields"]
# Found from the tensors, or said by the function that is called.
OF_TENSORS = {"pass", "dtype", "batch", "heads_q", "heads_kv", "seq_q", "seq_kv", "head_dim", "alignment", "sink", "lengths", "alibi",
              "bias", "bias_fp32", "bias_gradient", "attention_mask", "packed", "max_seq_q", "max_seq_kv"}
# What is timed: a call has the lengths that it has.
OF_TIMING = {"distribution"}
# By several options, or by members with other names.
OPTIONS_OF = {"mask": {"causal", "top_left", "window"}, "dropout": {"dropout_p"}}
MEMBERS_OF = {"pass": "pass_", "scale": "softmax_scale", "lengths": "used_lengths"}


class Fields(unittest.TestCase):
    def test_the_struct_of_the_c_interface_has_each(self):
        members = [name for name, _ in _library.Problem._fields_]
        for field in FIELDS:
            if field["key"] in OF_TIMING:
                continue
            self.assertIn(MEMBERS_OF.get(field["key"], field["key"]), members)

    def test_each_that_tensors_do_not_tell_is_an_option(self):
        wanted = set()
        for field in FIELDS:
            if field["key"] not in OF_TENSORS | OF_TIMING:
                wanted |= OPTIONS_OF.get(field["key"], {field["key"]})
        self.assertEqual(wanted, {option.name for option in OPTIONS})

    def test_each_option_is_an_argument_of_every_function(self):
        for function in (attune.attention, attune.backward, attune.prepare, attune.prepare_backward, attune.unsupported):
            arguments = inspect.signature(inspect.unwrap(function)).parameters
            for option in OPTIONS:
                if function is attune.prepare and option.name == "deterministic":  # every forward is
                    continue
                with self.subTest(function=function.__name__, option=option.name):
                    self.assertEqual(arguments[option.name].default, option.default)
            for term in TERMS:
                self.assertIsNone(arguments[term.name].default)

    def test_the_stubs_have_each(self):
        """__init__.pyi, which type checkers and editors read."""
        stubs = ast.parse((REPOSITORY / "bindings" / "python" / "attune_kernels" / "__init__.pyi").read_text())
        classes = {one.name: one for one in stubs.body if isinstance(one, ast.ClassDef)}

        def keys(name):
            """Of a TypedDict, with those that it inherits."""
            own = {one.target.id for one in classes[name].body if isinstance(one, ast.AnnAssign)}
            return own.union(*(keys(base.id) for base in classes[name].bases if base.id in classes))

        def arguments_of(stub):
            names = {one.arg for one in (*stub.args.args, *stub.args.kwonlyargs)}
            return names | keys(stub.args.kwarg.annotation.slice.id) if stub.args.kwarg else names

        def check(name, function, stub):
            with self.subTest(name):
                self.assertEqual(arguments_of(stub), set(inspect.signature(inspect.unwrap(function)).parameters))

        found = set()
        for stub in stubs.body:
            if isinstance(stub, ast.FunctionDef):
                found.add(stub.name)
                check(stub.name, getattr(attune, stub.name), stub)
        for name in ("Prepared", "PreparedBackward", "AttuneError"):
            found.add(name)
            for stub in classes[name].body:
                if isinstance(stub, ast.FunctionDef):
                    check(f"{name}.{stub.name}", getattr(getattr(attune, name), stub.name), stub)
        self.assertEqual(found, set(attune.__all__))


if __name__ == "__main__":
    unittest.main()
