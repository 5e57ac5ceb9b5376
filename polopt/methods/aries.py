"""ARIES: the steps of a thought graph are chosen by an agent, by a vote of its answers."""

from polopt.method import Paper, method
from polopt.solvers import ErringAgent, VotedActions


@method(
    paper=Paper(
        title="ARIES: Autonomous Reasoning with LLMs on Interactive Thought Graph Environments",
        authors="Gimenes, Pedro and Cao, Zeyu and Wong, Jeffrey and Zhao, Yiren",
        year=2025,
        arxiv="2502.21208",
    ),
    changes="An agent reads the graph of thoughts and names the next action, by majority of several answers, where a "
    "fixed schedule splits, solves, refines and joins them.",
    room="solvers",
    tier="reading",
)
def aries(*, voters: int = 5, error: float = 0.3) -> VotedActions:
    """A task is a graph of thoughts with scores. In the state s an agent, asked m = `voters` times, answers a_1, ...,
    a_m, and the action is

        a = argmax_a sum_i 1[a_i = a]

    of which the reasoner makes new thoughts: it decomposes, solves, refines or aggregates. Costs are the requests of
    the reasoner and, m for each action, of the agent.

    voters: how often the agent is asked, 1 to 15 in the paper.
    error: of the simulated agent, which is right otherwise.

    The agent is a slot: `.but(agent=solvers.ChatAgent(chat=...))` asks a chat model, that reads the state in words. The
    reasoner of the problem `thought-graph` is known by its rates of being right. The paper's agents are models of 70
    and 405 billion weights that are not trained; its prompts, and the size of its ensembles by task, could not be
    confirmed. Votes help an agent that is right more often than it names any other action, and harm another one. An
    agent that is as dear as the reasoner costs more in its answers than it saves.
    """
    return VotedActions(agent=ErringAgent(error=error), voters=voters)
