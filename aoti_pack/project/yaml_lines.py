"""YAML whose every value knows its path and its line, so that a fault is told by both."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from aoti_pack.errors import UserError


@dataclass(frozen=True)
class Located:
    """A value of a YAML file: a dict or list of Located, or a plain scalar. `path` is such as `models[2].name`."""

    value: Any
    file: Path
    path: str
    line: int

    def fault(self, problem: str, mend: str | None = None) -> UserError:
        """The error that says `problem` about this value, by file, line and path."""
        where = f"{self.file}:{self.line}: {self.path}" if self.path else f"{self.file}:{self.line}"
        return UserError(f"{where}: {problem}", mend=mend)

    def plain(self) -> Any:
        """The value without its locations."""
        if isinstance(self.value, dict):
            return {key: item.plain() for key, item in self.value.items()}
        if isinstance(self.value, list):
            return [item.plain() for item in self.value]
        return self.value


def read_yaml(file: Path) -> Located:
    """The one document in `file`. UserError when it cannot be read, is not YAML, or says a key twice."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{file} does not exist", mend="`aoti-pack build --help` shows an example") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not UTF-8 text: {error}") from None
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            raise UserError(f"{file} is empty", mend="`aoti-pack build --help` shows an example")
        return _located(loader, node, file, "", ())
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
        raise UserError(f"{file}:{line}: not YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"{file}: not YAML: {' '.join(str(error).split())}") from None


def _located(
    loader: yaml.SafeLoader, node: yaml.Node, file: Path, path: str, above: tuple[yaml.Node, ...]
) -> Located:
    here = Located(None, file, path, node.start_mark.line + 1)
    if any(node is one for one in above):
        raise here.fault("it contains itself")
    value: Any
    if isinstance(node, yaml.MappingNode):
        value = {}
        for key_node, value_node in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            at = Located(None, file, path, key_node.start_mark.line + 1)
            if key is None or key_node.tag == "tag:yaml.org,2002:merge":
                raise at.fault(f"expected a plain key, got {key or 'a nested one'}")
            if key in value:
                raise at.fault(f"the key {key!r} stands twice")
            value[key] = _located(loader, value_node, file, f"{path}.{key}" if path else key, (*above, node))
    elif isinstance(node, yaml.SequenceNode):
        value = [
            _located(loader, one, file, f"{path}[{i}]", (*above, node)) for i, one in enumerate(node.value)
        ]
    else:
        value = loader.construct_object(node, deep=True)
    return Located(value, file, path, node.start_mark.line + 1)
