"""How results show themselves: one line at a prompt, HTML in a notebook."""

from html.parser import HTMLParser

import pytest
import torch

import regard
from regard.inference.results import CrossAttention
from tests.unit.models import save_small_model, small_pipeline

HOSTILE = "<script>alert('x')</script> & <b>"


class Elements(HTMLParser):
    """The elements and the text of some HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_translation_prints_as_its_text_and_shows_its_score() -> None:
    other = regard.Translation("Hello!", -0.5, ["Hello!"])
    translation = regard.Translation("Good\nday.", -0.25, ["Good", "day."], (other,), cut=True)
    assert str(translation) == f"{translation}" == "Good\nday."
    assert repr(translation) == r"Translation('Good\nday.', score=-0.2500, 1 alternative, cut)"


def test_a_translation_in_a_notebook_has_its_alternatives() -> None:
    alternatives = tuple(regard.Translation(HOSTILE + str(n), -1.0, []) for n in range(2))
    elements = Elements(regard.Translation(HOSTILE, -0.5, [], alternatives)._repr_html_())
    assert elements.tags.count("li") == 2
    assert "script" not in elements.tags
    assert elements.text.count(HOSTILE) == 3


def test_attention_shows_its_sizes_on_one_line() -> None:
    record = small_pipeline().attention("Tom sees the house.", "Mary\nlikes it.", to="de")
    L, H, T, S = record.weights_LHTS.shape
    assert repr(record).startswith(f"CrossAttention({L} layers, {H} heads, {T} target × {S} source tokens: '<2de> ▁T")
    assert "\n" not in repr(record)
    assert len(repr(record)) < 200


def test_attention_in_a_notebook_is_a_table_of_weights() -> None:
    record = CrossAttention([HOSTILE, "b"], ["x", "y", HOSTILE], torch.full((2, 4, 3, 2), 0.5))
    elements = Elements(record._repr_html_())
    assert elements.tags.count("td") == 6
    assert "script" not in elements.tags
    assert elements.text.count(HOSTILE) == 2
    assert elements.text.count("0.50") == 6


def test_a_long_heat_map_says_what_it_leaves_out() -> None:
    record = CrossAttention(["a"] * 70, ["b"] * 65, torch.full((1, 1, 65, 70), 1 / 70))
    elements = Elements(record._repr_html_())
    assert elements.tags.count("td") == 60 * 60
    assert "10 more source tokens and 5 more target tokens" in elements.text


def test_a_pipeline_says_which_model_it_is(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = save_small_model(tmp_path_factory.mktemp("models") / "<script>")
    pipeline = regard.load(path, precision="float")
    assert repr(pipeline) == "Translator(<script>, de and en, 2+2 layers, 0.1 M parameters, float)"
    elements = Elements(pipeline._repr_html_())
    assert "script" not in elements.tags
    assert "<script>" in elements.text
    assert "de and en" in elements.text
    assert repr(small_pipeline()).startswith("Translator(de and en, ")
