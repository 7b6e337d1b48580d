"""One template of a job: which columns it needs, and the text it makes of a row."""

import datetime
import numbers
import reprlib
import uuid
from typing import Any

import jinja2
from jinja2 import meta, nodes

from batchrunner.data.prompt import sandbox
from batchrunner.errors import JobFileError, RowError

_PRINTABLE = (
    str,
    numbers.Number,  # with bool and Decimal
    datetime.date,
    datetime.time,
    datetime.timedelta,
    uuid.UUID,
    jinja2.Undefined,
)
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 100


class Template:
    """One compiled template. Raises JobFileError if it does not compile."""

    def __init__(self, source: str, where: str) -> None:
        self._sandbox = sandbox.Sandbox(finalize=_printable)
        try:
            tree = self._sandbox.parse(source)
            names = meta.find_undeclared_variables(tree)
            self._only_column = _only_column(tree)
            self._template = self._sandbox.compile_watched(tree)
        except jinja2.TemplateError as error:
            line = f" (line {error.lineno})" if isinstance(error, jinja2.TemplateSyntaxError) else ""
            raise JobFileError(f"{where}: the template does not compile: {error.message}{line}") from error
        except (RecursionError, MemoryError, SyntaxError, ValueError) as error:
            # Python, which the template is compiled to, has limits of its own; 20 loops in each other, for example.
            raise JobFileError(f"{where}: the template does not compile: beyond a limit of Python: {error}") from error
        self.columns = frozenset(names) - {"row"}
        self.uses_row = "row" in names

    def render(self, values: dict[str, Any]) -> str:
        """Raises RowError: missing column, null, a value that is no text."""
        self._check_only_column(values)
        try:
            return self._generate(values)
        except jinja2.UndefinedError as error:
            raise RowError("missing_column", f"{error.message}; the row has: {', '.join(values)}") from error
        except _NullError as error:
            nulls = [name for name in values if values[name] is None and (self.uses_row or name in self.columns)]
            where = ", ".join(nulls) or "a value"
            raise RowError("null_value", f"null in {where}, which the template prints") from error
        except (jinja2.TemplateError, ArithmeticError, TypeError, ValueError, LookupError, AttributeError) as error:
            raise RowError("template_error", f"the template fails on this row: {error}") from error
        except (RecursionError, MemoryError) as error:
            kind = type(error).__name__
            raise RowError("template_error", f"the template fails on this row: {kind}: {error}") from error

    def _check_only_column(self, values: dict[str, Any]) -> None:
        value = values.get(self._only_column) if self._only_column is not None else None
        if value is not None and not isinstance(value, str):
            raise RowError(
                "not_text",
                f"column {self._only_column!r} holds a {type(value).__name__}, not text: {shortened(value)} "
                f"(put it into a sentence, or name a text column)",
            )

    def _generate(self, values: dict[str, Any]) -> str:
        self._sandbox.start()
        pieces: list[str] = []
        num_chars = 0
        for piece in self._template.generate({"row": values, **values}):
            pieces.append(piece)
            num_chars += len(piece)
            if num_chars > sandbox.MAX_PROMPT_CHARS:
                raise self._sandbox.too_large()
            self._sandbox.tick()
        return "".join(pieces)


def shortened(value: Any) -> str:
    """A value as messages show it, in at most 80 characters."""
    text = _SHORT.repr(value)
    return text if len(text) <= 80 else text[:77] + "…"


class _NullError(Exception):
    pass


def _printable(value: Any) -> Any:
    """What a template prints: text, numbers, booleans, dates. Null or a whole structure is a mistake in the row."""
    if isinstance(value, _PRINTABLE):
        return value
    if value is None:
        raise _NullError
    kind = type(value).__name__
    if isinstance(value, dict | list | tuple | bytes):
        raise RowError("not_text", f"the template prints a {kind}: {shortened(value)} (use | tojson, or a part of it)")
    raise RowError(
        "not_text",
        f"the template prints a {kind}, no value (write () after a method, | join after map, row['name'] for a column)",
    )


def _only_column(tree: nodes.Template) -> str | None:
    """The column's name if the whole template is `{{ column }}`."""
    if len(tree.body) == 1 and isinstance(tree.body[0], nodes.Output):
        parts = tree.body[0].nodes
        if len(parts) == 1 and isinstance(parts[0], nodes.Name):
            return parts[0].name
    return None
