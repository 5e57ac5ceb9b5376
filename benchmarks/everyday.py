"""Writes the questions of the smollm recipe: python -m benchmarks.everyday

Small questions in everyday words, each with one word or one number as its answer, generated from one seed; and a few
questions of general knowledge, none of which is trained on.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "polopt" / "recipes" / "data"
EACH, SEED = 400, 0

NAMES = (
    "Anna Ben Clara David Emma Felix Grace Hugo Iris Jack Kate Leo Mia Noah Olga Paul Rosa Sam Tina Victor Wendy Zoe "
    "Adam Bella Carlos Dora Eric Fiona George Helen Ivan Julia Kevin Laura Mark Nina Oscar Peter Ruth Simon"
).split()
CITIES = (
    "Rome Paris London Berlin Madrid Vienna Oslo Prague Dublin Lisbon Athens Warsaw Helsinki Boston Chicago Toronto "
    "Sydney Tokyo Cairo Lima"
).split()
JOBS = (
    "baker teacher doctor farmer painter pilot nurse driver lawyer singer cook gardener tailor builder writer".split()
)
THINGS = "apples books pencils coins shells stamps oranges cards balls cookies marbles flowers eggs keys cups".split()
SORTS = {
    "an animal": "dog cat horse tiger rabbit elephant eagle monkey sheep lion mouse bear".split(),
    "a fruit": "apple banana orange lemon grape cherry peach mango pear plum melon kiwi".split(),
    "a colour": "red blue green yellow purple brown pink white black grey".split(),
    "a piece of furniture": "chair table sofa desk bed wardrobe bench stool cupboard shelf".split(),
    "a tool": "hammer saw drill screwdriver axe shovel pliers wrench rake chisel".split(),
    "an instrument": "guitar piano violin trumpet drum flute harp cello clarinet trombone".split(),
    "a vehicle": "car train bus truck bicycle tram ship plane scooter tractor".split(),
}
WORDS = (
    "apple bread chair dance eagle flower garden house island jacket kitchen lemon mountain night ocean paper queen "
    "river sugar table umbrella village winter yellow zebra button castle dragon engine forest guitar hammer insect "
    "jungle kettle ladder mirror needle orange pencil rabbit silver tiger valley window bridge candle doctor family "
    "giraffe honey market number pocket rain school train water blanket butterfly elephant pumpkin strawberry sun cat"
).split()
COLOURS = "red blue green yellow white black brown pink purple orange".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()

Question = tuple[str, str]


def more(draw: random.Random) -> Question:
    name, thing, a, b = draw.choice(NAMES), draw.choice(THINGS), draw.randint(1, 5), draw.randint(1, 5)
    how = draw.choice(("buys", "finds", "gets"))
    return f"{name} has {a} {thing} and {how} {b} more. How many {thing} does {name} have now?", str(a + b)


def fewer(draw: random.Random) -> Question:
    name, other = draw.sample(NAMES, 2)
    thing, a = draw.choice(THINGS), draw.randint(2, 9)
    b = draw.randint(1, a - 1)
    return f"{name} has {a} {thing} and gives {b} of them to {other}. How many {thing} does {name} keep?", str(a - b)


def sort(draw: random.Random) -> Question:
    kind, *others = draw.sample(sorted(SORTS), 3)
    answer = draw.choice(SORTS[kind])
    words = [answer, *(draw.choice(SORTS[other]) for other in others)]
    draw.shuffle(words)
    return f"Which of these is {kind}: {words[0]}, {words[1]} or {words[2]}?", answer


def where(draw: random.Random) -> Question:
    (a, b), (home, away), (job, work) = draw.sample(NAMES, 2), draw.sample(CITIES, 2), draw.sample(JOBS, 2)
    text = f"{a} is a {job} and lives in {home}. {b} is a {work} and lives in {away}."
    question = draw.choice(
        (
            (f"In which city does {a} live?", home),
            (f"In which city does {b} live?", away),
            (f"In which city does the {job} live?", home),
            (f"What is {b}'s job?", work),
            (f"Who is the {work}?", b),
            (f"Who lives in {home}?", a),
        )
    )
    return f"{text} {question[0]}", question[1]


def oldest(draw: random.Random) -> Question:
    a, b, c = draw.sample(NAMES, 3)
    what, most, least = draw.choice((("older", "oldest", "youngest"), ("taller", "tallest", "shortest")))
    end, answer = draw.choice(((most, a), (least, c)))
    return f"{a} is {what} than {b}, and {b} is {what} than {c}. Who of the three is the {end}?", answer


def larger(draw: random.Random) -> Question:
    a, b = draw.sample(range(10, 100), 2)
    if draw.random() < 0.5:
        return f"Which number is larger, {a} or {b}?", str(max(a, b))
    return f"Which number is smaller, {a} or {b}?", str(min(a, b))


def letter(draw: random.Random) -> Question:
    word, end = draw.choice(WORDS), draw.choice(("first", "last"))
    about = draw.choice(("What is", "Tell me", "Name"))
    mark = "?" if about == "What is" else "."
    return f"{about} the {end} letter of the word {word}{mark}", word[0 if end == "first" else -1]


def alphabet(draw: random.Random) -> Question:
    words = draw.sample(WORDS, 2)
    return f"Which of these words comes first in the alphabet: {words[0]} or {words[1]}?", min(words)


def colour(draw: random.Random) -> Question:
    (a, b, c), (x, y, z) = draw.sample(THINGS, 3), draw.sample(COLOURS, 3)
    thing, answer = draw.choice(((a, x), (b, y), (c, z)))
    return f"The {a} are {x}, the {b} are {y} and the {c} are {z}. What colour are the {thing}?", answer


def day(draw: random.Random) -> Question:
    name, today, days = draw.choice(NAMES), draw.randrange(7), draw.randint(1, 3)
    when = {1: "tomorrow", 2: "in two days", 3: "in three days"}[days]
    what = draw.choice(("birthday", "exam", "trip"))
    return f"Today is {DAYS[today]}. {name}'s {what} is {when}. On which day is it?", DAYS[(today + days) % 7]


KINDS: tuple[Callable[[random.Random], Question], ...] = (
    more,
    fewer,
    sort,
    where,
    oldest,
    larger,
    letter,
    alphabet,
    colour,
    day,
)

# Of general knowledge, with a pattern of what a right answer says somewhere.
CAPITALS = (
    ("France", "Paris"), ("Italy", "Rome"), ("Germany", "Berlin"), ("Spain", "Madrid"), ("Japan", "Tokyo"),
    ("Egypt", "Cairo"), ("Russia", "Moscow"), ("China", "Beijing"), ("Greece", "Athens"), ("Portugal", "Lisbon"),
    ("Austria", "Vienna"), ("Ireland", "Dublin"), ("Norway", "Oslo"), ("Sweden", "Stockholm"), ("Poland", "Warsaw"),
    ("Canada", "Ottawa"), ("Cuba", "Havana"), ("India", "New Delhi"), ("Finland", "Helsinki"), ("Peru", "Lima"),
)  # fmt: skip
KNOWLEDGE: tuple[tuple[str, str, str], ...] = (
    *((f"What is the capital of {country}?", city, rf"\b{city}\b") for country, city in CAPITALS),
    ("How many days are there in a week?", "7", r"(?i)\b(7|seven)\b"),
    ("How many months are there in a year?", "12", r"(?i)\b(12|twelve)\b"),
    ("How many legs does a spider have?", "8", r"(?i)\b(8|eight)\b"),
    ("How many minutes are there in an hour?", "60", r"(?i)\b(60|sixty)\b"),
    ("Who wrote Romeo and Juliet?", "Shakespeare", r"(?i)shakespeare"),
    ("Who painted the Mona Lisa?", "Leonardo da Vinci", r"(?i)da vinci|leonardo"),
    ("Which planet is closest to the Sun?", "Mercury", r"(?i)\bmercury\b"),
    ("Which planet is known as the Red Planet?", "Mars", r"(?i)\bmars\b"),
    ("What is the largest ocean on Earth?", "Pacific", r"(?i)\bpacific\b"),
    ("What is the largest planet in the Solar System?", "Jupiter", r"(?i)\bjupiter\b"),
    ("What gas do plants take in from the air?", "carbon dioxide", r"(?i)carbon dioxide|\bCO2\b"),
    ("What is the chemical formula of water?", "H2O", r"(?i)h2o|h₂o"),
    ("At how many degrees Celsius does water boil?", "100", r"\b100\b"),
    ("What do bees make?", "honey", r"(?i)\bhoney\b"),
    ("Which animal barks?", "dog", r"(?i)\bdogs?\b"),
    ("What is the opposite of hot?", "cold", r"(?i)\bcold\b"),
    ("What is the opposite of big?", "small", r"(?i)\b(small|little|tiny)\b"),
    ("What is the opposite of day?", "night", r"(?i)\bnight\b"),
    ("What is frozen water called?", "ice", r"(?i)\bice\b"),
    ("Which season comes after winter?", "spring", r"(?i)\bspring\b"),
    ("Who was the first president of the United States?", "George Washington", r"(?i)washington"),
    ("In which country are the pyramids of Giza?", "Egypt", r"(?i)\begypt\b"),
    ("In which city is the Eiffel Tower?", "Paris", r"(?i)\bparis\b"),
    ("On which continent is Brazil?", "South America", r"(?i)south america"),
    ("On which continent is Kenya?", "Africa", r"(?i)\bafrica\b"),
    ("Which language is spoken in Brazil?", "Portuguese", r"(?i)portuguese"),
    ("Which language do most people in Mexico speak?", "Spanish", r"(?i)spanish"),
    ("What is the tallest animal on land?", "giraffe", r"(?i)giraffe"),
    ("What organ pumps blood through the body?", "heart", r"(?i)\bheart\b"),
    ("What star does the Earth go around?", "the Sun", r"(?i)\bsun\b"),
)  # fmt: skip


def questions(each: int = EACH, seed: int = SEED) -> list[dict[str, Any]]:
    """So many different questions of each kind, shuffled; 300 about letters, of which there are no 400."""
    draw = random.Random(seed)
    found: list[dict[str, Any]] = []
    for make in KINDS:
        seen: dict[str, str] = {}
        while len(seen) < (min(each, 300) if make is letter else each):
            prompt, answer = make(draw)
            seen.setdefault(prompt, answer)
        found += [{"kind": make.__name__, "prompt": p, "answer": a} for p, a in seen.items()]
    draw.shuffle(found)
    return found


def knowledge() -> list[dict[str, Any]]:
    """Questions of general knowledge, each with the pattern of a right answer."""
    return [{"kind": "knowledge", "prompt": p, "answer": a, "pattern": pattern} for p, a, pattern in KNOWLEDGE]


def main() -> None:
    """Write both files."""
    FOLDER.mkdir(exist_ok=True)
    for name, rows in (("everyday", questions()), ("knowledge", knowledge())):
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (FOLDER / f"{name}.jsonl").write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    main()
