#!/usr/bin/env python3
"""scripts/container/Dockerfile copies what is there and enough for a build, names stages, scripts, options and folders that exist, and ends with what is
installed. What is copied is configured with the options that stand there. An engine, which would try all of it, is not needed.
usage: container_test.py SOURCE_FOLDER BUILD_FOLDER"""
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

root, build = (pathlib.Path(folder).resolve() for folder in sys.argv[1:3])
path = root / "scripts/container/Dockerfile"
text = path.read_text()
complaints = []


def instructions():
    """Keyword, words, and the whole text, without comments and with lines joined."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for line in re.sub(r"\\\n", " ", lines).splitlines():
        keyword, _, rest = line.strip().partition(" ")
        if keyword:
            yield keyword, rest.strip()


def expect(condition, complaint):
    if not condition:
        complaints.append(complaint)


arguments, stages, stage, copied, installed, entry, users = {}, {}, None, {}, {}, None, {"root"}
for keyword, rest in instructions():
    if keyword == "ARG":
        name, _, value = rest.partition("=")
        arguments[name] = value
    elif keyword == "FROM":
        image, _, stage = rest.partition(" AS ")
        image = re.sub(r"\$\{(\w+)\}", lambda found: arguments.get(found[1], ""), image)
        expect(re.fullmatch(r"[\w./-]+:[\w.-]+", image) or image in stages, f"FROM {rest}: {image or 'nothing'} is no image with a tag")
        stage = stage or "last"
        stages[stage], copied[stage] = image, []
    elif keyword == "COPY":
        words = [word for word in rest.split() if not word.startswith("--")]
        source = re.search(r"--from=(\S+)", rest)
        if source is None:
            for name in words[:-1]:
                expect((root / name).exists(), f"COPY {name}: the repository has no such file")
                copied[stage].append(name)
        else:
            expect(source[1] in stages, f"COPY --from={source[1]}: there is no such stage before")
            expect(words[0] in installed.get(source[1], ()), f"COPY {words[0]}: the stage {source[1]} installs nothing there")
    elif keyword == "RUN":
        for command in re.split(r"&&|;", rest):
            words = shlex.split(command)
            if words[0].startswith("scripts/"):
                expect((root / words[0]).is_file() and "scripts" in copied[stage], f"RUN {words[0]}: it is not there")
            if words[:2] == ["cmake", "--install"]:
                installed.setdefault(stage, set()).add(words[words.index("--prefix") + 1])
            if words[0] == "useradd":
                users.add(words[-1])
            for option in re.findall(r"-D(ATTUNE_\w+)=", command):
                known = (root / "CMakeLists.txt").read_text()
                expect(re.search(rf"(option|set)\({option}\b", known), f"RUN: the build has no option {option}")
    elif keyword == "USER":
        expect(rest in users, f"USER {rest}: nobody made that user")
    elif keyword in ("ENTRYPOINT", "CMD"):
        entry = json.loads(rest) if keyword == "ENTRYPOINT" else entry
        expect(json.loads(rest), f"{keyword} is empty")
    else:
        expect(keyword == "WORKDIR", f"{keyword} is an instruction that this test does not know")

# What the build of the first stage reads: the rooms of the top CMakeLists.txt, those that its options leave out aside, and what is installed as it is.
top = (root / "CMakeLists.txt").read_text()
off = re.findall(r"-DATTUNE_BUILD_(\w+)=OFF", text)
rooms = [room for room in re.findall(r"^\s*add_subdirectory\((\w+)\)", top, re.MULTILINE) if room.upper() not in off]
papers = re.findall(r"\$\{PROJECT_SOURCE_DIR\}/(\w+(?:\.md)?)(?=[ )\n])", (root / "scripts/cmake/install.cmake").read_text())
expect(len(rooms) >= 4 and len(papers) >= 3, "the top CMakeLists.txt or scripts/cmake/install.cmake is not read as it should be")
for name in ["CMakeLists.txt", "scripts", *rooms, *papers]:
    expect(name in copied["build"], f"the build needs {name}, which is not copied")
expect(entry == ["attune"], f"the container runs {entry}, and not attune")
for line in re.findall(r"docker build .*", text):
    named = re.search(r"--file (\S+)", line)
    expect(named and root / named[1] == path, f"{line}: that is not the way to this file")

if not complaints:
    with tempfile.TemporaryDirectory() as folder:
        here = pathlib.Path(folder, "attune")
        here.mkdir()
        for name in copied["build"]:
            copy = shutil.copytree if (root / name).is_dir() else shutil.copyfile
            copy(root / name, here / name)
        (here / "build").mkdir()
        if (build / "deps.cmake").exists():
            shutil.copyfile(build / "deps.cmake", here / "build/deps.cmake")
        options = re.findall(r"-DATTUNE_\w+=\w+", text)
        done = subprocess.run(["cmake", "-S", here, "-B", here / "build", "-G", "Ninja", *options], capture_output=True, text=True)
        expect(done.returncode == 0, f"what is copied is not configured with {' '.join(options)}:\n{done.stderr}")

for complaint in complaints:
    print(f"scripts/container/Dockerfile: {complaint}")
sys.exit(1 if complaints else 0)
