"""YAML as job files may use it: plain values, each key once, and aliases that do not grow without bound."""

from typing import Any

import yaml

from batchrunner.errors import JobFileError

MAX_ALIASES = 100
MAX_ALIASED_VALUES = 50_000
# What PyYAML raises for a value that looks like a number or a date and is none.
_VALUE_ERRORS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def read_yaml(text: str) -> Any:
    """The values of a YAML document; what an alias stands for may be one shared object. Raises JobFileError."""
    try:
        return yaml.load(text, _StrictLoader)  # noqa: S506  _StrictLoader is a SafeLoader
    except yaml.YAMLError as error:
        raise JobFileError(f"not valid YAML: {error}") from error
    except RecursionError as error:
        raise JobFileError("not valid YAML: its values are nested too deeply") from error


class _StrictLoader(yaml.SafeLoader):
    """SafeLoader that refuses keys written twice, bombs made of aliases, and values it cannot build."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self.num_aliases = 0
        self.num_values = 0  # with each alias written out
        self.num_aliased = 0
        self.num_values_of: dict[yaml.Node, int] = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            return self._compose_alias(parent, index)
        before = self.num_values
        self.num_values += 1
        node = super().compose_node(parent, index)
        assert node is not None, "compose_node is called only where there is a node"
        self.num_values_of[node] = self.num_values - before
        return node

    def _compose_alias(self, parent: Any, index: Any) -> Any:
        line = self.current_event.start_mark.line + 1
        node = super().compose_node(parent, index)
        if node not in self.num_values_of:
            raise JobFileError(f"line {line}: the YAML alias stands for a value that holds it")
        self.num_aliases += 1
        self.num_values += self.num_values_of[node]
        self.num_aliased += self.num_values_of[node]
        if self.num_aliases > MAX_ALIASES:
            raise JobFileError(f"more than {MAX_ALIASES} YAML aliases; write the values out")
        if self.num_aliased > MAX_ALIASED_VALUES:
            raise JobFileError(f"line {line}: the YAML aliases stand for over {MAX_ALIASED_VALUES:,} values")
        return node

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except _VALUE_ERRORS as error:
            line = node.start_mark.line + 1
            raise JobFileError(
                f"line {line}: not valid YAML: {node.value!r:.80} is no value; put it in quotes"
            ) from error

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[tuple[str, str]] = set()
        for key_node, _ in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise JobFileError(f"line {line}: not valid YAML: a key is no text; put text with {{ or [ in quotes")
            key = (key_node.tag, key_node.value)
            if key in seen and key_node.value != "<<":
                raise JobFileError(f"line {line}: the key {key_node.value!r} is there twice")
            seen.add(key)
        return super().construct_mapping(node, deep)
