"""The code that documents show, block by block: C and C++ compile, Python calls what the module has with arguments that it takes, CMake is that of
examples/project, scripts and manifests (bash, yaml) are parts of files of examples/slurm and examples/kubernetes, and of shell lines every `attune` command has a verb and options that exist and a problem and a config that are understood."""
import ast
import builtins
import contextlib
import importlib
import inspect
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

LANGUAGES = {"", "c", "cpp", "python", "sh", "console", "cmake", "json", "text", "bash", "yaml"}
PROBLEM_OPTIONS = {"--problem", "--pass", "--dtype", "--batch", "--heads", "--kv-heads", "--seq", "--kv-seq", "--head-dim", "--mask", "--causal",
                   "--deterministic", "--scale", "--layout", "--config", "--target", "--algorithm"}


class Block:
    def __init__(self, page, line, language, text):
        self.page, self.line, self.language, self.text = page, line, language, text

    def __str__(self):
        return f"{self.page}:{self.line}"


def blocks_of(root, pages):
    for page in pages:
        inside = None
        for number, line in enumerate((root / page).read_text().splitlines(), 1):
            if not line.startswith("```"):
                if inside is not None:
                    inside.text += line + "\n"
            elif inside is None:
                inside = Block(page, number + 1, line[3:].strip(), "")
            else:
                yield inside
                inside = None


class Snippets:
    def __init__(self, root, build, compilers):
        self.root, self.build, self.compilers = root, build, compilers
        self.complaints, self.counts, self.helps, self.understood = [], {}, {}, set()

    def complain(self, block, what):
        self.complaints.append(f"{block}: {what}")

    def check(self, pages):
        cpp = []
        for block in blocks_of(self.root, pages):
            if block.language not in LANGUAGES:
                self.complain(block, f"a block of {block.language}, which this test does not know")
            elif block.language == "cpp":
                cpp.append(block)
            else:
                getattr(self, f"check_{'sh' if block.language in ('', 'console') else block.language}")(block)
        self.check_cpp(cpp)
        for kind, least in {"c": 3, "cpp": 3, "python": 4, "cmake": 2, "attune": 20}.items():
            if self.counts.get(kind, 0) < least:
                self.complaints.append(f"hardly a block of {kind} was found: this test looks in the wrong place")

    def count(self, kind, number=1):
        self.counts[kind] = self.counts.get(kind, 0) + number

    def check_text(self, block):
        pass

    def check_bash(self, block):
        self.check_part(block, "slurm")

    def check_yaml(self, block):
        self.check_part(block, "kubernetes")

    def check_part(self, block, folder):
        if not any(block.text in path.read_text() for path in (self.root / "examples" / folder).iterdir()):
            self.complain(block, f"no part of a file of examples/{folder}")

    def check_json(self, block):
        try:
            json.loads(block.text)
        except ValueError as error:
            self.complain(block, f"no JSON: {error}")

    def check_cmake(self, block):
        self.count("cmake")
        known = (self.root / "examples/project/CMakeLists.txt").read_text().splitlines()
        known = {line.strip() for line in known}
        for line in block.text.splitlines():
            if line.strip() and line.strip() not in known:
                self.complain(block, f"examples/project/CMakeLists.txt, which is built, has no line: {line.strip()}")

    def compile(self, compiler, options, text, what):
        done = subprocess.run([*compiler, "-fsyntax-only", "-Wall", "-Werror", *options, "-"], input=text, capture_output=True, text=True)
        if done.returncode:
            self.complaints.append(f"{what} does not compile:\n{done.stderr.strip()}")

    def check_c(self, block):
        self.count("c")
        text = f'#line {block.line} "{block.page}"\n{block.text}'
        self.compile([self.compilers[0]], ["-std=c99", "-pedantic", "-x", "c", "-I", self.root / "bindings/c"], text, block)

    def check_cpp(self, blocks):
        """All at once, each in a namespace of its own: parsing the headers is what takes time."""
        self.count("cpp", len(blocks))
        includes, bodies = [], []
        for number, block in enumerate(blocks):
            lines = block.text.splitlines()
            here = [line for line in lines if line.startswith("#include")]
            if not here:
                self.complain(block, "includes nothing: a reader cannot compile it")
            includes += here
            body = "\n".join("" if line.startswith("#include") else line for line in lines)
            bodies.append(f'namespace snippet_{number} {{\n#line {block.line} "{block.page}"\n{body}\n}}')
        # A main of a namespace is a function like others, whose end returns nothing.
        text = "\n".join(includes + [body.replace("int main()", "void whole_program()") for body in bodies])
        self.compile([self.compilers[1]], ["-std=c++20", "-x", "c++", "-I", self.root, "-I", self.root / "runtime/include"], text, "the C++ of the pages")

    def check_python(self, block):
        self.count("python")
        try:
            tree = ast.parse(block.text)
        except SyntaxError as error:
            return self.complain(block, f"no Python: {error}")
        module = python_module(self.root, self.build)
        alias = {name.asname or name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names if name.name == "attune_kernels"}

        def ours(node):
            return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in alias

        for node in ast.walk(tree):
            if ours(node) and not hasattr(module, node.attr):
                self.complain(block, f"attune_kernels has no {node.attr}")
            elif isinstance(node, ast.Call) and ours(node.func) and hasattr(module, node.func.attr):
                try:
                    inspect.signature(getattr(module, node.func.attr)).bind(*node.args, **{word.arg: word.value for word in node.keywords})
                except TypeError as error:
                    self.complain(block, f"attune_kernels.{node.func.attr}: {error}")
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "attune_kernels":
                known = names_of_module(self.root / "bindings/python", node.module)
                for name in node.names:
                    if name.name not in known:
                        self.complain(block, f"{node.module} has no {name.name}")
        # What needs neither other modules nor names that the text around it explains is run.
        names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
        given = {name.id for name in names if not isinstance(name.ctx, ast.Load)} | set(dir(builtins)) | alias
        given |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)} | {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        if len(re.findall(r"\bimport\b", block.text)) == len(alias) and all(name.id in given for name in names):
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    exec(compile(tree, str(block), "exec"), {"__name__": "snippet"})
            except Exception as error:
                self.complain(block, f"does not run: {type(error).__name__}: {error}")

    def check_sh(self, block):
        for words in commands_of(block.text):
            if words[:2] == ["docker", "run"] and "attune" in words:  # the image, whose program is `attune`
                words = words[words.index("attune"):]
            if words[0].startswith("scripts/"):
                if not (self.root / words[0]).exists():
                    self.complain(block, f"{words[0]} is not there")
            elif words[0] == "attune" and len(words) > 1 and not any(mark in word for word in words for mark in ("…", "...")):
                self.check_attune(block, words[1:])

    def help_of(self, *verb):
        """The options of a verb, and whether each takes a value; and the verbs below it."""
        if verb not in self.helps:
            said = self.attune(*verb, "--help").stdout
            options = {}
            for line in re.findall(r"^ +(-[^ ].*)$", said, re.MULTILINE):
                names, _, kind = line.partition(" ")
                for name in names.split(","):
                    options[name] = bool(re.match(r"[A-Z]", kind))
            below = re.search(r"^(?:Subcommands|Commands):\n((?: +.*\n?)+)", said, re.MULTILINE | re.IGNORECASE)
            verbs = set(re.findall(r"^  ([a-z-]+)", below.group(1), re.MULTILINE)) if below else set()
            self.helps[verb] = options, verbs
        return self.helps[verb]

    def check_attune(self, block, words):
        self.count("attune")
        line, verb = " ".join(["attune", *words]), ()
        while words and words[0] in self.help_of(*verb)[1]:
            verb, words = (*verb, words[0]), words[1:]
        options, below = self.help_of(*verb)
        if not verb and words[0] not in options:
            return self.complain(block, f"{line}: attune has no verb {words[0]}")
        if below and verb:
            return self.complain(block, f"{line}: {words[0] if words else 'nothing'} is no command of attune {' '.join(verb)}")
        asked, values = [], iter(words)
        for word in values:
            if not word.startswith("-") or re.fullmatch(r"-?\d.*", word):
                continue
            name, given, value = word.partition("=")
            if name not in options:
                self.complain(block, f"{line}: attune {' '.join(verb)} has no option {name}")
                return
            if options[name] and not given:
                value = next(values, None)
                if value is None:
                    return self.complain(block, f"{line}: {name} has no value")
            if name in PROBLEM_OPTIONS and value != "all":  # `show` takes one algorithm
                asked += [name, value] if options[name] else [name]
        if verb == ("devices",):
            self.run(block, line, ["devices"])
        elif "--seq" in asked or "--problem" in asked:
            target = [] if "--target" in asked else ["--target", "h200"]
            self.run(block, line, ["explain", *asked, *target] if verb == ("explain",) else ["show", "plan", *asked, *target])

    def run(self, block, line, words):
        if tuple(words) in self.understood:
            return
        self.understood.add(tuple(words))
        done = self.attune(*words)
        if done.returncode:
            self.complain(block, f"{line}: `attune {' '.join(words)}` fails: {done.stderr.strip()}")

    def attune(self, *words):
        with tempfile.TemporaryDirectory() as home:
            keep = {name: value for name, value in os.environ.items() if not name.startswith("ATTUNE_")}
            return subprocess.run([self.build / "bin/attune", *words], env={**keep, "HOME": home, "CUDA_VISIBLE_DEVICES": "-1"}, capture_output=True, text=True)


def commands_of(text):
    """The commands of shell lines, as lists of words; what is no shell gives commands of no known name."""
    for line in re.sub(r"\\\n", " ", text).splitlines():
        line = re.sub(r"[<$]\(|\)", " ; ", re.sub(r"^\$ ", "", line))
        try:
            lexer = shlex.shlex(line, posix=True, punctuation_chars=";|&")
            lexer.commenters, lexer.whitespace_split = "#", True
            words = list(lexer)
        except ValueError:  # an apostrophe, as in prose
            continue
        command = []
        for word in [*words, ";"]:
            if word[0] in ";|&":
                if command:
                    yield command
                command = []
            elif command or not re.match(r"[A-Z_]+=", word):
                command.append(word)


def names_of_module(folder, module):
    """What a module of the package defines or imports, and the modules below it, read and not run."""
    path = folder.joinpath(*module.split("."))
    names = {file.stem for file in path.glob("*")} if path.is_dir() else set()
    for file in (path / "__init__.py", path.with_suffix(".py")):
        if file.is_file():
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                    names.add(node.name)
                elif isinstance(node, (ast.Import, ast.ImportFrom)):
                    names |= {name.asname or name.name for name in node.names}
                elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                    names.add(node.id)
    return names


def python_module(root, build):
    if "attune_kernels" not in sys.modules:
        sys.path[:0] = [str(root / "tests/runtime"), str(root / "bindings/python")]
        sys.dont_write_bytecode = True
        os.environ["ATTUNE_LIBRARY"] = str(build / "lib/libattune.so")
        importlib.import_module("fake_torch").install()
    return importlib.import_module("attune_kernels")
