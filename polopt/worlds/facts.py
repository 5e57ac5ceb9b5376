"""Graphs of fictional facts: documents about people, companies and places that do not exist, and questions on them."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping

FIRST = (
    *("Ada", "Bero", "Cilla", "Doran", "Elva", "Faro", "Gilda", "Haro", "Ilse", "Joran", "Kira", "Loden", "Mira"),
    *("Nuno", "Odile", "Pavo", "Quila", "Rena", "Silvo", "Tarek", "Ursa", "Velka", "Wilm", "Xenia", "Yoris", "Zelda"),
)
LAST = (
    *("Amsel", "Borg", "Candor", "Dremel", "Estrin", "Falk", "Grauer", "Holt", "Irving", "Jansky", "Korda", "Lumen"),
    *("Marek", "Norden", "Ordan", "Pell", "Quist", "Rook", "Stern", "Thorn", "Ulmer", "Vance", "Weller", "Yarrow"),
)
CITIES = (
    *("Arvik", "Belmar", "Corvane", "Dunmoor", "Elsing", "Fenwick", "Galdor", "Hestra", "Iskar", "Jorvale", "Keldon"),
    *("Lomar", "Mirefall", "Nessing", "Ostvar", "Pellin", "Quorra", "Rilmont", "Sarnath", "Tarmis", "Umberg", "Varn"),
)
REGIONS = (
    *("Aldermark", "Brenland", "Cerulia", "Drovia", "Ermvale", "Frisland", "Gorania", "Halvard", "Isenmoor", "Juvenia"),
    *("Kaldera", "Lorvia", "Montera", "Nordheath", "Oststrand", "Pellonia", "Quentia", "Rovenia", "Sundmark", "Trevia"),
)
COMPANIES = (
    *("Axiom", "Bluxen", "Cobalt", "Dynamo", "Emberly", "Fluxor", "Gantry", "Helix", "Ionix", "Jetson", "Kestrel"),
    *("Lumina", "Monarch", "Nimbus", "Octavo", "Pylon", "Quasar", "Rotunda", "Solace", "Tundra"),
)

# Relation -> the kinds of what it leads from and to, the sentence of a fact, and the words of a question on it.
PERSON, CITY, COMPANY, REGION = "person", "city", "company", "region"


@dataclasses.dataclass(frozen=True)
class Relation:
    """A relation between two kinds of thing. said: the sentence of a fact, of {a} and {b}. phrase: what {b} is, of {a}.
    asked: a question for {b}, of {a}."""

    start: str
    end: str
    said: str
    phrase: str
    asked: str


RELATIONS: Mapping[str, Relation] = {
    "birthplace": Relation(PERSON, CITY, "{a} was born in {b}.", "the birthplace of {a}", "Where was {a} born?"),
    "employer": Relation(PERSON, COMPANY, "{a} works for {b}.", "the employer of {a}", "Who does {a} work for?"),
    "seat": Relation(COMPANY, CITY, "{a} has its seat in {b}.", "the seat of {a}", "Where is the seat of {a}?"),
    "head": Relation(COMPANY, PERSON, "{a} is led by {b}.", "the head of {a}", "Who leads {a}?"),
    "region": Relation(CITY, REGION, "{a} lies in {b}.", "the region of {a}", "In which region is {a}?"),
    "mayor": Relation(CITY, PERSON, "The mayor of {a} is {b}.", "the mayor of {a}", "Who is the mayor of {a}?"),
}
OF_KIND: Mapping[str, tuple[str, ...]] = {
    kind: tuple(name for name, relation in RELATIONS.items() if relation.start == kind)
    for kind in (PERSON, COMPANY, CITY)
}


@dataclasses.dataclass(frozen=True)
class Question:
    """A question. chain: the things from the one that it names to the answer; each is told in the document of the one
    before."""

    text: str
    chain: tuple[str, ...]

    @property
    def hops(self) -> int:
        return len(self.chain) - 1


class FactGraph:
    """Facts about people, companies and cities, drawn by a seed: names are the same in all graphs, and which belong
    together is not, so that the answers to questions on one graph say nothing about another's.

    people: how many there are.
    """

    def __init__(self, seed: int, people: int = 40) -> None:
        draw = random.Random(f"facts/{seed}")
        names = [f"{first} {last}" for first in FIRST for last in LAST]
        if not 2 <= people <= len(names):
            raise ValueError(f"facts: people must be from 2 to {len(names)}, found {people}")
        self.things = {
            PERSON: draw.sample(names, people),
            CITY: list(CITIES),
            COMPANY: list(COMPANIES),
            REGION: list(REGIONS),
        }
        self.facts: dict[tuple[str, str], str] = {
            (thing, name): draw.choice(self.things[relation.end])
            for name, relation in RELATIONS.items()
            for thing in self.things[relation.start]
        }
        self.subjects = [thing for kind in OF_KIND for thing in self.things[kind]]
        self.documents = [self._document(thing, kind) for kind in OF_KIND for thing in self.things[kind]]

    def _document(self, thing: str, kind: str) -> str:
        said = (RELATIONS[name].said.format(a=thing, b=self.facts[thing, name]) for name in OF_KIND[kind])
        return " ".join(said)

    def question(self, hops: int, draw: random.Random) -> Question:
        """Draws a question whose answer is `hops` facts away from the thing that it names. No thing occurs twice."""
        while True:
            kind = draw.choice(list(OF_KIND))
            chain, words = [draw.choice(self.things[kind])], ""
            for hop in range(hops):
                if kind not in OF_KIND:
                    break
                name = draw.choice(OF_KIND[kind])
                about = words or chain[0]
                relation = RELATIONS[name]
                words = (relation.asked if hop == hops - 1 else relation.phrase).format(a=about)
                chain.append(self.facts[chain[-1], name])
                kind = relation.end
            if len(set(chain)) == hops + 1:
                return Question(words, tuple(chain))
