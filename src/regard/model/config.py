"""The description of a model."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field

from regard.configs import Config
from regard.errors import ConfigError, InputError
from regard.layers import head_width
from regard.layers.kinds.kind import Role
from regard.layers.residual import NormPlacement
from regard.model.head_config import HeadConfig
from regard.model.sharing import Sharing, SharingConfig
from regard.model.variations import (
    AttentionConfig,
    BlocksConfig,
    LinformerConfig,
    PositionsConfig,
    position_kind,
)
from regard.ops.feed_forward import Activation
from regard.ops.positions import SinusoidLayout

# A number is a number here: neither true nor "8" is taken for one.
Size = Annotated[int, Field(ge=1, lt=2**31, strict=True)]
Count = Annotated[int, Field(ge=0, lt=2**31, strict=True)]
Flag = Annotated[bool, Field(strict=True)]
Rate = Annotated[float, Field(ge=0.0, lt=1.0, strict=True)]
_WIDEST = 2**24
Width = Annotated[int, Field(ge=1, le=_WIDEST, strict=True)]
_Layers = Annotated[int, Field(ge=0, le=1000, strict=True)]

SharedEmbeddings = Literal["all", "source-target", "target-output", "none"]


class TransformerConfig(Config):
    """What a Transformer is made of. The defaults are the paper's base model.

    >>> from regard import TransformerConfig
    >>> TransformerConfig.preset("tiny", vocab_size=10_000).d_model
    128

    With `encoder_layers` = 0 the model is a decoder alone (a language model), with `decoder_layers` = 0 an encoder
    alone.
    """

    vocab_size: Width
    """W: size of the target vocabulary and of the output."""
    source_vocab_size: Width | None = None
    """How many tokens the source knows, where it has a vocabulary of its own."""
    pad_id: Count = 0
    """The token that fills up short sequences, on their right."""
    bos_id: Count | None = None
    """The token that starts a target; decoding needs it."""
    eos_id: Count | None = None
    """The token that a sequence ends with, for whoever decodes."""

    d_model: Annotated[int, Field(ge=1, le=2**16, strict=True)] = 512
    """D: the width of the model."""
    encoder_layers: _Layers = 6
    decoder_layers: _Layers = 6
    num_heads: Width = 8
    """H: how many heads attend in parallel."""
    num_kv_heads: Width | None = None
    """G: how many key and value heads there are (grouped-query attention); as many as heads unless given."""
    d_k: Width | None = None
    """K: the width of one head's queries and keys; d_model / num_heads unless given."""
    d_v: Width | None = None
    """V: the width of one head's values; d_model / num_heads unless given."""
    d_ff: Width | None = None
    """F: the width of the feed-forward's hidden layer; 4 · d_model unless given."""
    activation: Activation = "relu"
    """The feed-forward's activation; swiglu, geglu and geglu_tanh add a gate."""
    bias: Flag = True
    """Whether the projections of attention and feed-forward have a bias."""

    norm: Literal["layer", "rms"] = "layer"
    norm_placement: NormPlacement = "post"
    """Before each sublayer, or after the residual connection as in the paper."""
    norm_eps: Annotated[float, Field(ge=0.0, strict=True)] = 1e-5
    final_norm: Flag | None = None
    """Whether each stack ends on a norm; unless given, with pre-norm only."""
    embedding_norm: Flag = False
    """A norm after the embeddings."""

    shared_embeddings: SharedEmbeddings = "all"
    """Which of the source, target and output matrices are one and the same."""
    embedding_scale: Flag = True
    """Whether embeddings are multiplied by √d_model."""
    output_bias: Flag = False
    """Whether the logits have a bias."""
    copying: Flag = False
    """Whether the next token may be copied from the source (a pointer-generator, See et al. 2017)."""
    positions: PositionsConfig = "sinusoidal"
    """Added to the embeddings (sinusoidal, learned), part of attention, or none."""
    random_positions: Width | None = None
    """In training, the positions of each sequence are a random subset of so many, in order, from a span of random
    length (after Ruoss et al. 2023): for sinusoidal, learned and rotary positions."""
    max_positions: Width = 1024
    """The length of the learned table. Sinusoids have no end."""
    position_layout: SinusoidLayout = "interleaved"
    """Sines and cosines interleaved as in the paper, or in two halves."""
    position_offset: Annotated[int, Field(ge=0, le=1024, strict=True)] = 0
    """The row of the position table where a sequence starts."""

    dropout: Rate = 0.1
    """On the embeddings and on what each sublayer gives, as in the paper."""
    attention: AttentionConfig = AttentionConfig()
    """How attention differs from the paper's: a table of its own."""
    sharing: Sharing = SharingConfig()
    """Which parameters are used several times: a table of its own, or the kind of sharing between layers."""
    attention_dropout: Rate = 0.0
    """On the attention weights. Kinds of attention other than the softmax have none to drop."""
    activation_dropout: Rate = 0.0
    """On the hidden layer of the feed-forward."""
    head: HeadConfig | None = None
    """The head of an encoder alone, in place of logits over the vocabulary: a table whose kind is classification or
    span."""

    @classmethod
    def preset(cls, name: str, /, **changes: Any) -> Self:
        """Return one of the presets, tiny, small, base or big, with the changes asked for."""
        if not isinstance(name, str) or name not in _PRESETS:
            raise ConfigError(f"preset {name!r} is not known; it is one of {', '.join(_PRESETS)}")
        return cls(**{**_PRESETS[name], **changes})

    @property
    def kind(self) -> Literal["encoder-decoder", "encoder-only", "decoder-only"]:
        """Which stacks the model has."""
        if self.encoder_layers == 0:
            return "decoder-only"
        return "encoder-only" if self.decoder_layers == 0 else "encoder-decoder"

    @property
    def has_final_norm(self) -> bool:
        """Whether the stacks end on a norm."""
        return self.norm_placement == "pre" if self.final_norm is None else self.final_norm

    @property
    def source_size(self) -> int:
        """The size of the source's vocabulary."""
        return self.vocab_size if self.source_vocab_size is None else self.source_vocab_size

    @property
    def longest(self) -> int | None:
        """How many tokens a sequence may have; None where it may have any number."""
        return min(self.limits().values(), default=None)

    def limits(self) -> dict[str, int]:
        """Return how many tokens a sequence may have by the settings that limit it, such as a learned table's end."""
        found = {"model.max_positions": self.max_positions} if self.positions == "learned" else {}
        layers: dict[Role, int] = {"encoder": self.encoder_layers, "decoder": self.decoder_layers}
        for role in (role for role, count in layers.items() if count):
            parts = {"pattern": self.attention.pattern_of(role), "kind": self.attention.kind_of(role)}
            for name, part in parts.items():
                if isinstance(part, BlocksConfig | LinformerConfig):
                    is_own = getattr(getattr(self.attention, role), name) is not None
                    found[f"model.attention.{role}.{name}" if is_own else f"model.attention.{name}"] = part.longest
        return found

    def check(self) -> None:
        """Raise an `InputError` where fields do not fit together."""
        if self.encoder_layers + self.decoder_layers == 0:
            raise InputError("encoder_layers and decoder_layers are both 0; a model needs one of them")
        for name, given in (("d_k", self.d_k), ("d_v", self.d_v)):
            width = head_width(self.d_model, self.num_heads, name, given)
            if self.num_heads * width > _WIDEST:
                raise InputError(f"num_heads {self.num_heads} times {name} {width} is more than {_WIDEST:,}")
        if self.num_kv_heads is not None and self.num_heads % self.num_kv_heads:
            raise InputError(f"num_heads {self.num_heads} is not divisible by num_kv_heads {self.num_kv_heads}")
        if self.kind != "encoder-decoder" and self.source_size != self.vocab_size:
            raise InputError(
                f"a model of one stack has one vocabulary, "
                f"but source_vocab_size is {self.source_size} and vocab_size {self.vocab_size}"
            )
        self._check_positions()
        shares_source = self.shared_embeddings in ("all", "source-target")
        if shares_source and self.source_size != self.vocab_size:
            raise InputError(
                f"shared_embeddings is {self.shared_embeddings!r}, which needs one vocabulary, "
                f"but source_vocab_size is {self.source_size} and vocab_size {self.vocab_size}"
            )
        self._check_sharing()
        self._check_head()
        self._check_copying()
        for name, value, size in (
            ("pad_id", self.pad_id, min(self.vocab_size, self.source_size)),
            ("bos_id", self.bos_id, self.vocab_size),
            ("eos_id", self.eos_id, self.vocab_size),
        ):
            if value is not None and value >= size:
                raise InputError(f"{name} {value} is outside the vocabulary of {size}")

    def _check_sharing(self) -> None:
        sharing, stacks = self.sharing, (self.encoder_layers, self.decoder_layers)
        if sharing.layers is not None and sharing.layers > max(stacks):
            raise InputError(f"sharing.layers is {sharing.layers}, more than the {max(stacks)} layers of a stack")
        if sharing.encoder_decoder and stacks[0] != stacks[1]:
            raise InputError(
                "sharing.encoder_decoder needs as many layers in the encoder as in the decoder; "
                f"encoder_layers is {stacks[0]} and decoder_layers {stacks[1]}"
            )

    def _check_head(self) -> None:
        if self.head is None:
            return
        if self.decoder_layers > 0:
            raise InputError(
                f"head is {self.head.kind}, which an encoder alone ends in; "
                f"decoder_layers is {self.decoder_layers}, not 0"
            )
        if self.output_bias:
            raise InputError(f"output_bias is for logits over the vocabulary, and head is {self.head.kind}")

    def _check_copying(self) -> None:
        if not self.copying:
            return
        if self.kind != "encoder-decoder":
            raise InputError(f"copying is from a source, which a model that is {self.kind} does not have")
        if self.source_vocab_size is not None:
            raise InputError("copying needs one vocabulary for source and target; leave source_vocab_size out")
        if self.sharing.embedding_width is not None:
            raise InputError("copying and factorized embeddings do not go together; leave one of them out")

    def _check_positions(self) -> None:
        d_k, name = head_width(self.d_model, self.num_heads, "d_k", self.d_k), position_kind(self.positions)
        if name == "rope" and d_k % 2:
            raise InputError(f"d_k is {d_k}; rotary positions turn pairs of numbers, so it must be even")
        if self.random_positions is None:
            return
        if name not in ("sinusoidal", "learned", "rope"):
            raise InputError(
                f"random_positions is for sinusoidal, learned and rotary positions, but positions is {name!r}"
            )
        if name == "learned" and self.random_positions > self.max_positions:
            raise InputError(
                f"random_positions {self.random_positions} is more than max_positions {self.max_positions}, "
                "where the learned table ends"
            )


_PRESETS: dict[str, dict[str, Any]] = {
    # The published Transformer-Tiny for Multi30k (Wu et al. 2021).
    "tiny": dict(d_model=128, num_heads=4, d_ff=256, encoder_layers=4, decoder_layers=4, dropout=0.3),
    "small": dict(d_model=256, num_heads=4, d_ff=1024, encoder_layers=6, decoder_layers=6, dropout=0.1),
    # "Attention Is All You Need", table 3.
    "base": dict(d_model=512, num_heads=8, d_ff=2048, encoder_layers=6, decoder_layers=6, dropout=0.1),
    "big": dict(d_model=1024, num_heads=16, d_ff=4096, encoder_layers=6, decoder_layers=6, dropout=0.3),
}
