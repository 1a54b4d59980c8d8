"""``fed-ucbvi plan``: what the theory says before any run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer

from fed_ucbvi.command_line.parameters import USUAL_AGENTS, whole_number
from fed_ucbvi.command_line.shared_options import environment_flag

if TYPE_CHECKING:
    from fed_ucbvi.analysis.planning import Plan
    from fed_ucbvi.theory.terms import RegretBound

SIZES, ENVIRONMENT = "The problem, by its sizes", "Or an environment, for its sizes, eps_p and eps_r"


def plan(
    states: Annotated[
        int | None, typer.Option(parser=whole_number, metavar="S", help="States.", rich_help_panel=SIZES)
    ] = None,
    actions: Annotated[
        int | None, typer.Option(parser=whole_number, metavar="A", help="Actions.", rich_help_panel=SIZES)
    ] = None,
    horizon: Annotated[
        int | None, typer.Option(parser=whole_number, metavar="H", help="Steps.", rich_help_panel=SIZES)
    ] = None,
    eps_r: Annotated[
        float | None,
        typer.Option(metavar="X", help="How far rewards differ; 0 if not said.", rich_help_panel=SIZES),
    ] = None,
    env: Annotated[
        str | None,
        environment_flag(rich_help_panel=ENVIRONMENT),
    ] = None,
    env_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=JSON",
            help="An option of the environment; may be repeated.",
            rich_help_panel=ENVIRONMENT,
            show_default=False,
        ),
    ] = None,
    agents: Annotated[
        int | None,
        typer.Option(
            parser=whole_number,
            metavar="M",
            help="Number of agents.",
            show_default=f"{USUAL_AGENTS}, or as many as a federation of one's own has",
        ),
    ] = None,
    episodes: Annotated[int, typer.Option(parser=whole_number, metavar="T", help="Episodes per agent.")] = 30_000,
    eps_p: Annotated[float, typer.Option(metavar="X", help="Heterogeneity of the kernels.")] = 0.0,
    delta: Annotated[float, typer.Option(metavar="X", help="Failure probability.")] = 0.05,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what the theory promises at a setting: rounds, bytes, regret, and whether to federate."""
    from fed_ucbvi.analysis.planning import plan as make_plan
    from fed_ucbvi.command_line.outputs import print_json, print_rows
    from fed_ucbvi.command_line.parameters import build_environment
    from fed_ucbvi.core.errors import InputError

    if env is not None:
        if (states, actions, horizon, eps_r) != (None, None, None, None):
            raise InputError(
                "--env brings --states, --actions, --horizon and --eps-r along; leave them out, or say "
                "them as --env-option."
            )
        federation = build_environment(env, agents, eps_p, 0, env_option or ())
        made = make_plan(federation, episodes=episodes, delta=delta)
    elif states is None or actions is None or horizon is None:
        raise InputError("plan needs the sizes, --states, --actions and --horizon, or else --env NAME.")
    elif env_option:
        raise InputError("--env-option needs --env.")
    else:
        made = make_plan(
            states=states,
            actions=actions,
            horizon=horizon,
            agents=USUAL_AGENTS if agents is None else agents,
            episodes=episodes,
            eps_p=eps_p,
            eps_r=eps_r or 0.0,
            delta=delta,
        )
    if as_json:
        print_json(made.summary())
    else:
        print_rows(*_answers(made))


def _answers(made: Plan) -> tuple[str, list[tuple[str, str]]]:
    """The plan in plain words."""
    from fed_ucbvi.core.numbers import byte_count

    M, T, bound = made.agents, made.episodes, made.bound
    title = (
        f"Fed-UCBVI with S = {made.states:,}, A = {made.actions:,}, H = {made.horizon:,}, M = {M:,}, "
        f"T = {_large(T)}, eps_p = {made.eps_p:g}, eps_r = {made.eps_r:g}, delta = {made.delta:g}"
    )
    one, every = made.one_synchronisation, made.all_rounds
    rows = [
        ("global rule", _global_rule(made)),
        ("rounds", f"at most {made.rounds:,} (the paper's R_max, with log2: {made.rounds_max_log2:,.0f})"),
        ("one round", f"{byte_count(one.bytes_up)} up, {byte_count(one.bytes_down)} down, {M:,} agents together"),
        ("all rounds", f"at most {byte_count(every.bytes_up)} up, {byte_count(every.bytes_down)} down"),
        (
            "regret",
            f"at most {_large(bound.federated)} with probability {1 - made.delta:g}: exploration "
            f"{_large(bound.exploration)}, burn-in {_large(bound.burn_in)}, heterogeneity "
            f"{_large(bound.heterogeneity)} (with the constants as printed: {_large(made.bound_paper)})",
        ),
        ("trivial bound", f"H T = {_large(made.trivial)}; {_nontrivial(made)}"),
        ("lower bound", _lower(made)),
        ("with small constants", _proved(made.proved_rounds, made.proved)),
        ("the same, stationary", _proved(made.proved_stationary_rounds, made.proved_stationary)),
        *_federate(made),
    ]
    return title, rows


def _proved(rounds: int, bound: RegretBound | None) -> str:
    """What is proved of the variant with small constants."""
    if bound is None:
        return f"at most {rounds:,} rounds; a bound on its regret is worked out for agents alike only"
    return (
        f"at most {rounds:,} rounds, regret at most {_large(bound.federated)}: exploration "
        f"{_large(bound.exploration)}, burn-in {_large(bound.burn_in)}"
    )


def _large(value: float) -> str:
    return f"{value:,.0f}" if value < 1e7 else f"{value:.3g}"


def _global_rule(made: Plan) -> str:
    need = f"it needs N >= nu = {_large(made.nu)}, and N is at most M T = {_large(made.agents * made.episodes)}"
    if made.global_rule_reachable:
        return f"can fire: {need}"
    if made.global_rule_from is None:
        return f"can never fire, whatever T, because 14 eps_p H = {14 * made.eps_p * made.horizon:.3g} >= 1: {need}"
    return f"cannot fire: {need}; it could from T = {_large(made.global_rule_from)} on"


def _nontrivial(made: Plan) -> str:
    if made.nontrivial_from is None:
        return "at this heterogeneity the regret bound is above it whatever T"
    return f"the regret bound is below it from T = {_large(made.nontrivial_from)} on"


def _lower(made: Plan) -> str:
    text = f"{_large(made.lower.value)} on the hardest MDP of these sizes, whatever the algorithm"
    return text if not made.lower.unmet else f"{text}; an order only, because it asks for {made.lower.unmet[0]}"


def _federate(made: Plan) -> list[tuple[str, str]]:
    """Yes or no, and where that changes."""
    if made.agents == 1:
        return [("federate?", "there is one agent only")]
    answer = {
        "yes": "yes, its bound is lower than that of one agent alone",
        "no": "no, the bound of one agent alone is lower",
        "undecided": "the bounds cannot tell at this T: they are above H T, also that of one agent alone",
    }[made.verdict]
    rows = [("federate?", f"{answer}, {_large(made.alone)}; what sharing costs, 'fed-ucbvi inspect' says")]
    if made.federation_wins_below is not None:
        rows.append(("eps_p", f"at this T federation wins below eps_p = {made.federation_wins_below:.3g}"))
    if made.alone_wins_from is not None and made.alone_wins_in_order is not None:
        rows.append(("for how long?", _for_how_long(made.episodes, made.alone_wins_from, made.alone_wins_in_order)))
    return rows


def _for_how_long(episodes: int, proven: int, in_order: float) -> str:
    """From which T on one agent alone is better, by the bounds with and without their constants."""
    rough = max(1, math.ceil(in_order))
    first, last = sorted((proven, rough))
    if episodes < first:
        conclusion = f"T = {_large(episodes)} is below both, so federate"
    elif episodes >= last:
        conclusion = f"T = {_large(episodes)} is above both, so let each agent learn alone"
    else:
        conclusion = f"T = {_large(episodes)} lies between, so try both"
    return (
        "in the long run one agent alone wins, because sharing a policy costs agents that differ something in every "
        f"episode, and learning costs less and less. By the bounds with their large constants it does from T = "
        f"{_large(proven)} on, by their orders (constants and logarithms left out) from T = {_large(rough)} on; "
        f"{conclusion}"
    )
