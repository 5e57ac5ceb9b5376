"""Networks that learn beside the policy: critics, values, temperatures, each with its loss and its target copy."""

from polopt.networks.balances import BALANCE, BalanceActor, BalanceFamily
from polopt.networks.choices import ChoiceNetwork
from polopt.networks.critics import QNetwork, Temperature, ValueNetwork
from polopt.networks.histories import LATENT_OUTPUTS, HistoryActor, HistoryEncoder, PrivilegedValue
from polopt.networks.intervals import IntervalActor, ProgramInterval
from polopt.networks.learned import LearnedNetwork, critic
from polopt.networks.parts import INPUTS, Network, Space
from polopt.networks.perceptron import Activation, perceptron
from polopt.networks.primitives import MovementPrimitive
from polopt.networks.programs import LinearProgram, Program
from polopt.networks.recurrent import MemoryNetwork, Recurrent
from polopt.networks.relabel import Relabel
from polopt.networks.residual import ResidualNetwork
from polopt.networks.responses import response_networks
from polopt.networks.sequences import ActionSequence, SequenceActor
from polopt.networks.subequivariant import Limbs, Subequivariant, SubequivariantQ
from polopt.networks.trunks import Trunk
from polopt.networks.vectors import VectorNetwork

__all__ = [
    "BALANCE",
    "INPUTS",
    "LATENT_OUTPUTS",
    "ActionSequence",
    "Activation",
    "BalanceActor",
    "BalanceFamily",
    "ChoiceNetwork",
    "HistoryActor",
    "HistoryEncoder",
    "IntervalActor",
    "LearnedNetwork",
    "Limbs",
    "LinearProgram",
    "MemoryNetwork",
    "MovementPrimitive",
    "Network",
    "PrivilegedValue",
    "Program",
    "ProgramInterval",
    "QNetwork",
    "Recurrent",
    "Relabel",
    "ResidualNetwork",
    "SequenceActor",
    "Space",
    "Subequivariant",
    "SubequivariantQ",
    "Temperature",
    "Trunk",
    "ValueNetwork",
    "VectorNetwork",
    "critic",
    "perceptron",
    "response_networks",
]
