"""Everything that touches the device: the model, the KV cache, one forward pass a step."""

import time
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from batchrunner.engine.kv.kv_store import KVStore
from batchrunner.engine.kv.memory import activation_bytes, free_host_bytes
from batchrunner.engine.kv.paged_kv import LayerShape
from batchrunner.engine.kv.places import Move
from batchrunner.engine.kv.swap_choice import MeasuredCosts
from batchrunner.engine.kv.tiers.disk_file import DiskFile
from batchrunner.engine.model.forward_input import ForwardInput
from batchrunner.engine.model.layers import attention
from batchrunner.engine.model.layers.attention import PagedAttention, ShapeProbe, attention_by
from batchrunner.engine.model.layers.linear import PackedLinear, PlainLinear, can_pack
from batchrunner.engine.model.layers.output_head import LogitsHead, OutputHead, take_head
from batchrunner.engine.model.layers.quantize import quantize
from batchrunner.engine.model.layers.substitute import Substitution
from batchrunner.engine.model.model_files import ModelFiles
from batchrunner.engine.model.prefix_groups import NO_GROUPS, GroupRule
from batchrunner.engine.model.step_times import StepTimes
from batchrunner.engine.scheduling.limits import Limits
from batchrunner.engine.scheduling.schedule import Schedule
from batchrunner.errors import ModelError
from batchrunner.kernels.cpu.build import BuildError
from batchrunner.kernels.cpu.cpu_kernels import CpuKernels
from batchrunner.kernels.interface import Kernels
from batchrunner.kernels.torch_kernels import TorchKernels

# From how many requests and shared tokens on one pass over the prefix beats one a request. The CPU's is measured (see
# docs/architecture.md), that of a GPU is not.
GROUP_RULES = {"cpu": GroupRule(min_members=4, min_tokens=64), "cuda": GroupRule(min_members=4, min_tokens=256)}


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
        self.weight_bytes = sum(parameter.nbytes for parameter in self.model.parameters())
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
            self.substitutions.quantized = quantize(
                self.model, files.tokenizer, self.context_len, self.layers, self.kernels
            )
        self.group_rule = NO_GROUPS if isinstance(self.kernels, TorchKernels) else GROUP_RULES[device.type]
        self.step_times = StepTimes()

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

    @property
    def free_bytes(self) -> int:
        """Of the device's memory, now."""
        return free_host_bytes() if self.device.type == "cpu" else int(torch.cuda.mem_get_info(self.device)[0])

    def activation_bytes(self, limits: Limits) -> int:
        """An estimate for the fullest step."""
        hidden = self.config.hidden_size
        widest = getattr(self.config, "intermediate_size", None) or 4 * hidden
        num_logits = min(limits.max_running, limits.max_batch_tokens)
        return activation_bytes(
            limits.max_batch_tokens, hidden, widest, num_logits, self.vocabulary_size, self.dtype.itemsize
        )

    def allocate(
        self,
        num_blocks: int,
        block_size: int,
        costs: MeasuredCosts | None = None,
        num_host_blocks: int = 0,
        disk: DiskFile | None = None,
    ) -> None:
        """Make the KV cache and the tiers below it. costs takes in what moves and steps take."""
        self.costs = costs or MeasuredCosts(block_size)
        self.store = KVStore(
            self.layers,
            num_blocks,
            block_size,
            self.dtype,
            self.device,
            self.kernels,
            self.costs,
            num_host_blocks,
            disk,
        )

    @torch.inference_mode()
    def run(self, schedule: Schedule) -> list[int]:
        """Make the moves of a step and compute it; returns the next token of each of schedule.sampling_requests."""
        self.store.move(schedule.moves)
        if not schedule.scheduled:
            return []
        started = time.perf_counter()
        kernels, kv = self.kernels, self.store.kv
        inputs = ForwardInput.build(schedule, kv.block_size, self.group_rule, self.device)
        plan = kernels.plan(inputs.work, kv.block_size)
        with attention_by(PagedAttention(kernels, kv, plan, inputs.slots, inputs.logit_rows, inputs.copies)):
            output = self.model(
                input_ids=inputs.input_ids[None],
                position_ids=inputs.positions[None],
                use_cache=False,
                logits_to_keep=inputs.logit_rows,
            )
        token_ids = self.head.sample(output.logits[0], schedule.sampling_requests)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # a step that samples nothing has only been launched
        seconds = time.perf_counter() - started
        self.costs.observe_step(schedule.num_tokens, len(schedule.sampling_requests), seconds)
        self.step_times.observe(schedule, inputs.work.num_read, seconds)
        return token_ids

    def move(self, moves: Sequence[Move]) -> None:
        """Move blocks of KV outside of a step."""
        self.store.move(moves)

    def close(self) -> None:
        self.store.close()
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
