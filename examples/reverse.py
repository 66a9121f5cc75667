"""Learn to spell words backwards, on screen, in under a minute: the whole library in one small program.

python examples/reverse.py
"""

from collections.abc import Callable

import torch
from rich.console import Console
from torch import Tensor

import regard

PAD, START, END, LETTERS = 0, 1, 2, "abcdefghijklmnopqrstuvwxyz"
LONGEST = 10


def to_tokens(words: list[str]) -> Tensor:
    """Number the letters, end each word with END and fill it up with PAD."""
    rows = [[LETTERS.index(letter) + 3 for letter in word] + [END] for word in words]
    return torch.tensor([row + [PAD] * (LONGEST + 1 - len(row)) for row in rows])


def to_word(tokens: list[int]) -> str:
    """Read letters up to END."""
    ends = tokens.index(END) if END in tokens else len(tokens)
    return "".join(LETTERS[token - 3] if token >= 3 else "?" for token in tokens[:ends])


def random_words(count: int, generator: torch.Generator) -> list[str]:
    """Return random words of 3 to LONGEST letters."""
    lengths = torch.randint(3, LONGEST + 1, (count,), generator=generator).tolist()
    letters = torch.randint(0, len(LETTERS), (count, LONGEST), generator=generator).tolist()
    return ["".join(LETTERS[i] for i in row[:length]) for row, length in zip(letters, lengths, strict=True)]


def learn(
    steps: int = 500, report: Callable[[int, float, regard.Transformer], None] | None = None
) -> regard.Transformer:
    """Train a model of 2 + 2 layers: the paper's Adam, warm-up, label smoothing."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    config = regard.TransformerConfig(
        vocab_size=len(LETTERS) + 3,
        d_model=64,
        num_heads=4,
        encoder_layers=2,
        decoder_layers=2,
        norm_placement="pre",
        dropout=0.0,
    )
    model = regard.Transformer(config)
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 3e-3 * min(1.0, (step + 1) / 100) * (1 - step / steps)
        words = random_words(64, generator)
        source, target = to_tokens(words), to_tokens([word[::-1] for word in words])
        shifted = torch.cat([torch.full((len(words), 1), START), target[:, :-1]], dim=1)
        loss = regard.label_smoothed_cross_entropy(model(source, shifted), target, pad_id=PAD)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if report is not None and step % 50 == 0:
            report(step, loss.item(), model)
    return model.eval()


@torch.no_grad()
def reverse(model: regard.Transformer, words: list[str]) -> list[str]:
    """Decode greedily, one letter a step, from the cache."""
    cache = model.start_cache(model.encode(to_tokens(words)))
    token = torch.full((len(words), 1), START)
    spelled = []
    for _ in range(LONGEST + 1):
        token = model.logits(model.decode(token, cache=cache)).argmax(-1)
        spelled.append(token)
    return [to_word(row) for row in torch.cat(spelled, dim=1).tolist()]


def exact_match(model: regard.Transformer, count: int = 1000) -> float:
    """Return the share of unseen words that come out right to the last letter."""
    words = random_words(count, torch.Generator().manual_seed(2))
    return sum(word[::-1] == output for word, output in zip(words, reverse(model, words), strict=True)) / count


def main() -> None:
    """Learn, and show how it goes."""
    console = Console(highlight=False)
    console.print("[bold]A Transformer learns to spell backwards[/]: 2 + 2 layers, from nothing, on this CPU\n")

    def report(step: int, loss: float, model: regard.Transformer) -> None:
        word = "attention"
        console.print(f"  step {step:4}   loss {loss:5.3f}   {word} → {reverse(model, [word])[0]}")

    model = learn(report=report)
    console.print(f"\n  {exact_match(model):.1%} of 1,000 words it has never seen come out right")
    for word in ("encoder", "decoder", "regard"):
        console.print(f"  {word} → {reverse(model, [word])[0]}")


if __name__ == "__main__":
    main()
