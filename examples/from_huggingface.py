"""The text pipelines of transformers 4, over models of regard: only the import differs.

python examples/from_huggingface.py
python examples/from_huggingface.py summarization=my-model/ question-answering=another/
"""

import sys

from regard import pipeline  # with transformers 4: from transformers import pipeline


def translation(model: str) -> None:
    """Translate both ways."""
    translator = pipeline("translation_de_to_en", model=model, framework="pt", device=-1)
    print(translator("Ich habe Hunger.")[0]["translation_text"])
    sentences = ["Wo ist der Bahnhof?", "Das Wetter ist heute sehr schön."]
    for output in translator(sentences, max_length=60, num_beams=4, early_stopping=True, batch_size=2):
        print(output["translation_text"])
    for number, output in enumerate(translator(sentences[0], num_beams=4, num_return_sequences=3), 1):
        print(f"{number}. {output['translation_text']}")
    back = pipeline("translation", model=model)
    print(back("I am tired.", src_lang="en", tgt_lang="de")[0]["translation_text"])


def summarization(model: str) -> None:
    """Summarize."""
    summarizer = pipeline("summarization", model=model)
    article = "Anna and Ben met in the garden. They talked about the weather, and about the house of Clara."
    print(summarizer(article, max_length=30, min_length=5, do_sample=False)[0]["summary_text"])
    outputs = summarizer([article, article.upper()], max_length=20, no_repeat_ngram_size=3, truncation=True)
    print([output["summary_text"] for output in outputs])


def question_answering(model: str) -> None:
    """Answer questions about a text."""
    answerer = pipeline("question-answering", model=model)
    context = "Daniel went to the office. Mary went to the garden."
    result = answerer(question="Where is Mary?", context=context)
    print(f"answer: {result['answer']!r}, score: {result['score']:.4f}, start: {result['start']}, end: {result['end']}")
    questions = [{"question": f"Where is {name}?", "context": context} for name in ("Mary", "Daniel")]
    print([result["answer"] for result in answerer(questions, max_answer_len=5, handle_impossible_answer=True)])
    print(sorted(answerer(question="Where is Daniel?", context=context, top_k=2)[0]))


def text2text_generation(model: str) -> None:
    """Write what a text becomes."""
    generator = pipeline("text2text-generation", model=model)
    print(generator("Tom sees the house.", max_new_tokens=10)[0]["generated_text"])
    for outputs in generator(["Tom sees it.", "Mary has found it."], num_beams=3, num_return_sequences=3):
        print([output["generated_text"] for output in outputs])


def text_generation(model: str) -> None:
    """Go on with texts."""
    generator = pipeline("text-generation", model=model)
    print(generator("Tom sees", max_new_tokens=8, do_sample=False)[0]["generated_text"])
    outputs = generator(
        "Tom sees", max_length=20, truncation=True, do_sample=True, top_k=20, top_p=0.9, temperature=0.7,
        num_return_sequences=2, return_full_text=False,
    )  # fmt: skip
    print([output["generated_text"] for output in outputs])
    prompts = (f"{name} likes" for name in ("Tom", "Mary", "Nobody"))
    for outputs in generator(prompts, max_new_tokens=5, batch_size=2):
        print(outputs[0]["generated_text"])


def text_classification(model: str) -> None:
    """Label texts."""
    classifier = pipeline("sentiment-analysis", model=model)
    result = classifier("Tom likes the house.")[0]
    print(f"label: {result['label']}, with score: {result['score']:.4f}")
    for result in classifier(["Tom likes it.", "Nobody wants it."], truncation=True, max_length=64):
        print(result["label"])
    print([one["label"] for one in classifier("Tom likes it.", top_k=None)])


if __name__ == "__main__":
    models = dict(argument.split("=", 1) for argument in sys.argv[1:]) or {"translation": "de-en"}
    for task, model in models.items():
        globals()[task.replace("-", "_")](model)
