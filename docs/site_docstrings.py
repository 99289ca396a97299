"""Sphinx extension: docstrings are plain text with `code`, fields (`:param x:`) and indented blocks of code.

A parameter that a docstring does not name gets its text from parameters.toml. What reStructuredText would take for
something else is escaped: |x|, *args, names_. A reference to a name of ours leads to its page, by whatever module it is
called; one to a name that has no page has to exist.
"""

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from docutils.nodes import Element
    from sphinx.addnodes import pending_xref
    from sphinx.application import Sphinx

PACKAGES = ("gpflow_deep", "darn", "rbm_tracking", "ebp", "compression", "gpflow_deep_base", "gpflow_deep_runs")
CODE = re.compile(r"((?::[\w:]+:)?`[^`]+`|^\s*:\w+[^:`]*:)")
SPECIAL = re.compile(r"([*|]|(?<=\w)_(?!\w))")
LIST = re.compile(r"\s*[-*\d]")
FIELD = re.compile(r":\w+[^:`]*:")
FIELD_NAME = re.compile(r"^(:(?:param|ivar) \w*[^\W_])_:")
NAMED = re.compile(r"^:(?:param|ivar) (\w+):", re.MULTILINE)
DOCS = Path(__file__).resolve().parent
TEXTS = tomllib.loads((DOCS / "parameters.toml").read_text(encoding="utf-8"))


def missing_texts(package: str, names: Iterable[str], docstring: str) -> dict[str, str]:
    """Texts of the parameters that a docstring has none of, by name; "" where there is none anywhere.

    :param package: whose words they are.
    """
    # A package may have words of its own for a name.
    words = TEXTS["all"] | TEXTS.get(package, {})
    described = set(NAMED.findall(docstring))
    return {name: words.get(name, "") for name in names if name not in described}


def with_parameters(lines: list[str], texts: dict[str, str]) -> list[str]:
    """Lines of a docstring with more parameters: behind those that it has, or at its end."""
    fields = [f":param {name}: {text}." for name, text in texts.items() if text]
    if not fields:
        return lines
    # Behind the last parameter and the lines that continue it.
    last = max((number for number, line in enumerate(lines) if line.startswith(":param ")), default=None)
    if last is None:
        return [*lines, "", *fields]
    end = last + 1
    while end < len(lines) and lines[end].startswith(" "):
        end += 1
    return [*lines[:end], *fields, *lines[end:]]


def escaped(lines: Iterable[str]) -> list[str]:
    """Lines of a docstring as reStructuredText."""
    result = list[str]()
    is_code = False
    is_field = False
    before = ""
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if line.strip() and indent == 0:
            is_code = False
            is_field = bool(FIELD.match(line))
        elif indent >= 4 and not is_code and not is_field and not LIST.match(before):
            is_code = True
            result += ["", "::", ""]
        # Text between pieces of code is escaped, the code itself is not.
        line = FIELD_NAME.sub(r"\1\\_:", line)  # :ivar bounds_: is no reference
        parts = CODE.split(line)
        words = [part if number % 2 else _plain(part, number) for number, part in enumerate(parts)]
        result.append(line if is_code else "".join(words))
        before = line
    return result


def _plain(part: str, number: int) -> str:
    """What is no code: with its special characters escaped, and apart from code that it follows (`name`s)."""
    return ("\\ " if number and re.match(r"\w", part) else "") + SPECIAL.sub(r"\\\1", part)


def parameters(thing: Callable[..., object]) -> list[str]:
    """Names of the parameters of a function or a class; none where Python cannot tell."""
    try:
        named = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return []
    stars = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [parameter.name for parameter in named if parameter.kind not in stars]


@cache
def exists(name: str) -> bool:
    """Whether a name with dots can be imported."""
    parts = name.split(".")
    # The longest part that is a module, then attributes of it.
    for length in range(len(parts), 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for part in parts[length:]:
            declared = getattr(thing, "__annotations__", {})
            if not hasattr(thing, part):
                return part in declared
            thing = getattr(thing, part)
        return True
    return False


@cache
def is_within(package: str, name: str) -> bool:
    """Whether a module of a package of ours has a name."""
    if package not in PACKAGES:
        return False
    modules = [module for path, module in list(sys.modules.items()) if path.split(".")[0] == package]
    return any(hasattr(module, name) for module in modules)


def setup(app: "Sphinx") -> dict[str, bool]:
    """Called by Sphinx."""
    # Names that have a page of their own in the reference.
    listed = "\n".join(path.read_text(encoding="utf-8") for path in (DOCS / "api").glob("*.rst"))
    pages = set(re.findall(r"^(?:   |\.\. auto\w+:: )(\w+\.\w+)$", listed, re.MULTILINE))

    def process(
        app: "Sphinx", what: str, name: str, thing: Callable[..., object], options: object, lines: list[str]
    ) -> None:
        if what in ("function", "method", "class"):
            # Parameters that the docstring does not name, with the words that they have everywhere.
            is_method = what == "method" and not inspect.ismethod(thing)
            made_by = inspect.getdoc(thing.__init__) if what == "class" and "__init__" in vars(thing) else None
            if made_by is None or made_by.splitlines()[:1] == lines[:1]:  # of both docstrings of a class, the last one
                whole = "\n".join([*lines, inspect.getdoc(thing) or ""])
                texts = missing_texts(name.partition(".")[0], parameters(thing)[is_method:], whole)
                lines[:] = with_parameters(lines, texts)
        # What Python says of every NamedTuple.
        lines[:] = escaped(line for line in lines if not line.startswith("Create new instance of "))

    def skip(app: "Sphinx", what: str, name: str, thing: object, is_skipped: bool, options: object) -> bool | None:
        is_field = type(thing).__name__ == "_tuplegetter"  # of a NamedTuple: in the docstring of the class
        is_of_scikit_learn = re.fullmatch(r"set_\w+_request", name.rpartition(".")[2])
        module = getattr(thing, "__module__", None) or ""
        short = f"{str(module).partition('.')[0]}.{name.rpartition('.')[2]}"
        has_page = what == "module" and short in pages  # by the name that its package exports
        is_of_tensorflow = str(module).startswith("tensorflow")  # which it copies into subclasses
        return True if is_field or is_of_scikit_learn or is_of_tensorflow or has_page else None

    def resolve(app: "Sphinx", env: Any, node: "pending_xref", contnode: "Element") -> "Element | None":
        """A page of the name that the package exports, or plain text if there is only the name."""
        if node.get("refdomain") != "py":
            return None
        of_page = node["refdoc"].removeprefix("api/")  # the first sentences on the page of a package have no module
        target = node["reftarget"]
        module = node.get("py:module") or of_page
        domain = env.get_domain("py")
        # The name within the class, within the module, and as it is.
        names = [f"{module}.{node.get('py:class')}.{target}", f"{module}.{target}", target]
        names = [name for name in names if name.split(".")[0] in PACKAGES]
        for name in names:
            short = f"{name.split('.')[0]}.{name.split('.')[-1]}"
            if short in domain.objects:
                return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", short, node, contnode)
        # What has no page has to exist all the same.
        is_known = any(exists(name) for name in names) or is_within(module.split(".")[0], target)
        return contnode if is_known else None

    app.connect("autodoc-process-docstring", process)
    app.connect("autodoc-skip-member", skip)
    app.connect("missing-reference", resolve)
    return {"parallel_read_safe": True}
