"""Everything that touches the device: the model, the KV cache, one forward pass a step."""

import math
import mmap
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from batchrunner.engine import attention
from batchrunner.engine.attention import LayerShape, PagedAttention, PagedKV, ShapeProbe, attention_by
from batchrunner.engine.forward_input import ForwardInput
from batchrunner.engine.linear import PackedLinear, PlainLinear, can_pack
from batchrunner.engine.models import ModelFiles
from batchrunner.engine.output_head import LogitsHead, OutputHead, take_head
from batchrunner.engine.prefix_groups import GroupRule
from batchrunner.engine.quantize import quantize
from batchrunner.engine.schedule import Schedule
from batchrunner.engine.substitute import Substitution
from batchrunner.errors import DeviceError, ModelError
from batchrunner.kernels.cpu.build import BuildError
from batchrunner.kernels.cpu.cpu_kernels import CpuKernels
from batchrunner.kernels.interface import Kernels
from batchrunner.kernels.torch_kernels import TorchKernels
from batchrunner.spec import EngineConfig

# From how many requests and shared tokens on one pass over the prefix beats one a request. The CPU's is measured (see
# docs/architecture.md), that of a GPU is not.
GROUP_RULES = {"cpu": GroupRule(min_members=4, min_tokens=64), "cuda": GroupRule(min_members=4, min_tokens=256)}


def choose_device(name: str) -> torch.device:
    """Raises DeviceError if the device asked for is not there."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise DeviceError("engine.device: cuda: no CUDA device is available; use device: cpu or auto")
    return torch.device(name)


def device_for(config: EngineConfig) -> torch.device:
    """auto means the CPU where the linear layers are to be in int8. Raises DeviceError."""
    return choose_device("cpu" if config.quantization and config.device == "auto" else config.device)


def choose_kernels(device: torch.device, dtype: torch.dtype, layers: Sequence[LayerShape]) -> Kernels:
    """The fastest that there are for the device; plain torch where nothing faster can be had."""
    if device.type == "cuda":
        from batchrunner.kernels.gpu.gpu_kernels import TritonKernels  # imports triton, which the CPU does not need

        return TritonKernels(device)
    if device.type == "cpu" and dtype == torch.float32:
        try:
            return CpuKernels((layer.key_dim, layer.value_dim) for layer in layers)
        except BuildError as error:
            warnings.warn(f"slow attention in plain torch: {error}", stacklevel=2)
    return TorchKernels(device)


class ModelRunner:
    """One loaded model and its paged KV cache. The cache is made by allocate(), once its size is known.

    quantization: "int8", on the CPU in float32. kernels: None means the fastest there are for the device.
    """

    def __init__(
        self,
        files: ModelFiles,
        device: torch.device,
        dtype: str,
        quantization: str | None = None,
        kernels: Kernels | None = None,
    ) -> None:
        attention.register()
        self.device = device
        if dtype == "auto":
            dtype = "float32" if device.type == "cpu" else "auto"
        try:
            model: Any = AutoModelForCausalLM.from_pretrained(
                str(files.folder),
                dtype=dtype if dtype == "auto" else getattr(torch, dtype),
                attn_implementation=attention.NAME,
                use_safetensors=True,
                trust_remote_code=False,
            )
        except (OSError, ValueError, KeyError, ImportError) as error:
            raise ModelError(f"model {files.folder}: transformers cannot load it: {error}") from error
        self.model = model.to(device).eval()
        self.config = self.model.config.get_text_config()
        self.layers = self._probe()
        self.kernels = kernels or choose_kernels(device, self.dtype, self.layers)
        pack = quantization is None and can_pack(device, self.dtype)
        make_linear = PackedLinear if pack else PlainLinear
        has_c_kernels = isinstance(self.kernels, CpuKernels)
        head = take_head(self.model, self.layers, self.kernels) if pack and has_c_kernels else None
        self.head: OutputHead = head or LogitsHead(self.kernels)
        self.substitutions = Substitution(self.model, self.layers, self.kernels, make_linear).run()
        self.substitutions.num_other_modules += head is not None
        if quantization == "int8":
            self.substitutions.quantized = quantize(self.model, files, self.context_len, self.layers, self.kernels)
        self.group_rule = GROUP_RULES[device.type]
        self._kv: PagedKV | None = None

    @property
    def dtype(self) -> torch.dtype:
        dtype: torch.dtype = self.model.dtype
        return dtype

    @property
    def context_len(self) -> int:
        """Most tokens (prompt and answer together) the model can take."""
        for name in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"):
            if getattr(self.config, name, None):
                return int(getattr(self.config, name))
        raise ModelError("the model's config does not say how long its context is (max_position_embeddings)")

    @property
    def vocabulary_size(self) -> int:
        return int(self.model.get_input_embeddings().num_embeddings)

    @property
    def eos_token_ids(self) -> frozenset[int]:
        generation = self.model.generation_config
        eos = generation.eos_token_id if generation is not None else None
        eos = self.config.eos_token_id if eos is None else eos
        return frozenset(() if eos is None else [eos] if isinstance(eos, int) else eos)

    @property
    def kv_bytes_per_token(self) -> int:
        """The KV formula for one token: the sum over layers of n_kv_head · (d_key + d_value) · sizeof(dtype)."""
        num_values = sum(layer.num_kv_heads * (layer.key_dim + layer.value_dim) for layer in self.layers)
        return num_values * self.dtype.itemsize

    def allocate(self, num_blocks: int, block_size: int) -> None:
        """Make the KV cache. Zeros: what padding reads is masked, but 0 · NaN would not be."""

        def cache(num_heads: int, dim: int) -> torch.Tensor:
            shape = (num_blocks, num_heads, block_size, dim)
            if self.device.type == "cpu":
                # Given by the system as it is used (torch's zeros are written at once), in large pages where it can:
                # a cache is read all over, and every small page costs a walk through the page table.
                # Private: shared memory has large pages only where the system is set up so.
                flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
                memory = mmap.mmap(-1, math.prod(shape) * self.dtype.itemsize, flags=flags)
                if hasattr(mmap, "MADV_HUGEPAGE"):
                    memory.madvise(mmap.MADV_HUGEPAGE)
                return torch.frombuffer(memory, dtype=self.dtype).view(shape)
            return torch.zeros(shape, dtype=self.dtype, device=self.device)

        self._kv = PagedKV.build(self.layers, cache)

    def reserve(self) -> None:
        """Take the cache's memory from the system now, not as blocks are first used: too little shows at the start."""
        assert self._kv is not None, "allocate() comes first"
        for cache in (*self._kv.keys, *self._kv.values):
            cache.zero_()

    @torch.inference_mode()
    def run(self, schedule: Schedule) -> list[int]:
        """Compute one step; returns the next token of each of schedule.sampling_requests."""
        assert self._kv is not None, "allocate() comes first"
        kernels, kv = self.kernels, self._kv
        inputs = ForwardInput.build(schedule, kv.block_size, self.group_rule, self.device)
        if schedule.copies:
            for cache in (*kv.keys, *kv.values):
                kernels.copy_blocks(cache, inputs.copy_sources, inputs.copy_targets)
        plan = kernels.plan(inputs.work, kv.block_size)
        with attention_by(PagedAttention(kernels, kv, plan, inputs.slots, inputs.logit_rows)):
            output = self.model(
                input_ids=inputs.input_ids[None],
                position_ids=inputs.positions[None],
                use_cache=False,
                logits_to_keep=inputs.logit_rows,
            )
        return self.head.sample(output.logits[0], schedule.sampling_requests)

    def close(self) -> None:
        self._kv = None
        self.model = None
        del self.head

    @torch.inference_mode()
    def _probe(self) -> list[LayerShape]:
        """Run one token through the model and see that each layer's attention comes to us, and how."""
        probe = ShapeProbe()
        token = torch.zeros(1, 1, dtype=torch.int64, device=self.device)
        with attention_by(probe):
            self.model(input_ids=token, position_ids=token, use_cache=False)
        if sorted(probe.shapes) != list(range(self.config.num_hidden_layers)):
            raise ModelError(
                f"{type(self.model).__name__}: {len(probe.shapes)} of {self.config.num_hidden_layers} layers use "
                "standard attention; other kinds of layers are not supported"
            )
        layer_types = getattr(self.config, "layer_types", None) or []
        for layer, kind in enumerate(layer_types):
            expected = {"full_attention": 0, "sliding_attention": getattr(self.config, "sliding_window", 0)}.get(kind)
            if expected != probe.shapes[layer].options.window:
                raise ModelError(f"{type(self.model).__name__}: layer {layer} is {kind!r}, which is not supported")
        return [probe.shapes[layer] for layer in sorted(probe.shapes)]
