"""What is left as it is in memory while a model is built to be read from a file."""

import torch
from torch import Tensor, nn

from regard.model.initialization import NoInitialization


def _filled(fill: str, tensor: Tensor) -> Tensor:
    match fill:
        case "constant":
            return nn.init.constant_(tensor, 0.5)
        case "xavier":
            return nn.init.xavier_uniform_(tensor)
        case "orthogonal":
            return nn.init.orthogonal_(tensor)
        case "uniform":
            return tensor.uniform_(0.0, 1.0)
    return tensor.normal_(generator=torch.Generator().manual_seed(0))


def test_only_parameters_stay_as_they_are() -> None:
    for fill in ("constant", "xavier", "orthogonal", "uniform", "normal"):
        with NoInitialization():
            buffer = _filled(fill, torch.full((4, 4), 7e8))
        assert buffer.abs().max() < 10.0, fill
        if fill != "orthogonal":  # which computes what it copies
            with NoInitialization():
                parameter = _filled(fill, nn.Parameter(torch.full((4, 4), 7e8), requires_grad=False))
            assert parameter.eq(7e8).all(), fill
        with NoInitialization(), torch.device("meta"):
            assert _filled(fill, torch.empty(4, 4)).is_meta
