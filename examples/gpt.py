"""A small GPT in plain torch: nothing in this file knows that offloading exists.

Shapes are written with B = batch, T = tokens, W = width, H = heads, V = vocab.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True)
class GPTConfig:
    """The model's shape. `compute_fp32` is for CPUs whose bf16 products are slow; see Linear."""

    vocab: int = 256
    context: int = 128
    layers: int = 6
    heads: int = 6
    width: int = 384
    dtype: torch.dtype = torch.bfloat16
    compute_fp32: bool = False
    checkpoint_blocks: bool = False


def cpu_has_native_bf16(cpuinfo: str = "/proc/cpuinfo") -> bool:
    """Whether this CPU multiplies bf16 matrices itself (AVX512-BF16 or AMX)."""
    try:
        with open(cpuinfo) as lines:
            flags = next((line for line in lines if line.startswith("flags")), "")
    except OSError:
        return False
    return not {"avx512_bf16", "amx_bf16"}.isdisjoint(flags.split())


class Fp32ComputeLinear(torch.autograd.Function):
    """y = x @ weight.T, stored in 16 bits, multiplied in fp32.

    Plain autograd over `weight.float()` would keep every layer's fp32 copy alive until backward,
    twice the size of the model. This saves the 16-bit weight itself and casts it again.
    """

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor) -> Tensor:
        """x [..., in], weight [out, in] -> [..., out], all of one dtype."""
        ctx.save_for_backward(x, weight)
        return F.linear(x.float(), weight.float()).to(x.dtype)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """grad [..., out] -> gradients of x [..., in] and of weight [out, in]."""
        x, weight = ctx.saved_tensors
        grad = grad.float()
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            grad_x = (grad @ weight.float()).to(x.dtype)
        if ctx.needs_input_grad[1]:
            grad_weight = (grad.flatten(0, -2).t() @ x.float().flatten(0, -2)).to(weight.dtype)
        return grad_x, grad_weight


class Linear(nn.Module):
    """A linear layer without bias that computes in its own dtype or, if asked to, in fp32."""

    def __init__(self, inputs: int, outputs: int, config: GPTConfig):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs, dtype=config.dtype))
        self.compute_fp32 = config.compute_fp32

    def forward(self, x: Tensor) -> Tensor:
        """x [..., inputs] -> [..., outputs]"""
        if self.compute_fp32:
            return Fp32ComputeLinear.apply(x, self.weight)
        return F.linear(x, self.weight)


class Attention(nn.Module):
    """Causal self-attention over H heads of W / H channels."""

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.heads = config.heads
        self.compute_fp32 = config.compute_fp32
        self.qkv = Linear(config.width, 3 * config.width, config)
        self.proj = Linear(config.width, config.width, config)

    def forward(self, x: Tensor) -> Tensor:
        """x [B, T, W] -> [B, T, W]"""
        qkv = self.qkv(x).unflatten(-1, (3, self.heads, -1))  # [B, T, 3, H, W / H]
        if self.compute_fp32:
            qkv = qkv.float()
        q, k, v = (part.transpose(1, 2) for part in qkv.unbind(2))  # each [B, H, T, W / H]
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(mixed.transpose(1, 2).flatten(2).to(x.dtype))


class MLP(nn.Module):
    """The feed-forward half of a block, four times as wide inside."""

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.up = Linear(config.width, 4 * config.width, config)
        self.down = Linear(4 * config.width, config.width, config)

    def forward(self, x: Tensor) -> Tensor:
        """x [B, T, W] -> [B, T, W]"""
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    """One transformer block, norms in front; the unit of offloading and of checkpointing."""

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width, dtype=config.dtype)
        self.attention = Attention(config)
        self.norm2 = nn.LayerNorm(config.width, dtype=config.dtype)
        self.mlp = MLP(config)

    def forward(self, x: Tensor) -> Tensor:
        """x [B, T, W] -> [B, T, W]"""
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """Embeddings, blocks, head. The head is not tied: at 256 tokens, tying would save nothing."""

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocab, config.width, dtype=config.dtype)
        self.positions = nn.Embedding(config.context, config.width, dtype=config.dtype)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width, dtype=config.dtype)
        self.head = Linear(config.width, config.vocab, config)

    def forward(self, tokens: Tensor, targets: Tensor | None = None) -> Tensor:
        """tokens [B, T] -> logits [B, V] of the next token; with targets [B, T], the loss []."""
        # Every parameter is read inside its own module's forward, where an engine can fetch it.
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            if self.config.checkpoint_blocks and torch.is_grad_enabled():
                # Nothing in a block is random, so there is no generator state to keep.
                x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)
            else:
                x = block(x)
        if targets is None:
            return self.head(self.norm(x[:, -1]))
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def initial_std(name: str, config: GPTConfig) -> float:
    """The spread of a weight matrix at the start.

    Tokens outweigh positions and the blocks' first outputs, so that the head can learn which byte
    follows which at once; the head's first guess is that all bytes are alike.
    """
    if name == "tokens.weight":
        return 1.0
    if name == "positions.weight":
        return 0.1
    if name == "head.weight":
        return 0.02
    std = 1 / math.sqrt(config.width)
    ends_a_residual = name.endswith(("proj.weight", "down.weight"))
    return std / math.sqrt(2 * config.layers) if ends_a_residual else std


def build_gpt(config: GPTConfig, seed: int) -> GPT:
    """A model whose weights depend on the seed and the shape only, and never exist in fp32 whole.

    The numbers are drawn in fp32, one tensor at a time, and then rounded, so that a bf16 model
    starts from the rounded weights of the fp32 model with the same seed.
    """
    with torch.device("meta"):
        model = GPT(config)
    model.to_empty(device="cpu")
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:  # a LayerNorm
                parameter.fill_(1.0 if name.endswith("weight") else 0.0)
            else:
                drawn = torch.randn(parameter.shape, generator=generator)
                parameter.copy_(drawn * initial_std(name, config))
    return model
