"""Lists the kinds of probes: the settings of each, what fits it, and its name in tables.

A new kind of network is an entry in `PROBES`, a case of `networks.network_of` and a file in `conf/probe/` of the same
name. One that learns in another manner has its own module with `fit`. Modules are named here and imported when they are
used, because tables use this file and import no torch.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from probe.conditions import CONDITIONS, conditions_of
from probe.config import LINEAR, PRECISIONS, UNUSED_SETTINGS, Config, LayersConfig, ProbeConfig, UserError, one_of
from probe.data.tasks import task_of
from probe.system.bfloat16 import SLOW, Kernels, kernels_for, resolve_precision

if TYPE_CHECKING:
    from probe.probes.fitting import Fit, FitInputs

# The settings of every network that is trained on stored features.
OF_NETWORKS = (
    "dropout learning_rate lr_decay lr_patience batch_size max_epochs patience gradient_clip precision".split()
)


@dataclass(frozen=True)
class ProbeKind:
    """Describes a kind of probe.

    settings: those of `ProbeConfig` that it has. caption: its name in the caption of a table, given its recorded
    settings. fitted_by: the module whose `fit` takes `FitInputs` and a function that logs, and returns a `Fit`.
    prepare: resets those settings of a run's config that do not apply to this kind, or refuses them. reads_features:
    whether it learns from the feature store, by a `Schedule`, and has weights to save. is_trained: whether it learns in
    epochs. layers_note: added to the layers when a run or a check names them. note: shown under a table that has such a
    row.
    """

    settings: tuple[str, ...]
    caption: Callable[[Mapping[str, Any]], str]
    fitted_by: str = "probe.probes.frozen"
    prepare: Callable[[Config], Config] = lambda cfg: cfg
    reads_features: bool = True
    is_trained: bool = True
    layers_note: str = ""
    note: str | None = None

    def fit(self, inputs: FitInputs, log: Callable[[str], None]) -> Fit:
        return importlib.import_module(self.fitted_by).fit(inputs, log)


def _bilstm_caption(probe: Mapping[str, Any]) -> str:
    if not probe["num_layers"]:
        return "linear probe"
    return f"BiLSTM {probe['num_layers']} x {probe['hidden_size']} per direction"


def _prepare_finetune(cfg: Config) -> Config:
    """Chooses the last layer, so that a sweep over layers makes one run. Refuses settings that do not apply."""
    defaults = {"placement": "auto", "layers": None, "batch_pieces": "auto"}
    refused = [f"features.{name}" for name, value in defaults.items() if getattr(cfg.features, name) != value]
    refused += dict.fromkeys(CONDITIONS[name].setting for name in conditions_of(cfg) if name != "fine_tuned")
    refused += ["save_probe"] * cfg.save_probe
    refused += [] if task_of(cfg.data).is_per_word else [f"data.task={cfg.data.task}"]
    if refused:
        raise UserError(
            f"probe=finetune cannot be combined with {', '.join(refused)}: it reads no stored features, trains the "
            "pretrained encoder on the whole text, and saves no weights. Omit these settings."
        )
    return replace(cfg, layers=LayersConfig([-1], "concat", "last"))


def _prepare_majority_tag(cfg: Config) -> Config:
    """Resets what the baseline does not depend on, so that a sweep over it makes one run.

    The probe's other settings stay, because they say which table the row is in.
    """
    name, data = cfg.layers.name or cfg.layers.combine, cfg.data
    if cfg.layers.combine not in task_of(data).baselines:
        raise UserError(f"layers={name} is no baseline of data.task={data.task}. Type layers=majority_tag.")
    if data.id_field is not None and data.id_field == data.words_field:
        raise UserError(
            f"layers={name} reads texts, and data.words_field={data.words_field} has ids. Name the field with the "
            "text, data.words_field=text, or type layers=each."
        )
    return replace(
        _prepare_patience(cfg),
        seed=0,
        layers=replace(cfg.layers, normalize=None),
        encoder=replace(cfg.encoder, weights="pretrained", weights_seed=0),
    )


def _prepare_network(cfg: Config) -> Config:
    if cfg.probe.num_layers and not task_of(cfg.data).is_per_word:
        raise UserError(
            f"data.task={cfg.data.task} has one label per {task_of(cfg.data).unit}, and an LSTM reads words. "
            "Type probe=linear or probe=mlp."
        )
    return _prepare_patience(cfg)


def _prepare_patience(cfg: Config) -> Config:
    """Resets both patience settings if the rate falls linearly, as they then have no effect."""
    if cfg.probe.lr_decay != LINEAR:
        return cfg
    return replace(cfg, probe=replace(cfg.probe, patience=1, lr_patience=1))


PROBES: dict[str, ProbeKind] = {
    "bilstm": ProbeKind(  # without LSTM layers: the linear probe
        settings=("num_layers", "hidden_size", *OF_NETWORKS), caption=_bilstm_caption, prepare=_prepare_network
    ),
    "mlp": ProbeKind(
        settings=("hidden_size", *OF_NETWORKS),
        caption=lambda probe: f"MLP {probe['hidden_size']}",
        prepare=_prepare_network,
    ),
    "finetune": ProbeKind(
        settings=("dropout", "learning_rate", "batch_size", "max_epochs", "gradient_clip", "precision"),
        caption=lambda probe: "fine-tuned with a linear layer",
        fitted_by="probe.probes.finetune",
        prepare=_prepare_finetune,
        reads_features=False,
        layers_note=", with all layers below it trained; layers= is ignored",
    ),
    "majority_tag": ProbeKind(  # typed as layers=majority_tag, so it has no settings
        settings=(),
        caption=lambda probe: "majority tag",
        fitted_by="probe.probes.majority_tag",
        prepare=_prepare_majority_tag,
        reads_features=False,
        is_trained=False,
        note="majority_tag: no encoder, no probe: each word or longest known mention gets train's most frequent tag. "
        "Of sentences: naive Bayes on their words. length: the number of characters.",
    ),
}


def kind_of(cfg: Config) -> ProbeKind:
    """Returns the kind of probe of a config's run.

    A row without layers is the majority-tag baseline of a table, unless the table's probe itself reads no layers.
    """
    kind = PROBES[cfg.probe.kind]
    return PROBES["majority_tag"] if kind.reads_features and cfg.layers.is_empty else kind


def check_probe(probe: ProbeConfig) -> None:
    """Raises UserError for a kind that does not exist, and for settings that a kind does not have."""
    one_of("probe.kind", probe.kind, tuple(name for name, kind in PROBES.items() if kind.settings))
    kind = PROBES[probe.kind]
    for name, unused in UNUSED_SETTINGS.items():
        if name not in kind.settings and getattr(probe, name) != unused:
            raise UserError(
                f"probe.{name}={getattr(probe, name)} is not a setting of a probe of the kind {probe.kind}. Omit it "
                f"and type probe={probe.kind}, which has all settings of this kind."
            )
    one_of("probe.precision", probe.precision, PRECISIONS if kind.reads_features else (*PRECISIONS, "auto"))
    if probe.max_epochs == "auto" and not kind.reads_features:
        raise UserError(f"probe.max_epochs=auto is not possible for probe={probe.kind}: type a number.")


def recorded_settings(probe: ProbeConfig) -> dict[str, Any]:
    """Returns a probe as keys and records hold it: its kind, and the settings of its kind."""
    return {"kind": probe.kind} | {name: getattr(probe, name) for name in PROBES[probe.kind].settings}


def recorded_probe(settings: Mapping[str, Any]) -> ProbeConfig:
    """Returns a probe's settings from its record. Raises TypeError for unknown settings."""
    return ProbeConfig(**UNUSED_SETTINGS | dict(settings))


def describe_probe(settings: Mapping[str, Any]) -> str:
    caption = PROBES[settings["kind"]].caption(settings)
    precision = settings.get("precision", "float32")
    return caption + (f" in {precision}" if precision not in ("float32", "auto") else "")


def bfloat16_kernels(cfg: Config, device: str) -> Kernels | None:
    """Returns the kernels that compute a run's bfloat16 on this machine; None if everything is float32.

    Features that were extracted on another machine may be computed by others.
    """
    kind = kind_of(cfg)
    precision = resolve_precision(cfg.probe.precision, device)
    if not kind.is_trained or "bfloat16" not in (precision, cfg.features.precision if kind.reads_features else None):
        return None
    return kernels_for(device, lstm=precision == "bfloat16" and cfg.probe.num_layers > 0)


def slow_bfloat16(cfg: Config, device: str) -> str | None:
    """Returns the warning that a run's bfloat16 will be slow on this machine, if so."""
    return SLOW[device] if bfloat16_kernels(cfg, device) == "pytorch" else None
