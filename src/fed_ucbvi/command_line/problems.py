"""Before a run: ``fed-ucbvi environments``, ``algorithms``, ``inspect``, ``advise``, ``plan`` and ``bins``."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import fed_ucbvi
from fed_ucbvi.command_line.flags import OUTPUT, PROBLEM, algorithm_names, environment_names, pairs
from fed_ucbvi.command_line.options import JSON, REAL, LiveOptions, argument, fields, option
from fed_ucbvi.command_line.outputs import print_json, print_rows, print_table, up_and_down, warn
from fed_ucbvi.core import defaults
from fed_ucbvi.core.errors import InputError, check_choice, check_integer
from fed_ucbvi.core.parameters import parameter_help, plain_docstring, whole_number
from fed_ucbvi.run_spec import AGENTS, RunSpec

if TYPE_CHECKING:
    from fed_ucbvi.paper.forecast import Forecast, Promise
    from fed_ucbvi.problem.federation import Federation

BINS = "Bins"
SIZES = "The problem, by its sizes"
USUAL_EPS_P = 0.1
STATES = option(None, "S", "Or just sizes: states.", SIZES)
ACTIONS = option(None, "A", "Actions.", SIZES)


def environments(names: list[str] | None = argument("NAME", "Only these.", None), as_json: bool = JSON) -> None:
    """List the environments and their options, which --env-option sets."""
    from fed_ucbvi.environments import REGISTRY, find_environment

    find = (lambda name: find_environment(name).made) if names else REGISTRY.__getitem__
    _list(names, environment_names, find, as_json)


def algorithms(names: list[str] | None = argument("NAME", "Only these.", None), as_json: bool = JSON) -> None:
    """List the algorithms, their rows of the paper's Table 1 and their parameters, which --option sets."""
    from fed_ucbvi.algorithms import find_algorithm

    _list(names, algorithm_names, find_algorithm, as_json)


def describe(thing: Any) -> dict[str, Any]:
    """The first paragraph of the docstring of a callable, or of a federation as it is, and its parameters."""
    first = plain_docstring(thing).partition("\n\n")[0].replace("\n", " ")
    return {"description": first, "parameters": [parameter._asdict() for parameter in parameter_help(thing)]}


def _list(names: list[str] | None, known: Callable[[], list[str]], find: Callable[[str], Any], as_json: bool) -> None:
    """Describe those of these names, or all but those of other packages that cannot be used."""
    described = {}
    for name in names or known():
        try:
            found = find(name)
            described[name] = describe(found)
            if isinstance(found, type) and found.table is not None:  # type: ignore[attr-defined]
                described[name]["table_1"] = found.table._asdict()  # type: ignore[attr-defined]
        except InputError as error:
            if names:
                raise
            warn(str(error))
    if as_json:
        print_json(described)
        return
    for number, (name, content) in enumerate(described.items()):
        if number:
            typer.echo()
        rows = [(item["name"], str(item["default"]), item["description"]) for item in content["parameters"]]
        print_rows(f"{name}: {content['description']}", rows)
        if row := content.get("table_1"):
            agents = "for different agents" if row["heterogeneity"] else "for identical agents"
            typer.echo(f"  Table 1: {row['kind']}, {agents}; rounds {row['communication']}; regret {row['regret']}")


def inspect(
    spec: RunSpec = fields(
        "environment agents eps_p env_seed environment_options",
        eps_p={"default": f"{USUAL_EPS_P}, where the environment has it"},
    ),
    plot: Path | None = option(None, "FILE", "Draw it: .png, .svg or .pdf; replaced if it exists.", OUTPUT),
    as_json: bool = JSON,
) -> None:
    """Measure the heterogeneity of an environment's agents and what sharing one policy costs them."""
    from fed_ucbvi.charts.picture_files import check_picture
    from fed_ucbvi.engine.progress import progress_bar
    from fed_ucbvi.environments import find_environment

    if plot is not None:
        check_picture(plot)
    if spec.eps_p is None and find_environment(spec.environment or defaults.ENVIRONMENT).accepts("eps_p"):
        spec = replace(spec, eps_p=USUAL_EPS_P)
    federation = spec.make_federation()
    with progress_bar("agents") as report:
        found = fed_ucbvi.inspect_federation(federation, report=report)
    figures = found.summary()
    if plot is not None:
        from fed_ucbvi.paper.inspection_picture import plot_inspection

        plot_inspection(found, plot)
        figures["picture"] = str(plot)
    gaps = figures["l1_between_agents"]
    where = figures["eps_p_least_at"]
    price = found.price
    cost = f"{price.lower:.4g} (exact)" if price.exact else f"between {price.lower:.4g} and {price.upper:.4g}"
    rows = [
        ("eps_p", f"{found.eps_p:.4g} by construction; {found.eps_p_least:.4g} is the least that would do"),
        ("found at", f"step {where['step']}, state {where['state']}, action {where['action']} (from 0)"),
        ("eps_r", f"{found.eps_r:.4g} of the range of a reward"),
        ("between agents", f"L1 at most {gaps['worst']:.4g}, on average at most {gaps['largest_mean']:.4g}"),
        ("to the common kernel", f"L1 at most {figures['l1_to_common']:.4g}, total variation half of that"),
        ("own optimum", f"{found.own.mean():.4f}, mean over agents of their own policies' values"),
        ("one shared policy", f"{found.shared.mean():.4f}, mean over agents with the common MDP's optimal policy"),
        ("price of sharing", f"{cost}: own optima less the best policy that all can share"),
        *([("picture", str(plot))] if plot is not None else []),
    ]
    sizes = "S = {states:,}, A = {actions:,}, H = {horizon:,}".format_map(figures)
    print_table(as_json, figures, f"{figures['env']}: {figures['agents']:,} agents, {sizes}", rows)


def _federation(spec: RunSpec) -> Federation | None:
    """What --env names; None where the problem is given by its sizes."""
    if spec.environment is not None:
        return spec.make_federation()
    if spec.environment_options:
        raise InputError("--env-option needs --env.")
    return None


def advise(
    spec: RunSpec = fields("environment environment_options eps_p agents"),
    real: LiveOptions = fields(
        "live live_kwargs horizon",
        live={"help": "Or a real environment to try: a Gymnasium id, or a function of the agent's number."},
    ),
    states: int | None = STATES,
    actions: int | None = ACTIONS,
    episodes: int | None = option(None, "T", "Episodes that each agent can play, if that is given.", PROBLEM),
    stationary: bool = option(False, "", "Next states and rewards do not depend on the step, as you know.", PROBLEM),
    agent: int = option(0, "I", "Whose environment to try.", REAL),
    sample: int = option(30, "N", "Episodes with random actions in it.", REAL),
    seed: int = option(0, "N", "Of these episodes.", REAL),
    as_json: bool = JSON,
) -> None:
    """Recommend an algorithm, how it counts visits, and numbers of bins and episodes, with the reasons."""
    from fed_ucbvi.environments.gymnasium_making import make_live

    if spec.environment is not None and real.live is not None:
        raise InputError("pass either --env (tables) or --live (an environment to try).")
    if real.live is None and real.live_kwargs is not None:
        raise InputError("--live-kwargs needs --live.")
    if spec.environment is None and spec.eps_p:
        raise InputError("--eps-p needs --env.")
    federation = _federation(spec)
    M = spec.agents or AGENTS
    make = None if real.live is None else real.source().make
    tried = None if make is None else make_live(make, check_integer("agent", agent))
    try:
        advice = fed_ucbvi.choose_parameters(
            federation or tried,
            states=states,
            actions=actions,
            horizon=real.horizon,
            agents=M,
            episodes=episodes,
            stationary=stationary,
            sample_episodes=sample,
            seed=seed,
        )
    finally:
        if tried is not None:
            tried.close()
    options = " ".join(f"--option {name}={str(value).lower()}" for name, value in advice.options.items())
    rows = [
        ("run", f"--algorithm {advice.algorithm} {options}".strip()),
        ("episodes", f"{advice.episodes:,} for each agent"),
    ]
    if advice.problem.bins is not None:
        rows.append(("bins", f"{advice.problem.bins} for each continuous dimension ('fed-ucbvi bins')"))
    if advice.problem.warning is not None:
        rows.append(("warning", advice.problem.warning))
    rows += [("because" if number == 0 else "", reason) for number, reason in enumerate(advice.reasons)]
    S, A, H, M = (getattr(advice.problem, name) for name in ("states", "actions", "horizon", "agents"))
    print_table(as_json, asdict(advice), f"Advice for S = {S:,}, A = {A:,}, H = {H:,}, M = {M:,}", rows)


def plan(
    spec: RunSpec = fields("environment environment_options agents episodes eps_p"),
    states: int | None = STATES,
    actions: int | None = ACTIONS,
    horizon: int | None = option(None, "H", "Steps.", SIZES),
    eps_r: float | None = option(None, "X", "How far rewards differ; by default 0.", SIZES),
    delta: float = option(0.05, "X", "Failure probability.", PROBLEM),
    as_json: bool = JSON,
) -> None:
    """Say what the theory promises at a setting: rounds, bytes, regret, and whether to federate."""
    federation = _federation(spec)
    if federation is not None and eps_r is not None:
        raise InputError("--env brings --eps-r along; leave it out, or pass it as --env-option eps_r=X.")
    made = fed_ucbvi.plan(
        federation,
        episodes=spec.episodes,
        states=states,
        actions=actions,
        horizon=horizon,
        agents=spec.agents or AGENTS,
        eps_p=spec.eps_p or 0.0,
        eps_r=eps_r or 0.0,
        delta=delta,
    )
    title = (
        f"Fed-UCBVI with S = {made.states:,}, A = {made.actions:,}, H = {made.horizon:,}, M = {made.agents:,}, "
        f"T = {_large(made.episodes)}, eps_p = {made.eps_p:g}, eps_r = {made.eps_r:g}, delta = {made.delta:g}"
    )
    print_table(as_json, made.summary(), title, _answers(made))


def _answers(made: Forecast) -> Iterator[tuple[str, str]]:
    M = made.agents
    T = made.episodes
    bound = made.bound
    need = f"it needs N >= nu = {_large(made.nu)}, and N is at most M T = {_large(M * T)}"
    if made.global_rule_reachable:
        yield "global rule", f"can fire: {need}"
    elif made.global_rule_from is None:
        why = f"because 14 eps_p H = {14 * made.eps_p * made.horizon:.3g} >= 1"
        yield "global rule", f"can never fire, whatever T, {why}: {need}"
    else:
        yield "global rule", f"cannot fire: {need}; it could from T = {_large(made.global_rule_from)} on"
    yield "rounds", f"at most {made.rounds:,} (the paper's R_max, with log2: {made.rounds_max_log2:,.0f})"
    yield "one round", f"{up_and_down(made.one_synchronisation)}, {M:,} agents together"
    yield "all rounds", f"at most {up_and_down(made.all_rounds)}"
    yield (
        "regret",
        f"at most {_large(bound.federated)} with probability {1 - made.delta:g}: exploration "
        f"{_large(bound.exploration)}, burn-in {_large(bound.burn_in)}, heterogeneity "
        f"{_large(bound.heterogeneity)} (with the constants as printed: {_large(made.bound_paper)})",
    )
    below = "at this heterogeneity the regret bound is above it whatever T"
    if made.nontrivial_from is not None:
        below = f"the regret bound is below it from T = {_large(made.nontrivial_from)} on"
    yield "trivial bound", f"{made.trivial_formula} = {_large(made.trivial)}; {below}"
    order = f"; an order only, because it asks for {made.lower.unmet[0]}" if made.lower.unmet else ""
    hardest = f"{_large(made.lower.value)} on the hardest MDP of these sizes"
    yield "lower bound", f"{hardest}, whatever the algorithm{order}"
    yield "Fed-KL-UCBVI", _promise(made.kl, made.delta)
    yield "the same, stationary", _promise(made.kl_stationary, made.delta)
    if M == 1:
        yield "federate?", "there is one agent only"
        return
    most = made.trivial_formula
    answer = {
        "yes": "yes, its bound is lower than that of one agent alone",
        "no": "no, the bound of one agent alone is lower",
        "undecided": f"the bounds cannot tell at this T: all, also that of one agent alone, are above {most}",
    }[made.verdict]
    yield "federate?", f"{answer}, {_large(made.alone)}; what sharing costs, 'fed-ucbvi inspect' computes"
    if made.federation_wins_below is not None:
        yield "eps_p", f"at this T federation wins below eps_p = {made.federation_wins_below:.3g}"
    if made.alone_wins_from is not None and made.alone_wins_in_order is not None:
        yield "for how long?", _for_how_long(T, made.alone_wins_from, made.alone_wins_in_order)


def _promise(made: Promise, delta: float) -> str:
    rounds, bound = made
    if bound is None:
        return f"at most {rounds:,} rounds; a bound on its regret is proved for agents that are all alike"
    return (
        f"at most {rounds:,} rounds, regret at most {_large(bound.federated)} with probability {1 - 2 * delta:g}: "
        f"exploration {_large(bound.exploration)}, burn-in {_large(bound.burn_in)}"
    )


def _large(value: float) -> str:
    return f"{value:,.0f}" if value < 1e7 else f"{value:.3g}"


def _for_how_long(episodes: int, proven: int, in_order: float) -> str:
    """From which T on one agent alone is better, by the bounds with and without their constants."""
    rough = max(1, math.ceil(in_order))
    if episodes < min(proven, rough):
        conclusion = "is below both, so federate"
    elif episodes >= max(proven, rough):
        conclusion = "is above both, so let each agent learn alone"
    else:
        conclusion = "lies between, so try both"
    return (
        "in the long run one agent alone wins, because sharing a policy costs agents that differ something in every "
        f"episode, and learning costs less and less. By the bounds with their large constants it does from T = "
        f"{_large(proven)} on, by their orders (constants and logarithms left out) from T = {_large(rough)} on; "
        f"T = {_large(episodes)} {conclusion}"
    )


def bins(
    real: LiveOptions = fields("live_kwargs horizon reward_range"),
    live: str = argument(
        "ID|MODULE:FUNCTION", "The environment: a Gymnasium id, or a function of the agent's number."
    ),
    out: Path = option(..., "FILE", "Where to write the bins.", OUTPUT),
    agent: int = option(0, "I", "Whose environment to try.", REAL),
    episodes: int = option(20, "N", "Episodes with random actions.", BINS),
    bins: int = option(8, "N", "Bins of a continuous dimension.", BINS),
    bins_of: list[str] | None = option(None, "NAME=N", "Another number for one dimension; may be repeated.", BINS),
    values: int = option(5, "N", "Values of a continuous action.", BINS),
    margin: float = option(
        0.25, "X", "Widen the observed range of rewards by this part of it, on either side.", BINS
    ),
    seed: int = option(0, "N", "Of environment and actions.", BINS),
    as_json: bool = JSON,
) -> None:
    """Learn bins from a few episodes with random actions; 'serve --bins' hands them out to all nodes."""
    from fed_ucbvi.environments.finite_spaces import dimensions_of
    from fed_ucbvi.environments.gymnasium_making import make_live

    source = replace(real, live=live).source()
    env = make_live(source.make, check_integer("agent", agent))
    try:
        usual = {one.name: bins for one in dimensions_of(env.observation_space) if not one.count}
        others = {name: whole_number(name, text) for name, text in pairs("--bins-of", bins_of or ()).items()}
        for name in others:
            check_choice("continuous dimension", name, usual)
        learnt = fed_ucbvi.learn_bins(
            env,
            episodes=episodes,
            bins_per_dimension={**usual, **others},
            actions_per_dimension=values,
            horizon=real.horizon,
            reward_range=source.reward_range,
            margin=margin,
            seed=seed,
        )
    finally:
        env.close()
    learnt.save(out)
    S = learnt.states + 1
    A = learnt.number_of_actions
    H = learnt.horizon
    about = {"states": S, "actions": A, "horizon": H, "digest": learnt.digest, "file": str(out)}
    rows = [(one.name, f"{one.count} bins or values") for one in learnt.observations]
    rows += [(f"action {one.name}", f"{one.count} values") for one in learnt.actions]
    if learnt.reward_range is not None:
        low, high = learnt.reward_range
        known = "observed, with a margin; others count as the nearer end" if learnt.clips else "others are an error"
        rows.append(("rewards", f"{low:.6g} to {high:.6g} ({known})"))
    rows += [("digest", learnt.digest[:16]), ("written to", str(out))]
    title = f"{live}: S = {S:,} (the last for what terminates), A = {A:,}, H = {H:,}"
    print_table(as_json, {**json.loads(learnt.text), **about}, title, rows)
