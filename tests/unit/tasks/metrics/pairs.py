"""Random texts beside their references: alike, unlike, empty, in several scripts."""

from random import Random

WORDS = (
    *("the", "The", "a", "an", "An", "cat", "cats", "Running", "run", "nationality", "U.S.", "don't", "and", "theme"),
    *(
        "Übung",
        "naïve",
        "Straße",
        "İstanbul",
        "Ελλάδα",
        "привет",
        "東京",
        "सड़क",
        "🙂",
        "e\u0301",
        "a–the",
        "_a_",
        "3.14",
    ),
    *("1,000", "(x)", "!", "…", "«a»", "x=y;", "\u00a0", "\t", "foo()", "@@", "--", "²", "ﬁne"),
)


def random_text(random: Random) -> str:
    """Return a text of at most 12 words; one of eight is empty."""
    if random.random() < 1 / 8:
        return random.choice(("", "", " ", "!", "the", "日本"))
    return random.choice((" ", " ", "  ", "")).join(random.choices(WORDS, k=random.randint(1, 12)))


def altered(text: str, random: Random) -> str:
    """Return a text with some of its words dropped, exchanged or in upper case."""
    words = []
    for word in text.split(" "):
        match random.randrange(6):
            case 0:
                words.append(random.choice(WORDS))
            case 1:
                words.append(word.upper())
            case 2:
                words += [word, word]
            case 3:
                pass
            case _:
                words.append(word)
    return " ".join(words)


def random_pairs(count: int, references: int = 1, seed: int = 0) -> tuple[list[str], list[tuple[str, ...]]]:
    """Return texts and the references of each, from 1 to so many."""
    random = Random(seed)
    texts, acceptable = [], []
    for _ in range(count):
        some = tuple(random_text(random) for _ in range(random.randint(1, references)))
        kind = random.randrange(8)
        texts.append(some[0] if kind == 0 else random_text(random) if kind == 1 else altered(some[-1], random))
        acceptable.append(some)
    return texts, acceptable
