"""Checks that lib/ is a one-way stack: a folder includes (and links) only folders above it.

    layering_test.py LIB          prints every violation and fails if there is one
    layering_test.py --self-test  makes a small tree with violations and checks that each is found
"""

import re
import sys
import tempfile
from pathlib import Path

# From the bottom of the stack up; a folder sees those before it.
STACK = "core config comm data models optim parallel checkpoint telemetry train cli".split()
SEES = {folder: set(STACK[:i]) for i, folder in enumerate(STACK)}
for one, other in (("models", "optim"), ("checkpoint", "telemetry")):  # siblings
    SEES[other].discard(one)
SEES["cuda"] = {"core", "comm"}  # the GPU plugin

NO_TORCH = {"core", "config"}
# torch/torch.h costs 25 s a file, so only headers whose interface is torch modules may bring it in.
TORCH_HEADERS = {"models", "parallel", "train"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
LINK = re.compile(r"\blockstep_([a-z]+)\b")


def check_source(lib, path, folder):
    text = path.read_text(encoding="utf-8")
    for match in INCLUDE.finditer(text):
        quote, name = match.groups()
        where = f"{path.relative_to(lib)}:{text.count(chr(10), 0, match.start(2)) + 1}"
        if name.startswith("lockstep/"):
            target = name.split("/")[1]
            if target not in SEES:
                yield f"{where}: includes {name}, which is in no folder of the stack"
            elif target != folder and target not in SEES[folder]:
                yield f"{where}: {folder}/ must not include {target}/"
            elif not (lib / name.removeprefix("lockstep/")).is_file():
                yield f"{where}: includes {name}, which does not exist"
        elif quote == '"':
            yield f'{where}: write "{name}" as "lockstep/<folder>/<file>", which this check can follow'
        elif name == "torch/torch.h" and path.suffix == ".h" and folder not in TORCH_HEADERS:
            yield f"{where}: a header of {folder}/ must not include torch/torch.h; name the smaller header"
        if folder in NO_TORCH and name.split("/")[0] in {"torch", "ATen", "c10"}:
            yield f"{where}: {folder}/ must build without LibTorch"


def check_links(lib, path, folder):
    text = re.sub(r"#.*", "", path.read_text(encoding="utf-8"))
    for target in sorted(set(LINK.findall(text)) & set(SEES)):
        if target != folder and target not in SEES[folder]:
            yield f"{path.relative_to(lib)}: {folder}/ must not link {target}/"


def violations(lib):
    found = []
    for folder in sorted(p for p in lib.iterdir() if p.is_dir() and p.name != "cmake"):
        if folder.name not in SEES:
            found.append(f"{folder.name}/: a folder that the stack does not name")
            continue
        for path in sorted(folder.rglob("*")):
            if path.suffix in {".h", ".cpp", ".cc", ".cu", ".inc"}:
                found += check_source(lib, path, folder.name)
            elif path.name == "CMakeLists.txt":
                found += check_links(lib, path, folder.name)
    return found


def self_test():
    tree = {
        "core/a.h": "#pragma once\n",
        "core/up.cpp": '#include "lockstep/core/a.h"\n#include "lockstep/comm/b.h"\n',
        "core/torch.cpp": "#include <ATen/ATen.h>\n",
        "comm/b.h": '#include "lockstep/core/a.h"\n#include <torch/types.h>\n',
        "comm/heavy.h": "#  include <torch/torch.h>\n",
        "comm/heavy.cpp": "#include <torch/torch.h>\n",
        "comm/gone.cpp": '#include "lockstep/core/gone.h"\n',
        "comm/CMakeLists.txt": "lockstep_library(comm SOURCES b.cpp DEPENDS lockstep_core lockstep_train)\n",
        "models/vision/m.h": '#include <torch/torch.h>\n#include "lockstep/comm/b.h"\n',
        "optim/sibling.cpp": '#include "lockstep/models/vision/m.h"\n',
        "telemetry/sibling.cpp": '#include "lockstep/checkpoint/c.h"\n',
        "checkpoint/c.h": "",
        "train/t.cpp": '#include "lockstep/models/vision/m.h"\n#include "lockstep/checkpoint/c.h"\n',
        "train/relative.cpp": '#include "../core/a.h"\n',
        "cuda/plugin.cpp": '#include "lockstep/comm/b.h"\n#include "lockstep/data/d.h"\n',
        "data/d.h": "",
        "stray/x.h": "",
    }
    expected = [
        "comm/CMakeLists.txt: comm/ must not link train/",
        "comm/gone.cpp:1: includes lockstep/core/gone.h, which does not exist",
        "comm/heavy.h:1: a header of comm/ must not include torch/torch.h; name the smaller header",
        "core/torch.cpp:1: core/ must build without LibTorch",
        "core/up.cpp:2: core/ must not include comm/",
        "cuda/plugin.cpp:2: cuda/ must not include data/",
        "optim/sibling.cpp:1: optim/ must not include models/",
        "stray/: a folder that the stack does not name",
        "telemetry/sibling.cpp:1: telemetry/ must not include checkpoint/",
        'train/relative.cpp:1: write "../core/a.h" as "lockstep/<folder>/<file>", which this check can follow',
    ]
    with tempfile.TemporaryDirectory() as folder:
        for name, text in tree.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        found = sorted(violations(Path(folder)))
    if found != expected:
        sys.exit("expected\n  " + "\n  ".join(expected) + "\nfound\n  " + "\n  ".join(found))


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return
    if len(sys.argv) != 2 or not Path(sys.argv[1], "core").is_dir():
        sys.exit(f"usage: {sys.argv[0]} LIB | --self-test")
    found = violations(Path(sys.argv[1]))
    if found:
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
