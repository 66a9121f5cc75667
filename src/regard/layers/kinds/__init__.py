"""Kinds of attention other than softmax(QKᵀ/√d_k)V, most of them cheaper for long sequences."""

from regard.layers.kinds.kind import AttentionKind as AttentionKind
from regard.layers.kinds.linear import LinearAttention as LinearAttention
from regard.layers.kinds.linformer import LinformerAttention as LinformerAttention
from regard.layers.kinds.nystrom import NystromAttention as NystromAttention
from regard.layers.kinds.performer import PerformerAttention as PerformerAttention
from regard.layers.kinds.recurrent import RecurrentCache as RecurrentCache
