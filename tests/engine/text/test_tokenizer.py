"""Many texts at once become the tokens that transformers gives each of them."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from batchrunner.engine.model.model_files import find_model
from batchrunner.engine.text.tokenizer import Tokenizer
from batchrunner.errors import RowError
from tests.models import CHAT_TEMPLATE, SMOLLM2, build_tiny_tokenizer

TEXTS = [
    "",
    " ",
    "\n\n\t x  y \r\n",
    "The capital of France is",
    "Grüße, 你好 🙂👩‍👩‍👧‍👦 é e\u0301 \ufeff\u200b\x00\x1f",
    "<|im_start|>user\nhello<|im_end|>",
    "<s>hi</s><pad> <s>",
    "<|endoftext|>",
    "12345678901234567890 1.5e-7 ((({[<>]})))",
    "x" * 5000,
    "word " * 2000,
]
ROLES = ("user", "assistant", "user")


@pytest.fixture(params=["tiny", "smollm2"])
def folder(request: pytest.FixtureRequest, chat_model: Path) -> Path:
    return chat_model if request.param == "tiny" else find_model(SMOLLM2).folder


def test_prompts_are_tokenised_as_transformers_does(folder: Path) -> None:
    reference: Any = AutoTokenizer.from_pretrained(folder)
    expected = [reference(text)["input_ids"] for text in TEXTS]
    bos = reference.bos_token_id
    expected = [ids[1:] if ids[:2] == [bos, bos] else ids for ids in expected]
    tokenizer = Tokenizer(folder)
    assert tokenizer.encode_prompts(TEXTS) == expected
    assert [tokenizer.encode_prompt(text) for text in TEXTS] == expected


def test_messages_are_rendered_and_tokenised_as_transformers_does(folder: Path) -> None:
    reference: Any = AutoTokenizer.from_pretrained(folder)
    conversations = [[{"role": "user", "content": text}] for text in TEXTS]
    conversations.append([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}])
    conversations.append([{"role": role, "content": f"{role} says <s>"} for role in ROLES])
    expected = [
        reference.apply_chat_template(messages, tokenize=True, add_generation_prompt=True, return_dict=False)
        for messages in conversations
    ]
    tokenizer = Tokenizer(folder)
    assert tokenizer.encode_rendered([tokenizer.render_messages(messages) for messages in conversations]) == expected
    assert [tokenizer.encode_messages(messages) for messages in conversations] == expected


def test_no_texts_are_no_tokens(folder: Path) -> None:
    assert Tokenizer(folder).encode_prompts([]) == Tokenizer(folder).encode_rendered([]) == []


def test_padding_and_truncation_that_a_tokenizer_was_saved_with_are_off(chat_model: Path, tmp_path: Path) -> None:
    import tokenizers

    folder = shutil.copytree(chat_model, tmp_path / "m")
    saved = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    saved.enable_padding(length=50)
    saved.enable_truncation(4)
    saved.save(str(folder / "tokenizer.json"))
    texts = ["a", "a long text"]
    assert Tokenizer(folder).encode_prompts(texts) == Tokenizer(chat_model).encode_prompts(texts)


def test_a_tokenizer_that_encodes_in_its_own_way_is_asked_itself(
    chat_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = Tokenizer(chat_model)
    backend: Any = tokenizer._tokenizer

    class Own(type(backend)):  # type: ignore[misc]
        def _encode_plus(self, text: str, *args: Any, **kwargs: Any) -> Any:
            return {"input_ids": [len(text), int(kwargs["add_special_tokens"])]}

    monkeypatch.setattr(AutoTokenizer, "from_pretrained", lambda *args, **kwargs: Own.from_pretrained(chat_model))
    own = Tokenizer(chat_model)
    assert own.encode_prompts(["abc", ""]) == [[3, 1], [0, 1]]
    assert own.encode_rendered(["abc"]) == [[3, 0]]


def test_messages_that_the_template_refuses_are_an_error_of_the_row(chat_model: Path) -> None:
    with pytest.raises(RowError, match="unknown role critic") as caught:
        Tokenizer(chat_model).render_messages([{"role": "critic", "content": "x"}])
    assert caught.value.error_type == "bad_messages"


def change_template(folder: Path) -> None:
    build_tiny_tokenizer(folder, CHAT_TEMPLATE.replace("[assistant]", "[model]"))


def change_tokens(folder: Path) -> None:
    path = folder / "tokenizer.json"
    path.write_text(path.read_text().replace('"</s>"', '"</end>"'))


@pytest.mark.parametrize("change", [change_template, change_tokens])
def test_the_identity_follows_the_files_of_the_tokenizer(
    chat_model: Path, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    folder = shutil.copytree(chat_model, tmp_path / "m")
    before = Tokenizer(folder).identity
    assert before == Tokenizer(chat_model).identity
    change(folder)
    assert Tokenizer(folder).identity != before


@pytest.mark.parametrize("name", ["model.safetensors", "generation_config.json", "model.safetensors.index.json"])
def test_the_identity_does_not_follow_the_model(chat_model: Path, tmp_path: Path, name: str) -> None:
    folder = shutil.copytree(chat_model, tmp_path / "m")
    before = Tokenizer(folder).identity
    (folder / name).write_text('{"other": 1}')
    assert Tokenizer(folder).identity == before
