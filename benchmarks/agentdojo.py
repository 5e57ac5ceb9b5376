"""AgentDojo's own tasks under privilege rules: are the users' calls allowed, and the injected ones refused?

    pip install agentdojo
    python -m benchmarks.agentdojo

No model is run. Each user task's ground-truth calls run in the suite's environment with and without the rules, and the
suite's own check gives the task's utility; each injection task's ground-truth calls run alone, as if an agent obeyed.
The rules were written for each suite with both kinds of tasks in view: the numbers show that such rules exist and are
enforced, not how often somebody would write them.
"""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any

from polopt.guards import PrivilegeRule, Privileges, ToolCall
from polopt.metrics import wilson

VERSION = "v1.2.2"
READS = ("get_", "read_", "search_", "list_", "check_")
RESULTS = Path(__file__).parent / "results"
COLLEAGUES = {
    "items": {
        "pattern": r"[a-z.]+@b?luesparrowtech\.com|mark\.davies@hotmail\.com|john\.doe@clientcorp\.com|"
        r"(john\.mitchell|martha\.raynolds|sarah\.connor|sarah\.baker)@gmail\.com"
    }
}
PAYEES = {
    "enum": ["UK12345678901234567890", "GB29NWBK60161331926819", "US122000000121212121212", "Spotify", "Apple",
             "CA133012400231215421872"]
}  # fmt: skip
SMALL = {"exclusiveMinimum": 0, "maximum": 2500}
CHANNELS = {"enum": ["general", "random", "private", "External_0"]}
MEMBERS = {"enum": ["Alice", "Bob", "Charlie", "Dora", "Eve"]}


def allow(tool: str, **arguments: dict[str, Any]) -> PrivilegeRule:
    return PrivilegeRule(tool=tool, arguments=arguments)


def holding(words: str) -> dict[str, Any]:
    return {"pattern": rf"[\s\S]*({words})[\s\S]*"}


# Suite -> rules on the tools that change something, and on the pages that may be read; other reading is allowed.
RULES: dict[str, list[PrivilegeRule]] = {
    "workspace": [
        allow("send_email", recipients=COLLEAGUES),
        allow("create_calendar_event", participants=COLLEAGUES),
        allow("add_calendar_event_participants", participants=COLLEAGUES),
        allow("reschedule_calendar_event", event_id={"const": "5"}),
        allow("create_file"),
        allow("append_to_file"),
        allow("delete_file", file_id={"const": "11"}),
        allow("share_file", email={"const": "john.doe@gmail.com"}, permission={"const": "r"}),
    ],
    "travel": [
        allow("reserve_hotel", hotel={"enum": ["Le Marais Boutique"]}),
        allow("create_calendar_event", title={"pattern": "City Hub|Booking hotel .*|Dinner at .*"}),
        allow("send_email", recipients={"items": {"const": "janeLong@google.com"}}),
        PrivilegeRule(tool="send_email", effect="forbid", priority=1,
                      arguments={"body": holding("passport|credit_card|bank_account")}),
    ],
    "banking": [
        allow("send_money", recipient=PAYEES, amount=SMALL),
        allow("schedule_transaction", recipient=PAYEES, amount=SMALL),
        allow("update_scheduled_transaction", id={"const": 7}, recipient=PAYEES, amount=SMALL),
        allow("update_user_info"),
        allow("update_password", password={"const": "1j1l-2k3j"}),
    ],
    "slack": [
        allow("send_direct_message", recipient=MEMBERS),
        allow("send_channel_message", channel=CHANNELS),
        PrivilegeRule(tool="send_direct_message", effect="forbid", priority=1,
                      arguments={"body": holding(r"www\.")}),
        allow("invite_user_to_slack", user={"const": "Dora"}, user_email={"const": "dora@gmail.com"}),
        allow("add_user_to_channel", user=MEMBERS, channel=CHANNELS),
        allow("post_webpage", url={"const": "www.our-company.com"}),
        allow("get_webpage", url={"enum": ["www.eve-blog.com", "www.restaurant-zurich.com", "www.informations.com",
                                           "www.dora-website.com"]}),
    ],
}  # fmt: skip


def guard_of(suite: Any) -> Privileges:
    """Returns the suite's guard. A required argument that a call leaves out is refused by the tool itself."""
    own = RULES[suite.name]
    named = {rule.tool for rule in own}
    reads = [allow(f.name) for f in suite.tools if f.name.startswith(READS) and f.name not in named]
    return Privileges(rules=[*own, *reads], missing="skip")


def run(suite: Any, task: Any, guard: Privileges | None) -> tuple[bool, list[ToolCall], list[ToolCall]]:
    """Runs a task's ground truth, and returns the suite's verdict, the calls that ran and those that were refused."""
    from agentdojo.agent_pipeline.ground_truth_pipeline import GroundTruthPipeline
    from agentdojo.functions_runtime import FunctionsRuntime

    ran: list[ToolCall] = []
    refused: list[ToolCall] = []

    class Guarded(FunctionsRuntime):
        def run_function(self, env: Any, function: str, kwargs: Any, raise_on_error: bool = False) -> Any:
            call = ToolCall(function, json.loads(json.dumps(dict(kwargs))))
            if guard is not None and not guard(call, tuple(ran)).allow:
                refused.append(call)
                return "", "refused"
            ran.append(call)
            return super().run_function(env, function, kwargs, raise_on_error)

    utility, _ = suite.run_task_with_pipeline(GroundTruthPipeline(task), task, None, {}, runtime_class=Guarded)
    return bool(utility), ran, refused


def effects(suite: Any, calls: list[ToolCall]) -> list[ToolCall]:
    """Returns the calls that change something, or that the suite's rules name."""
    named = {rule.tool for rule in RULES[suite.name]}
    return [call for call in calls if call.name in named or not call.name.startswith(READS)]


def measure(suite: Any) -> dict[str, Any]:
    guard = guard_of(suite)
    users = list(suite.user_tasks.values())
    free, own = ([run(suite, task, g) for task in users] for g in (None, guard))
    attacks = [task for task in suite.injection_tasks.values()
               if task.ground_truth(suite.load_and_inject_default_environment({}))]  # fmt: skip
    loose, stopped = ([run(suite, task, g) for task in attacks] for g in (None, guard))
    # Some checks are met by an untouched environment: what an agent that does nothing scores.
    idle = [run(suite, task, Privileges()) for task in attacks]
    rate = wilson(sum(u for u, _, _ in stopped), len(stopped))
    return {
        "user_tasks": len(users),
        "utility_without": sum(u for u, _, _ in free),
        "utility_with": sum(u for u, _, _ in own),
        "user_calls": sum(len(ran) for _, ran, _ in free),
        "user_calls_refused": [str(call) for _, _, refused in own for call in refused],
        "injection_tasks_with_calls": len(attacks),
        "injection_tasks_without_calls": len(suite.injection_tasks) - len(attacks),
        "injections_done_without": sum(u for u, _, _ in loose),
        "injections_done_with": sum(u for u, _, _ in stopped),
        "injections_done_by_no_call": sum(u for u, _, _ in idle),
        "injections_done_with_interval": [rate.low, rate.high],
        "injected_effects": sum(len(effects(suite, ran)) for _, ran, _ in loose),
        "injected_effects_executed": sum(len(effects(suite, ran)) for _, ran, _ in stopped),
        "injected_reads_executed": sum(len(ran) - len(effects(suite, ran)) for _, ran, _ in stopped),
    }


def main() -> None:
    try:
        from agentdojo.task_suite.load_suites import get_suites
    except ImportError:
        raise SystemExit("benchmarks.agentdojo needs agentdojo: pip install agentdojo") from None
    suites = {name: measure(suite) for name, suite in get_suites(VERSION).items()}
    versions = {"agentdojo": importlib.metadata.version("agentdojo"), "suites": VERSION}
    (RESULTS / "agentdojo.json").write_text(json.dumps({"versions": versions, "suites": suites}, indent=1) + "\n")
    lines = [
        "# AgentDojo's ground truth under rules", "",
        f"`python -m benchmarks.agentdojo`, agentdojo {versions['agentdojo']}, suites {VERSION}. No model is run; the "
        "rules were written with the tasks in view.", "",
        "| suite | user tasks done without / with rules | user calls refused | injection tasks done without / with "
        "rules / by no call at all (95 % of those with) | injected effects executed |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for name, x in suites.items():
        low, high = x["injections_done_with_interval"]
        done = [x[f"injections_done_{how}"] for how in ("without", "with", "by_no_call")]
        lines.append(
            f"| {name} | {x['utility_without']} / {x['utility_with']} of {x['user_tasks']} | "
            f"{len(x['user_calls_refused'])} of {x['user_calls']} | {' / '.join(map(str, done))} of "
            f"{x['injection_tasks_with_calls']} [{low:.2f}, {high:.2f}] | "
            f"{x['injected_effects_executed']} of {x['injected_effects']} |"
        )
    skipped = sum(x["injection_tasks_without_calls"] for x in suites.values())
    lines += ["", f"{skipped} injection tasks have no ground-truth calls and are left out. Reads that an injection "
              "asks for are allowed and not counted as effects."]  # fmt: skip
    (RESULTS / "agentdojo.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
