"""Whether a module has what an entrypoint names, as far as its text says so.

A module is read and never run. It may make names in ways that no reader sees, so only what no
statement could bind is refused.
"""

import ast
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

from spindown.config.function import read_tree, say_unread
from spindown.error import ConfigError

#: Names, and attributes, by which a module can bind what its text does not show.
_WAYS_ROUND = frozenset({"eval", "exec", "globals", "locals", "setattr", "vars"})
_ATTRIBUTES = frozenset({"__dict__", "modules"})
#: Functions of a module that are named to who has named none of them.
_NAMED = 8
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class ModuleUnread(ConfigError):
    """The Python that runs here cannot read a module; that of the workers may be newer."""


def check_entrypoint(field: str, entrypoint: str, path: Path, shown: str) -> None:
    """Check that a module can be read, and may have what an entrypoint names.

    Args:
        field: the setting.
        entrypoint: its value, ``module:callable``.
        path: the file of the module.
        shown: that file, as a person knows it.

    Raises:
        ModuleUnread: this Python cannot read the file.
        ConfigError: nobody may read it, or nothing in it binds the name.
    """
    try:
        tree = read_tree(path)
    except OSError as exc:
        remedy = f"let {shown} be a file that can be read ({exc.strerror})"
        raise ConfigError(field, entrypoint, remedy) from exc
    except (SyntaxError, ValueError) as exc:
        raise ModuleUnread(field, entrypoint, f"mend {shown}, its {say_unread(exc)}") from exc
    module, _, name = entrypoint.partition(":")
    if name in (bound := set(_bound(tree))) or _has_hidden_names(tree):
        return
    close = get_close_matches(name, bound, n=1)
    functions = [one.name for one in tree.body if isinstance(one, ast.FunctionDef)]
    remedy = f"define {name} at the top level of {shown}"
    if close:
        remedy += f", or did you mean {module}:{close[0]}?"
    elif functions:
        remedy += f", or name one of what is there: {', '.join(functions[:_NAMED])}"
    raise ConfigError(field, entrypoint, remedy)


def _has_hidden_names(tree: ast.Module) -> bool:
    """Tell whether a module may bind names that its text does not show."""
    for node in ast.walk(tree):
        match node:
            case ast.alias(name="*") | ast.FunctionDef(name="__getattr__"):
                return True
            case ast.Name(id=name) if name in _WAYS_ROUND:
                return True
            case ast.Attribute(attr=name) if name in _ATTRIBUTES | _WAYS_ROUND:
                return True
    return False


def _bound(tree: ast.Module) -> Iterator[str]:
    """Yield the names that the text of a module binds, wherever it may be run."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield from node.names
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.alias():
                yield node.asname or node.name.partition(".")[0]
            case ast.MatchMapping(rest=str(name)):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name) | ast.ExceptHandler(name=str(name)):
                yield name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name
        # What is inside of a function or a class is not the module's.
        left += () if isinstance(node, _SCOPES) else ast.iter_child_nodes(node)
