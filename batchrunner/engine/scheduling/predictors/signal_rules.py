"""What English prompts say about the length of their answer, and how many tokens that is.

The tokens are rules of thumb (a word is 4/3 tokens, a sentence 25): predictions are for putting requests in order.

Which of several signals counts is decided by their strength, not by their place. An instruction may stand before or
after the text it is about, and that text has words of its own; so the last match may well be the text's, while a form
that is spelled out ("in 3 sentences") binds the answer wherever it stands. The table goes from the most binding to
the least, and its first rule that matches decides. Of several matches of that one rule the last counts, since the
instruction more often follows the text, and examples come before the question.
"""

import re
from dataclasses import dataclass

NUMBERS = (
    *("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
)
NUMBER_OF = {word: number for number, word in enumerate(NUMBERS, start=1)} | {"single": 1}
_NUMBER = rf"\d[\d,]{{0,6}}|single|{'|'.join(NUMBERS)}"
N = rf"(?P<n>{_NUMBER})"
N_OR_A = rf"(?:{N}|(?:in|as|with|write|give) an?(?! (?:{_NUMBER}) ))"
WORD = re.compile(r"\d+(?:,\d{3})*|[^\W\d_]+|[.!?:;]")  # a stop is a word, so that no match crosses sentences

DEFAULT_TOKENS = 120.0


class PromptWords:
    """A text's words in lower case: all of them with single spaces around, and which there are."""

    def __init__(self, text: str) -> None:
        words = WORD.findall(text.lower())
        self.spaced = f" {' '.join(words)} "
        self.distinct = frozenset(words)


@dataclass(frozen=True, slots=True)
class Rule:
    """Matches where the pattern does and one of its words is there; without a pattern, the word is enough.

    To look up words costs next to nothing, so the patterns are tried on few prompts. each: tokens for each of the
    number in the pattern, if it has one.
    """

    words: frozenset[str]
    each: float
    pattern: re.Pattern[str] | None
    per_prompt_token: float

    def tokens(self, prompt: PromptWords, num_prompt_tokens: int) -> float | None:
        """None where it does not match."""
        if self.words.isdisjoint(prompt.distinct):
            return None
        number = 1
        if self.pattern is not None:
            matches = list(self.pattern.finditer(prompt.spaced))
            if not matches:
                return None
            number = _number(matches[-1].groupdict().get("n"))
        return self.each * number + self.per_prompt_token * num_prompt_tokens


def _number(written: str | None) -> int:
    if written is None:
        return 1
    return NUMBER_OF.get(written) or int(written.replace(",", ""))


def _rule(words: str, each: float, pattern: str | None = None, per_prompt_token: float = 0.0) -> Rule:
    compiled = None if pattern is None else re.compile(rf" (?:{pattern})(?= )")
    return Rule(frozenset(words.split()), each, compiled, per_prompt_token)


_NOT_UNIT = r"(?! (?:\w+ )?(?:words?|sentences?|paragraphs?|lines?|bullets?) )"  # two sentences are no two items
_LIST = "list give suggest provide write generate identify find"
_TEXT = "essay article story post report speech"
_CODE = "code function program script class query"
_LABEL = "label letter name number category score rating integer"


def _any(words: str) -> str:
    return f"(?:{'|'.join(words.split())})"


RULES = (
    # Reasoning comes before the answer, whatever form the answer has.
    _rule("step thought", 250, r"step by step|chain of thought"),
    _rule("reasoning work thinking", 250, r"(?:show|explain) your (?:reasoning|work|thinking)"),
    # A form, spelled out. Items come first: "list 5 reasons, in one sentence each".
    _rule("name mention", 8, rf"(?:name|mention) (?:\w+ ){{0,3}}?{N}{_NOT_UNIT}"),
    _rule(_LIST, 20, rf"{_any(_LIST)} (?:\w+ ){{0,3}}?{N}{_NOT_UNIT}"),
    _rule("word words", 4 / 3, rf"{N_OR_A} (?:\w+ )?words?"),
    _rule("sentence sentences", 25, rf"{N_OR_A} (?:\w+ )?sentences?"),
    _rule("bullet bullets", 20, rf"{N} (?:\w+ )?bullets?"),
    _rule("bullet bullets bulleted", 100),
    _rule("line lines", 12, rf"{N} (?:\w+ )?lines?"),
    _rule("paragraph paragraphs", 100, rf"{N_OR_A} (?:\w+ )?paragraphs?"),
    _rule("json", 80, r"(?:in|as|with|only|return|output|produce) (?:an? )?(?:valid )?json|json (?:object|format)"),
    _rule("yes true", 3, r"yes (?:or )?no|true (?:or )?false"),
    _rule(
        f"{_LABEL} answer", 4, rf"(?:only|just) (?:with )?(?:an?|the|one) (?:\w+ ){{0,2}}?{_any(f'{_LABEL} answer')}"
    ),
    _rule(_LABEL, 4, rf"(?:with|as|return|output|give) an? (?:\w+ )?{_any(_LABEL)}"),
    _rule("classify sentiment", 5),
    # A manner: "summarize briefly", "write a detailed report".
    _rule("briefly concise concisely tldr", 40),
    _rule(_TEXT, 600, rf"(?:write|compose|draft) (?:\w+ ){{0,5}}?{_any(_TEXT)}"),
    _rule("detail", 400, r"in (?:\w+ )?detail"),
    _rule("detailed thorough comprehensive", 400, r"(?:an?|be) (?:\w+ )?(?:detailed|thorough|comprehensive)"),
    # A task.
    _rule("translate paraphrase rewrite proofread", 5, per_prompt_token=1.0),
    _rule("summarize summarise summary summaries", 80),
    _rule(_CODE, 250, rf"(?:write|implement|generate) (?:\w+ ){{0,4}}?{_any(_CODE)}"),
    _rule("explain describe discuss compare", 200),
    _rule("how", 20, r"how (?:many|much|old|long)"),
    _rule("who when where", 20, r"(?:who|when|where) (?:is|was|are|were|did)"),
    _rule("extract", 20),
)
