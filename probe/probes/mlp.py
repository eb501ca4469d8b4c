"""Implements a perceptron with one hidden layer. It sees one word, or one sentence, at a time."""

from __future__ import annotations

from torch import Tensor, nn

from probe.config import ProbeConfig


class MLP(nn.Module):
    """Maps features to a hidden layer with ReLU."""

    def __init__(self, width: int, hidden_size: int) -> None:
        super().__init__()
        self.width = hidden_size
        self.hidden = nn.Linear(width, hidden_size)

    def forward(self, x: Tensor, mirror: Tensor) -> Tensor:
        """Returns (T, B, hidden size). x: (T, B, D). mirror: not used."""
        return self.hidden(x).relu()


def network(probe: ProbeConfig, width: int) -> MLP:
    return MLP(width, probe.hidden_size)
