"""Q-learning, the search of QS-DNN (sections IV-B to V-B, Algorithm 1).

An agent visits the layers in topological order. Its state is a layer and the option that it took at the layer before.
Its action is the option of this layer, and its reward is the negative cost of the option with the adapts from earlier
layers. Actions are random with probability epsilon, otherwise those with the largest Q-value. After each episode it
learns from the last 128 episodes (experience replay).

Where the paper leaves cases open, this implementation does the following:

- Branches. The state holds the options of up to two earlier layers that are read by this layer or later: the
  layers that this layer reads before others, the latest first. In a chain of layers that is the paper's state; with
    two open branches it determines the rewards. With more they are averages over options that are not in the state,
    since a state of all open layers would hardly occur twice.
- Replay. All transitions of the buffer are learned in one batch. Learning one n times at rate a moves its Q-value
  1 - (1 - a)^n of the way to the target, the mean one where targets differ.
- Missing adapts. Options that cannot be joined with the layers before are no actions. A dead end costs
  more than any plan, by so much that the discount does not hide it from layers well before it.
"""

from __future__ import annotations

import math
from random import Random

import numpy as np

from sartor.tuning.selection.heuristics.episodes import EPISODES, SEED, Episodes, Search
from sartor.tuning.selection.problem.indexed import Floats, IndexedProblem, index_problem
from sartor.tuning.selection.problem.problem import Problem
from sartor.tuning.selection.problem.selection import Selection

NAME = "qlearning"
LEARNING_RATE = 0.05
DISCOUNT = 0.9
REPLAY = 128
_DEAD_END = 100.0
_REMEMBERED = 2
_END = 0
"""The state after the last layer; it has no actions and the value 0."""


def select(problem: Problem) -> Selection:
    """The best plan of ``EPISODES`` episodes.

    Raises:
        InfeasibleError: if no plan exists.
    """
    return search(problem, EPISODES).selection


def search(problem: Problem, episodes: int = EPISODES, seed: int = SEED) -> Search:
    """Learn for some episodes: half of them explore, then epsilon falls from 0.9 to 0 in ten equal parts.

    Childnets are solved first, each by a search of its own.

    Raises:
        InfeasibleError: if no plan exists.
    """
    model = index_problem(problem, lambda childnet: [search(childnet, episodes, seed).selection])
    table = Episodes(model)
    agent = _Agent(table, Random(seed))
    for episode in range(episodes):
        table.record(*agent.episode(_epsilon(episode, episodes)))
        agent.learn()
    return table.finish(NAME)


def _epsilon(episode: int, episodes: int) -> float:
    """How likely an action is random: QS-DNN's schedule (section V-B)."""
    part = 20 * episode // episodes - 10
    return 1.0 if part < 0 else (9 - part) / 10


class _Agent:
    """Q-values by state and option, minus infinity for what is no action there; and the last episodes."""

    def __init__(self, table: Episodes, rng: Random) -> None:
        layers = table.model.layers
        self._table = table
        self._rng = rng
        self._remembered = _remembered(table.model)
        self._states: dict[tuple[int, ...], int] = {}
        self._q: Floats = np.full((64, max((len(layer.options) for layer in layers), default=1)), -np.inf)
        self._q[_END] = 0.0
        self._played = 0
        self._seen = np.zeros((REPLAY, len(layers)), dtype=np.intp)
        self._taken = np.zeros((REPLAY, len(layers)), dtype=np.intp)
        self._rewards = np.zeros((REPLAY, len(layers)))
        self._next = np.zeros((REPLAY, len(layers)), dtype=np.intp)

    def episode(self, epsilon: float) -> tuple[list[int], float]:
        """Go through the net once; returns the plan and its value."""
        picks: list[int] = []
        states: list[int] = []
        rewards: list[float] = []
        while len(picks) < len(self._table.model.layers):
            layer = len(picks)
            options = self._table.options(layer, picks)
            if not options:
                rewards[-1] -= _DEAD_END * self._table.worst
                break
            states.append(self._state(layer, picks, options))
            explore = self._rng.random() < epsilon
            pick = self._rng.choice(options) if explore else self._best(states[-1], options)
            rewards.append(-self._table.cost(layer, pick, picks))
            picks.append(pick)
        self._remember(states, picks, rewards)
        return picks, -sum(rewards) if len(picks) == len(self._table.model.layers) else math.inf

    def learn(self) -> None:
        """Update the Q-values (equation 2) from all episodes in the buffer at once."""
        kept = slice(min(self._played, REPLAY))
        targets = (self._rewards[kept] + DISCOUNT * self._q[self._next[kept]].max(axis=-1)).ravel()
        cells = (self._seen[kept] * self._q.shape[1] + self._taken[kept]).ravel()
        learned, where = np.unique(cells, return_inverse=True)
        times = np.bincount(where)
        means = np.bincount(where, targets) / times
        values = self._q.reshape(-1)
        values[learned] = means + (1.0 - LEARNING_RATE) ** times * (values[learned] - means)

    def _best(self, state: int, options: list[int]) -> int:
        values: list[float] = self._q[state].tolist()
        return max(options, key=values.__getitem__)

    def _state(self, layer: int, picks: list[int], options: list[int]) -> int:
        key = (layer, *(picks[earlier] for earlier in self._remembered[layer]))
        state = self._states.setdefault(key, len(self._states) + 1)
        if state == len(self._q):
            self._q = np.concatenate((self._q, np.full_like(self._q, -np.inf)))
        values = self._q[state, options]
        self._q[state, options] = np.where(np.isneginf(values), 0.0, values)
        return state

    def _remember(self, states: list[int], picks: list[int], rewards: list[float]) -> None:
        """Put the episode in the place of the oldest; what a dead end cut off counts as the end state."""
        slot, length = self._played % REPLAY, len(states)
        for buffer, entries in (
            (self._seen, states),
            (self._taken, picks),
            (self._rewards, rewards),
            (self._next, states[1:]),
        ):
            buffer[slot] = 0
            buffer[slot, : len(entries)] = entries
        self._next[slot, max(length - 1, 0) :] = _END
        self._played += 1


def _remembered(model: IndexedProblem) -> list[tuple[int, ...]]:
    """For each layer the earlier layers whose options its state holds."""
    still_open: list[int] = []
    remembered = []
    for layer, producers in enumerate(model.producers):
        still_open = [earlier for earlier in still_open if model.consumers[earlier][-1] >= layer]
        others = [earlier for earlier in still_open[-2 * _REMEMBERED :] if earlier not in producers]
        remembered.append((*reversed(producers), *reversed(others))[:_REMEMBERED])
        if model.consumers[layer]:
            still_open.append(layer)
    return remembered
