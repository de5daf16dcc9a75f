"""Nothing outside generator/families names a kernel family or decides by a compute capability.

usage: families_test.py SOURCE_FOLDER
Comments and string literals may; generator/device holds the facts of GPU models, and tests are free.
"""
import pathlib
import re
import sys

ROOMS = ("generator", "runtime", "tuner", "bindings", "examples")
FREE = ("generator/families/", "generator/device/")
NAMES = re.compile(r"\b\w*(?:sm80|sm90|Sm80|Sm90)\w*\b|\bFamilyWord::\w+|\bcompute_(?:major|minor)\s*(?:==|!=|<=|>=|<|>)")
# Comments, string literals (raw ones, too) and character literals.
PROSE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)
INCLUDE = re.compile(r'^\s*#\s*include[^\n]*', re.M)


def findings(root):
    for room in ROOMS:
        for path in sorted((root / room).rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.suffix not in (".h", ".cpp", ".c", ".cu", ".py") or name.startswith(FREE):
                continue
            code = INCLUDE.sub("", path.read_text())
            code = PROSE.sub(lambda found: "\n" * found.group().count("\n"), code)
            for number, line in enumerate(code.split("\n"), 1):
                for found in NAMES.finditer(line):
                    yield f"{name}:{number}: {found.group()}"


def main():
    found = list(findings(pathlib.Path(sys.argv[1])))
    for line in found:
        print(line)
    print(f"{len(found)} places outside families name one" if found else "no place outside families names one")
    sys.exit(1 if found else 0)


main()
