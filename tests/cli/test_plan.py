"""polopt plan: a page, JSON, and one sentence for each mistake."""

import json
from pathlib import Path

import pytest
from command import flat, polopt

ASKED = ["plan", "--model", "Qwen2.5-7B", "--devices", "8xH100", "--method", "dapo", "--limit", 4096, "--steps", 500]


def plan(*arguments: object) -> dict:
    result = polopt(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def test_a_page_says_what_it_takes() -> None:
    result = polopt(*ASKED)
    assert result.exit_code == 0, result.output
    for word in ("7.62 billion parameters", "2 tokens sampled for one", "KV cache", "500 steps", "cost at 8 x $3"):
        assert word in flat(result.output)
    assert "It does not fit, by" in result.output
    assert "would fit: checkpointing" in result.output
    assert "Not measured here" in result.output


def test_json_says_the_same() -> None:
    found = plan(*ASKED, "--checkpointing", "--price", 2)
    assert found["fits"]
    assert found["parameters"] == 7_615_616_512
    assert found["job"]["rows"] == 1024
    assert (found["job"]["dtype"], found["job"]["compute"]) == ("float32", "bfloat16")
    assert found["job"]["demands"]["sampling_overhead"] == 2
    assert found["cost"]["likely"] == pytest.approx(found["run"]["likely"] / 3600 * 8 * 2)
    assert found["run"]["likely"] == pytest.approx(500 * found["step"]["likely"])
    assert not found["efficiency"]["measured"]
    assert found["memory"]["device"]["over"] < 0


def test_options_reach_the_plan() -> None:
    more = ["--group", 8, "--rows", 512, "--answer", 100, "--prompt", 64, "--spread", 0, "--apart", 4, "--tensor", 2]
    found = plan(*ASKED, *more, "--asynchronous", "--lora", 16, "--kept", 0.3, "--micro-rows", 2, "--epochs", 2)
    job = found["job"]
    assert (job["group"], job["rows"], job["answer"], job["prompt"], job["spread"]) == (8, 512, 100, 64, 0)
    assert (job["apart"], job["tensor"], job["asynchronous"], job["lora"], job["micro_rows"]) == (4, 2, True, 16, 2)
    assert (job["epochs"], job["demands"]["sampling_overhead"]) == (2, 4)
    assert set(found["memory"]) == {"learner", "sampler"}


def test_a_recipe_is_planned_as_it_stands(recipe: Path) -> None:
    found = plan("plan", recipe, "--devices", "H100", "--prompt", 12)
    job = found["job"]
    assert (job["steps"], job["rows"], job["limit"], job["dtype"]) == (4, 16, 4, "float32")
    assert job["shape"]["layers"] == 1
    assert plan("plan", recipe, "--method", "ppo", "--rows", 8)["job"]["demands"]["critic"]


def test_without_arguments_the_laptop_is_planned_on_this_machine() -> None:
    found = plan("plan")
    assert found == plan("plan", "laptop", "--devices", "cpu")
    assert found["job"]["device"]["kind"] == "cpu"
    assert plan("plan", "--devices", "H100")["job"]["shape"] == found["job"]["shape"]


def test_this_machine_is_calibrated() -> None:
    found = plan("plan", "--model", "gpt2", "--devices", "cpu", "--rows", 16, "--group", 4, "--limit", 32)
    assert found["efficiency"]["measured"]
    assert "calibrated on" in found["efficiency"]["story"]
    assert found["step"]["high"] > found["step"]["likely"]


def test_a_machine_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("Mine: {flops: {bfloat16: 1e14}, memory: 320e9, bandwidth: 1e12, price: 0.2}")
    found = plan("plan", "--model", "Qwen2.5-1.5B", "--devices", "2xMine", "--hardware", file)
    assert found["job"]["device"]["price"] == 0.2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--model", "Qwen2.5-8B"], "'Qwen2.5-8B' is neither a folder with a config.json nor in the table; did you"),
        (["--model", "gpt2", "--devices", "8xH10"], "did you mean 'H100'?"),
        (["--model", "gpt2", "--method", "dapoo"], "there is no method 'dapoo'; did you mean 'dapo'?"),
        (["--model", "gpt2", "--rows", "10", "--group", "4"], "plan.rows = 10 must be a multiple of the group of 4"),
        (["--model", "gpt2", "--answer", "90", "--limit", "80"], "answers of 90 tokens on average with a limit of 80"),
        (["--model", "gpt2", "--calibration", "none.json"], "no calibration"),
        (["--devices", "8xH10"], "did you mean 'H100'?"),
    ],
)
def test_a_mistake_gets_one_sentence(arguments: list[str], sentence: str) -> None:
    result = polopt("plan", *arguments)
    assert result.exit_code == 2
    assert sentence in flat(result.stderr)
    assert len(result.stderr.splitlines()) == 1
