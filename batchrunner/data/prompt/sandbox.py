"""The sandbox that templates run in: no way out of it, and a bound on time and memory.

On top of Jinja's immutable sandbox (no private attributes, no change of a row, ranges of at most 100,000 numbers):

* Time: every turn of a loop, every call and every filter looks at the clock.
* Text: + * % ~, format, join, replace, center, ljust, rjust, zfill, indent, what a macro or a `set` block gathers, and
  every value turned into text are measured before they are made and refused if longer than the longest prompt.
* All texts and lists made for one row, also those thrown away: 64 times the longest prompt.
* Numbers: integers of at most 100,000 bits; lists of at most as many items as a prompt has characters.
* What cannot be measured is not there: the filters pprint, urlize, wordwrap and xmlattr, the function lipsum, and the
  methods expandtabs, translate and to_bytes.
* Printed are text, numbers, booleans, dates, times and UUIDs, and nothing else.

Not bounded: comparing two different lists that each hold themselves many times over.
"""

import functools
import time
from collections.abc import Callable, Iterable
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from batchrunner.data.prompt.value_sizes import FILTER_SIZES, METHOD_SIZES, binary_size, format_size, text_size
from batchrunner.errors import RowError

MAX_PROMPT_CHARS = 16_000_000
MAX_RENDER_SECONDS = 10.0
MAX_PROMPTS_MADE = 64
_CHARS_PER_ITEM = 8  # an item of a list is a pointer
_NO_FILTERS = ("pprint", "urlize", "wordwrap", "xmlattr")
_NO_METHODS = ("expandtabs", "translate", "to_bytes")
# These take a list or any value and make no text of it.
_NOT_TEXT_FILTERS = frozenset(
    {"abs", "attr", "batch", "count", "d", "default", "dictsort", "first", "float", "groupby", "int", "items", "last"}
    | {"length", "list", "map", "max", "min", "random", "reject", "rejectattr", "reverse", "round", "select"}
    | {"selectattr", "slice", "sort", "sum", "unique"}
)


class Sandbox(ImmutableSandboxedEnvironment):
    """One environment for each template, since it knows when the rendering must end."""

    intercepted_binops = frozenset(["*", "**", "+", "%"])

    def __init__(self, finalize: Callable[[Any], Any]) -> None:
        super().__init__(undefined=jinja2.StrictUndefined, finalize=finalize, keep_trailing_newline=True)
        # A column may be named like one of Jinja's functions: as globals of the environment they would hide it.
        self.functions = {name: value for name, value in self.globals.items() if name != "lipsum"}
        self.globals.clear()
        self._deadline = float("inf")
        self._num_made = 0
        for name, function in list(self.filters.items()):
            if name in _NO_FILTERS:
                del self.filters[name]
            else:
                self.filters[name] = self._guarded(name, function)

    def compile_watched(self, tree: nodes.Template) -> jinja2.Template:
        """Compile the tree, with a look at the clock in every loop and a measure at every ~."""
        return self.from_string(_Watch(self).visit(tree), globals=self.functions)

    def start(self) -> None:
        """A rendering begins."""
        self._deadline = time.monotonic() + MAX_RENDER_SECONDS
        self._num_made = 0

    def tick(self) -> None:
        if time.monotonic() > self._deadline:
            raise self.too_large()

    @staticmethod
    def too_large() -> RowError:
        limits = f"{MAX_PROMPT_CHARS:,} characters or took over {MAX_RENDER_SECONDS:g} s"
        return RowError("prompt_too_large", f"the template made over {limits}")

    def concat(self, pieces: Iterable[str]) -> str:  # Jinja has "".join here
        pieces = list(pieces)
        self._check("gathered text", sum(map(len, pieces)))
        text = "".join(pieces)
        self._count(text)
        return text

    def tilde(self, *values: Any) -> str:
        self._check("~", sum(text_size(value, MAX_PROMPT_CHARS) for value in values))
        text = "".join(map(str, values))
        self._count(text)
        return text

    def cut(self, value: Any, *bounds: Any) -> Any:
        """value[begin:end:step]"""
        return self._count(value[slice(*bounds)])

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return attr not in _NO_METHODS and super().is_safe_attribute(obj, attr, value)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        self._check(operator, binary_size(operator, left, right, MAX_PROMPT_CHARS))
        return self._count(super().call_binop(context, operator, left, right))

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805  as Jinja names them
        __self.tick()
        if getattr(__obj, "__func__", None) is Sandbox.tick:
            return ""
        method = getattr(__obj, "__wrapped__", __obj)  # Jinja wraps str.format
        owner, name = getattr(method, "__self__", None), getattr(method, "__name__", "")
        if isinstance(owner, str | bytes):
            if name == "join":
                args = tuple(list(items) for items in args)
            if name in METHOD_SIZES:
                __self._check(name, METHOD_SIZES[name](owner, *args))
            elif name in ("format", "format_map"):
                __self._check(name, format_size(owner, (*args, *kwargs.values()), MAX_PROMPT_CHARS))
        return __self._count(super().call(__context, __obj, *args, **kwargs))

    def _guarded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The filter, with a look at the clock and at the sizes of what goes in and comes out."""
        num_hidden = 1 if getattr(function, "jinja_pass_arg", None) is not None else 0  # context or environment
        measure = FILTER_SIZES.get(name)

        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            self.tick()
            hidden, value, rest = args[:num_hidden], args[num_hidden], args[num_hidden + 1 :]
            if name == "join":
                value = list(value)
            if name not in _NOT_TEXT_FILTERS:
                self._check(name, _filter_size(name, value, rest, kwargs))
            if measure is not None:
                text = str(value) if name in ("replace", "indent") else value
                self._check(name, measure(text, *rest, **kwargs))
            if name == "sum" and any(isinstance(start, list | tuple) for start in (*rest, *kwargs.values())):
                raise SecurityError("sum adds numbers only")
            result = function(*hidden, value, *rest, **kwargs)
            self._check(name, len(result) if isinstance(result, str) else 0)
            return self._count(result)

        return guarded

    def _count(self, made: Any) -> Any:
        """made, whose size is added to what was made for this row."""
        if isinstance(made, str | bytes):
            self._num_made += len(made)
        elif isinstance(made, list | tuple):
            self._num_made += _CHARS_PER_ITEM * len(made)
        if self._num_made > MAX_PROMPTS_MADE * MAX_PROMPT_CHARS:
            raise self.too_large()
        return made

    def _check(self, what: str, size: int) -> None:
        if size > MAX_PROMPT_CHARS:
            raise SecurityError(f"{what!r} would make a value too large for a prompt")


def _filter_size(name: str, value: Any, rest: tuple[Any, ...], named: dict[str, Any]) -> int:
    arguments = (*rest, *named.values())
    if name == "format" and isinstance(value, str):
        return format_size(value, arguments, MAX_PROMPT_CHARS)
    size = text_size(value, MAX_PROMPT_CHARS)
    if name == "join":
        size += len(value) * max((text_size(argument, MAX_PROMPT_CHARS) for argument in arguments), default=0)
    return size


class _Watch(NodeTransformer):
    """Puts a look at the clock into every loop, and calls of Sandbox's methods in the place of ~ and [:]."""

    def __init__(self, environment: Sandbox) -> None:
        self._environment = environment

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802  Jinja's name
        self.generic_visit(node)
        node.body.insert(0, self._made(nodes.ExprStmt(self._call("tick", [])), node))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Call:  # noqa: N802
        self.generic_visit(node)
        call: nodes.Call = self._made(self._call("tilde", node.nodes), node)
        return call

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            return node
        bounds = [bound or nodes.Const(None) for bound in (node.arg.start, node.arg.stop, node.arg.step)]
        call: nodes.Call = self._made(self._call("cut", [node.node, *bounds]), node)
        return call

    def _call(self, method: str, values: list[nodes.Expr]) -> nodes.Call:
        return nodes.Call(nodes.EnvironmentAttribute(method), values, [], None, None)

    def _made(self, node: Any, at: nodes.Node) -> Any:
        node.set_lineno(at.lineno)
        node.set_environment(self._environment)
        return node
