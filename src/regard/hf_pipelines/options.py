"""The options of transformers 4, by name: what each is here, and which are taken although nothing depends on them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import torch

from regard.errors import InputError, shown

SEARCH = {
    "num_beams": "beam",
    "num_return_sequences": "n_best",
    "length_penalty": "length_penalty",
    "num_beam_groups": "groups",
    "diversity_penalty": "diversity",
    "no_repeat_ngram_size": "no_repeat",
    "do_sample": "sample",
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
}
"""Each with the field of `SearchSettings` that it sets."""
LENGTHS = {"max_new_tokens": "max_length", "min_new_tokens": "min_length"}
"""The same for lengths. `max_length` and `min_length` themselves count a target's start, or the prompt, as well."""
GENERATION = (*SEARCH, *LENGTHS, *LENGTHS.values(), "early_stopping", "clean_up_tokenization_spaces", "return_tensors")
"""The options of all pipelines that write. A search ends as theirs does with `early_stopping=True`, whatever it is."""
TOP_K = 50
"""Theirs where they sample, unless given."""


@dataclass(frozen=True)
class NoEffect:
    """An option that is taken where nothing depends on it, and refused where something would."""

    reason: str = ""
    values: tuple[object, ...] | None = None
    """Those that change nothing, beside None; all unless given."""

    def check(self, name: str, value: object) -> None:
        """Raise an `InputError` for a value that would change something."""
        if value is None or self.values is None or any(value == harmless for harmless in self.values):
            return
        raise InputError(f"{name}={shown(value)} is not supported: {self.reason}")


CALL = {
    "num_workers": NoEffect(),
    "padding": NoEffect(),
    "use_cache": NoEffect(),
    "pad_token_id": NoEffect(),
    "return_text": NoEffect(),
    "eos_token_id": NoEffect("a text ends with the end token of its model", ()),
    "stop_sequence": NoEffect("a text ends where the model ends it, or at max_new_tokens", ()),
    "handle_long_generation": NoEffect("a prompt is never cut", ()),
}
"""What calls of any pipeline take beside the options of its own."""


def checked_options(
    options: Mapping[str, Any], known: Collection[str], no_effect: Mapping[str, NoEffect], owner: str
) -> dict[str, Any]:
    """Return the options that something depends on; raise an `InputError` for one that is not known."""
    for name, value in options.items():
        if name in no_effect:
            no_effect[name].check(name, value)
        elif name not in known:
            near = get_close_matches(name, [*known, *no_effect], n=1)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(sorted(known))}"
            raise InputError(f"{owner} has no option {name!r}; {hint}")
    return {name: value for name, value in options.items() if name in known}


def search_changes(options: Mapping[str, Any], start: int) -> dict[str, Any]:
    """Return options as changes of `SearchSettings`; `start` is how many tokens lengths count that ours do not."""
    changes = {ours: options[theirs] for theirs, ours in SEARCH.items() if options.get(theirs) is not None}
    if changes.get("sample"):
        if changes.pop("beam", 1) != 1:
            raise InputError("do_sample with num_beams > 1 (beam sampling) is not supported; leave one of them out")
        changes["seed"] = int(torch.randint(2**31, ()))  # as torch.manual_seed says, and another each time
    for new, ours in LENGTHS.items():
        if options.get(new) is not None:
            changes[ours] = count(options, new)
        elif options.get(ours) is not None:
            changes[ours] = max(0, count(options, ours) - start)
    if changes.get("max_length") == 0:
        raise InputError(
            f"max_length is {options['max_length']}, of which {start} are there before the first is written"
        )
    return changes


def count(options: Mapping[str, Any], name: str, default: int = 1) -> int:
    """Return an option that is a number of things: at least one, but for those of least lengths."""
    value = default if options.get(name) is None else options[name]
    least = 0 if name.startswith("min_") else 1
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"{name} is {shown(value)}; a whole number of at least {least} was expected")
    return value
