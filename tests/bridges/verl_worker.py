"""Processes of verl's own actor on CPU: its worker, its FSDP2 engine on gloo, its trainer's functions, our loss.

    verl_worker.py FOLDER WORLD MICRO

FOLDER holds `model`, `batch.pt` and a YAML for each method; what each method's gradient is goes to FOLDER/WORLD-MICRO.
MICRO 0 is micro-batches of at most 20 tokens, of whatever number of rows.
"""

from __future__ import annotations

import functools
import sys
import types
import warnings
from pathlib import Path

sys.modules["trl"] = None  # type: ignore[assignment]  # verl 0.9 asks a newer TRL for a class that has gone
warnings.simplefilter("ignore")

import forked  # noqa: E402
import torch  # noqa: E402
import verl_cpu  # noqa: E402, F401  # before verl asks for its device
from hydra import compose, initialize_config_dir  # noqa: E402
from verl import DataProto  # noqa: E402
from verl.trainer.ppo import ray_trainer  # noqa: E402
from verl.utils.config import omega_conf_to_dataclass  # noqa: E402
from verl.workers import engine_workers  # noqa: E402
from verl.workers.engine import EngineRegistry  # noqa: E402
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead  # noqa: E402

OVERRIDES = [
    "+actor_rollout_ref.model.load_tokenizer=false",
    "actor_rollout_ref.model.use_remove_padding=false",
    "+actor_rollout_ref.model.override_config.attn_implementation=eager",
    "actor_rollout_ref.model.enable_gradient_checkpointing=false",
    "actor_rollout_ref.actor.strategy=fsdp2",
    "actor_rollout_ref.actor.use_torch_compile=false",
    "actor_rollout_ref.actor.fsdp_config.use_torch_compile=false",
    "actor_rollout_ref.actor.fsdp_config.dtype=float32",
    "actor_rollout_ref.actor.fsdp_config.model_dtype=fp32",
    "+actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=fp32",
    "actor_rollout_ref.actor.optim.lr=0.0",
    "algorithm.polopt.algorithm.sampling.group=4",
]


def configured(folder: Path, method: str, micro: int, rows: int):
    dynamic = str(micro == 0).lower()
    sizes = [
        f"actor_rollout_ref.actor.use_dynamic_bsz={dynamic}",
        f"actor_rollout_ref.rollout.log_prob_use_dynamic_bsz={dynamic}",
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=20",
        "actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=20",
        f"actor_rollout_ref.model.path={folder / 'model'}",
        f"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={micro}",
        f"actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu={micro}",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={rows // 4}",
        "data.max_response_length=6",
    ]
    with initialize_config_dir(str(folder), version_base=None):
        return compose(method, overrides=OVERRIDES + sizes)


def work(folder: Path, world: int, micro: int) -> None:
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    EngineRegistry.register(model_type="language_model", backend=["fsdp2"], device="cpu")(FSDPEngineWithLMHead)
    stored = torch.load(folder / "batch.pt", weights_only=False)
    methods, rows = sorted(f.stem for f in folder.glob("*.yaml")), len(stored["tensors"]["responses"])
    run = configured(folder, methods[0], micro, rows)
    worker = engine_workers.ActorRolloutRefWorker(config=run.actor_rollout_ref, role="actor")
    worker.init_model()
    engine, found = worker.actor.engine, {}

    def stepped() -> float:
        for name, parameter in engine.module.named_parameters():
            found[name] = parameter.grad.full_tensor().clone()
        return 0.0

    engine.optimizer_step = stepped
    everything = {}
    for method in methods:
        run = configured(folder, method, micro, rows)
        actor = omega_conf_to_dataclass(run.actor_rollout_ref.actor)
        worker.actor.set_loss_fn(functools.partial(engine_workers.ppo_loss, config=actor))  # as init_model does
        trainer = types.SimpleNamespace(config=run, actor_rollout_wg=worker)
        batch = DataProto.from_dict({k: v.clone() for k, v in stored["tensors"].items()}, {"uid": stored["uid"]})
        batch = ray_trainer.compute_advantage(batch, run.algorithm.adv_estimator, config=run.algorithm)
        share = batch.chunk(world)[rank]
        share.meta_info["global_token_num"] = share.batch["attention_mask"].sum(-1).tolist()
        out = ray_trainer.RayPPOTrainer._update_actor(trainer, share)
        everything[method] = {"gradient": dict(found), "metrics": out.meta_info["metrics"]}
        own = ray_trainer.RayPPOTrainer._compute_old_log_prob(trainer, share)[0].batch["old_log_probs"]
        everything[method]["logp"] = own
    if rank == 0:
        torch.save(everything, folder / f"{world}-{micro}.pt")


if __name__ == "__main__":
    torch.set_num_threads(1)
    here, processes, pieces = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    sys.exit(any(forked.run(processes, functools.partial(work, here, processes, pieces))))
