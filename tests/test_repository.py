"""Rules of the repository that no linter checks: links, imports, sizes, words, docstrings, light imports."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("models", "inference", "acquisition")
MAX_LINES = 400

# Written as patterns that do not match themselves.
FORBIDDEN = {
    "unfinished work": r"\bTO[D]O\b|\bFIX[M]E\b|\bXX[X]\b|\braise NotImplemente[d]Error",
    "a path of one machine": r"(?<![\w.])/(?:work|root|home)/|[A-Z]:\\Users\\",
    "a package index": r"index[-_]url|find[-_]links|(?:https?|file)://[^\s\"')]*(?:/simple\b|pypi\.org)",
    "pages that readers do not have": r"shared/(?:design|derivations|anchors|known_faults|seeds|sketch)",
}
# Distribution names whose import name differs.
IMPORT_NAMES = {"scikit-learn": "sklearn", "liac-arff": "arff", "arviz-stats": "arviz_stats"}


def modules() -> list[Path]:
    """Return every module of the package, each once: the links are left out."""
    top = [path for name in FOLDERS for path in (ROOT / name).rglob("*.py")]
    inner = (path for path in (ROOT / "src" / "labelzoo").rglob("*.py"))
    return sorted(top + [path for path in inner if path.relative_to(ROOT).parts[2] not in FOLDERS])


def repository_files() -> list[Path]:
    """Return the files that git tracks or would add; where there is no git, the modules and the tests."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "-co", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    except (OSError, subprocess.CalledProcessError):
        return modules() + sorted((ROOT / "tests").rglob("*.py"))
    paths = [ROOT / name for name in listed.split("\0") if name]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def texts(paths: list[Path]) -> Iterator[tuple[Path, str]]:
    """Yield each path below the root with its text; files that are not UTF-8 text are passed over."""
    for path in paths:
        try:
            yield path.relative_to(ROOT), path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def trees(paths: list[Path]) -> Iterator[tuple[Path, ast.Module]]:
    """Yield each path below the root with its syntax tree."""
    for path, text in texts(paths):
        yield path, ast.parse(text, filename=str(path))


def import_time_nodes(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes that run when the module is imported: no function body, no TYPE_CHECKING branch."""
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting.extend(node.orelse)
            continue
        waiting.extend(ast.iter_child_nodes(node))


def imported(node: ast.AST) -> list[str]:
    """Return the modules that an import statement names; relative ones start with a dot."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return ["." * node.level + (node.module or "")]
    return []


def report(found: list[str]) -> None:
    """Fail with every finding on a line of its own."""
    assert not found, "\n" + "\n".join(found)


def run_python(code: str, **environment: str) -> str:
    """Run code in a fresh interpreter that imports the package from this checkout."""
    unset = ("JAX_ENABLE_X64", "XLA_FLAGS", "PYTHONWARNINGS", "LC_ALL", "LANG")
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    env = kept | {"PYTHONPATH": str(ROOT / "src")} | environment
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", FOLDERS)
def test_link_resolves_to_the_top_folder(name: str) -> None:
    link = ROOT / "src" / "labelzoo" / name
    assert link.is_symlink(), f"{link.relative_to(ROOT)} is not a link: the two copies can drift apart"
    assert os.readlink(link) == f"../../{name}", "the link must be relative, or clones elsewhere break"
    assert link.resolve() == ROOT / name
    assert (link / "__init__.py").is_file()


def test_imports_are_absolute_and_named_in_full() -> None:
    paths = [path for path in repository_files() if path.suffix == ".py"]
    report(
        [
            f"{path}:{node.lineno}: import labelzoo.<...>, not {name}"  # type: ignore[attr-defined]
            for path, tree in trees(paths)
            for node in ast.walk(tree)
            for name in imported(node)
            if name.startswith(".") or name.split(".")[0] in FOLDERS
        ]
    )


def test_modules_import_only_declared_dependencies() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {re.split(r"[\[<>=!~; ]", line)[0] for line in project["dependencies"]}
    allowed = {IMPORT_NAMES.get(name, name) for name in names} | set(sys.stdlib_module_names) | {"labelzoo"}
    report(
        [
            f"{path}:{node.lineno}: {name} is not a core dependency"  # type: ignore[attr-defined]
            for path, tree in trees(modules())
            for node in import_time_nodes(tree)
            for name in imported(node)
            if name.split(".")[0] not in allowed
        ]
    )


def test_modules_stay_small() -> None:
    sizes = {path: len(text.splitlines()) for path, text in texts(modules())}
    report(
        [f"{path}: {lines} lines, at most {MAX_LINES}" for path, lines in sizes.items() if lines >= MAX_LINES]
    )


@pytest.mark.parametrize("what", FORBIDDEN)
def test_files_name_nothing_they_should_not(what: str) -> None:
    report(
        [
            f"{path}:{number}: {what}: {line.strip()[:100]}"
            for path, text in texts(repository_files())
            for number, line in enumerate(text.splitlines(), start=1)
            if re.search(FORBIDDEN[what], line)
        ]
    )


def test_forbidden_patterns_match_what_they_are_for() -> None:
    slash = "/"
    samples = {
        "unfinished work": "# TO" + "DO later",
        "a path of one machine": f"open('{slash}home{slash}ann/data.arff')",
        "a package index": "pip install --index" + "-url somewhere",
        "pages that readers do not have": "see shared" + f"{slash}design.md",
    }
    assert samples.keys() == FORBIDDEN.keys()
    assert all(re.search(FORBIDDEN[what], text) for what, text in samples.items())


def test_modules_and_public_names_have_docstrings() -> None:
    found = []
    for path, tree in trees(modules()):
        public = [
            node
            for node in tree.body
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
        ]
        if not ast.get_docstring(tree):
            found.append(f"{path}: no module docstring")
        found += [
            f"{path}:{node.lineno}: {node.name} has no docstring"
            for node in public
            if not (ast.get_docstring(node) or "").strip()
        ]
    report(found)


def test_text_files_are_opened_with_an_encoding() -> None:
    found = []
    for path, tree in trees(modules()):
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or any(
                word.arg in ("encoding", None) for word in node.keywords
            ):
                continue
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            modes = [*node.args[1:2], *(word.value for word in node.keywords if word.arg == "mode")]
            binary = any(isinstance(mode, ast.Constant) and "b" in str(mode.value) for mode in modes)
            plain_open = isinstance(node.func, ast.Name) and name == "open" and not binary
            if plain_open or (name == "read_text" and not node.args):
                found.append(f"{path}:{node.lineno}: {name} without encoding= reads by the user's locale")
            if name == "write_text" and len(node.args) == 1:
                found.append(
                    f"{path}:{node.lineno}: write_text without encoding= writes by the user's locale"
                )
    report(found)


def test_skips_give_their_reason() -> None:
    found = []
    for path, tree in trees(sorted((ROOT / "tests").rglob("*.py"))):
        for node in ast.walk(tree):
            text = ast.unparse(node) if isinstance(node, ast.Call | ast.Attribute) else ""
            mark = re.match(r"pytest\.mark\.(skip|skipif|xfail)\b", text)
            called = isinstance(node, ast.Call) and re.match(r"pytest\.(skip|xfail)\(", text)
            if isinstance(node, ast.Call) and mark and not any(w.arg == "reason" for w in node.keywords):
                found.append(f"{path}:{node.lineno}: {text[:80]} gives no reason")
            if isinstance(node, ast.Call) and called and not (node.args or node.keywords):
                found.append(f"{path}:{node.lineno}: {text[:80]} gives no reason")
    report(found)


def test_import_is_light_and_leaves_jax_alone() -> None:
    code = """
import sys, jax, labelzoo
heavy = {"sklearn", "matplotlib", "pandas.plotting._matplotlib", "IPython", "dask"} & set(sys.modules)
print(sorted(heavy), jax.config.jax_enable_x64)
"""
    assert run_python(code).split("\n")[0] == "[] False"


def test_every_module_imports_under_the_c_locale_without_side_effects() -> None:
    code = """
import importlib, pkgutil, sys
import jax, numpy, numpyro  # importing JAX draws from NumPy's global state, so the state is read after it
numpy.random.seed(3)
import labelzoo
for module in pkgutil.walk_packages(labelzoo.__path__, "labelzoo."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
assert not jax.config.jax_enable_x64, "an import switches float64 on for the whole process"
untouched = numpy.random.RandomState(3).random_sample()
assert numpy.random.random_sample() == untouched, "an import touches NumPy's global random state"
jax.config.update("jax_num_cpu_devices", 2)  # raises where an import has already made an array
print(sys.flags.utf8_mode, jax.device_count())
"""
    printed = run_python(
        code, LANG="C", LC_ALL="C", PYTHONCOERCECLOCALE="0", PYTHONUTF8="0", JAX_PLATFORMS="cpu"
    )
    assert printed.split() == ["0", "2"]
