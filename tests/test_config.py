"""Every file under conf/ composes, and what cannot be is refused with a hint."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from probe.config import PRESET_GROUPS, SYNONYMS, UserError, conf_dir, setting_names
from probe.probes.selection import select
from probe.runs.config_from_record import as_overrides
from probe.scoring.tags import find_scheme
from probe.settings import config_of, configs_of


@pytest.mark.parametrize(
    ("group", "name"), [(g, f.stem) for g in PRESET_GROUPS for f in sorted((conf_dir() / g).glob("*.yaml"))]
)
def test_every_preset_gives_the_values_in_its_file(group: str, name: str):
    needed = {
        "single": ["layers.indices=[1]"],
        **{name: ["data.path=x"] for name in ("columns", "json", "sentences", "items", "ud_pos")},
        "hub": ["data.hub=some/set"],
        "vectors": ["encoder.path=x/vectors"],
    }
    config = config_of([f"{group}={name}", *needed.get(name, [])])
    chosen = asdict(getattr(config, group))
    written = OmegaConf.to_container(OmegaConf.load(conf_dir() / group / f"{name}.yaml"))
    assert isinstance(written, dict)
    plain = {str(k): v for k, v in written.items() if k != "defaults" and v != "???" and "${" not in str(v)}
    assert plain
    assert {key: chosen[key] for key in plain} == plain


@pytest.mark.parametrize("sweep", [file.stem for file in sorted((conf_dir() / "sweep").glob("*.yaml"))])
def test_every_sweep_composes_and_names_presets_that_exist(sweep: str):
    configs, is_sweep = configs_of([f"+sweep={sweep}", "seed=1"])
    assert is_sweep
    names = {cfg.layers.name for cfg in configs}
    assert all((conf_dir() / "layers" / f"{name}.yaml").is_file() for name in names - {""})


def test_each_layer_is_every_single_layer_of_the_encoder_asked_for():
    configs, _ = configs_of(["+sweep=each_layer", "encoder=minilm_l6", "seed=1"])  # the default encoder has 12
    chosen = [select(cfg.layers, 6, 8) for cfg in configs]
    assert sorted(selection.indices for selection in chosen) == [(k,) for k in range(7)]


def test_a_sweep_over_layers_must_know_their_number():
    own = ["+sweep=each_layer", "encoder=minilm_l6", "encoder.path=DIR", "seed=1"]
    with pytest.raises(UserError, match=r"encoder\.path=DIR"):  # there is no such folder
        configs_of(own)
    configs, _ = configs_of([*own, "encoder.num_layers=3"])
    assert [cfg.layers.indices for cfg in configs] == [1, 2, 3, 0]
    assert {cfg.encoder.num_layers for cfg in configs} == {3}, "a wrong number will be refused"


def test_each_layer_of_several_encoders_counts_those_of_each(tmp_path: Path):
    (tmp_path / "config.json").write_text('{"num_hidden_layers": 12}')  # as many as the preset that is not its own has
    for typed, numbers in (
        (["encoder=bert_base_cased,bert_large_cased"], [12, 24]),
        (["encoder=minilm_l6", f"encoder.path=null,{tmp_path}"], [6, 12]),
        ([f"encoder.path={tmp_path}"], [12]),
    ):
        configs, _ = configs_of(["+sweep=each_layer", *typed, "seed=1,2"])
        by_encoder: dict[tuple, list[Any]] = {}
        for cfg in configs:
            by_encoder.setdefault((cfg.encoder.name, cfg.encoder.path), []).append((cfg.seed, cfg.layers.indices))
        for asked, number in zip(by_encoder.values(), numbers, strict=True):
            assert sorted(asked) == [(seed, k) for seed in (1, 2) for k in range(number + 1)]
    (tmp_path / "config.json").write_text("[]")
    for wrong, named in ((tmp_path, r"encoder\.num_layers=N"), ("nowhere", r"encoder\.path=nowhere")):
        with pytest.raises(UserError, match=named):
            configs_of(["+sweep=each_layer", "encoder=minilm_l6", f"encoder.path=null,{wrong}"])


def test_each_job_of_a_sweep_composes_as_alone():
    same = ["probe.dropout=0.1", "layers=last", "encoder=minilm_l6", "encoder.name=mine"]
    swept = ["seed=1,2", "probe=linear,bilstm", "probe.dropout=0.2,0.3", "condition=main,random"]
    configs, _ = configs_of(["-m", *swept, *same[:1], "seed=3", *same[1:]])
    singly = [
        config_of(["seed=3", f"probe={probe}", f"condition={condition}", *same])
        for probe in ("linear", "bilstm")
        for condition in ("main", "random")
    ]
    assert [repr(cfg) for cfg in configs] == [repr(cfg) for cfg in singly]


def test_a_groups_settings_in_braces_count_in_the_order_typed():
    configs, _ = configs_of(["-m", "probe.hidden_size=64,32", "probe={hidden_size:128}"])
    assert [cfg.probe.hidden_size for cfg in configs] == [128, 128]


@pytest.mark.parametrize("how", ["condition=main,fine_tuned", "condition=fine_tuned", "probe=finetune"])
def test_a_sweeps_probe_settings_do_not_reach_fine_tuning(how: str):
    recipe = config_of(["probe=finetune"]).probe
    for sweep in ("conll2003_minilm", "tasks", "quickstart", "paper_table"):
        rows = "layers.indices=[0],[12]" if sweep == "tasks" else "layers=embeddings,last"  # two, not a dozen
        configs, _ = configs_of([f"+sweep={sweep}", rows, how, "data.path=DIR", "seed=1"])
        tuned = [cfg.probe for cfg in configs if cfg.probe.kind == "finetune"]
        assert tuned, sweep
        assert all(probe == recipe for probe in tuned), sweep
    typed, _ = configs_of(
        ["+sweep=conll2003_minilm", "layers=last", "probe=finetune", "probe.learning_rate=2e-5", "seed=1"]
    )
    assert {cfg.probe.learning_rate for cfg in typed} == {2e-5}


def test_a_sweeps_values_are_typed_not_set_in_hydra():
    with pytest.raises(UserError, match=r"probe -m seed=1,2"):
        configs_of(["-m", "hydra.sweeper.params.seed=[1,2]"])


@pytest.mark.parametrize("text", ['q"x\\"y', "\\", "/a/b\\", "/a/${x}/b", "a 'b' {c}, [d]=e", '"'])
def test_a_recorded_text_is_typed_so_it_returns(text: str):
    (typed,) = as_overrides({"data": {"name": text}})
    assert config_of([typed]).data.name == text


def test_texts_in_a_recorded_list_are_typed_so_they_return():
    (typed,) = as_overrides({"data": {"labels": ["O", "B-${oc.env:HOME}", 'I-"x"']}})
    assert config_of([typed]).data.labels == ["O", "B-${oc.env:HOME}", 'I-"x"']


def test_a_sweep_without_any_value_is_refused():
    for empty in ("seed=range(5,1)", "layers=glob(lst*)"):
        with pytest.raises(UserError, match="sweep"):
            configs_of(["-m", empty])


def test_other_files_than_a_presets_do_not_keep_its_name():
    assert config_of(["data=demo"]).data.name == "demo"
    assert config_of(["data=demo", "data.path=ELSEWHERE"]).data.name is None
    assert config_of(["data=demo", "data.path=ELSEWHERE", "data.name=mine"]).data.name == "mine"
    assert config_of(["data=conll2003", "data.path=DIR"]).data.name == "conll2003", "the original files, not the Hub's"

    assert config_of(["data.hub=tner/btc"]).data.name is None
    assert config_of(["data.hub=tner/btc", "data.name=mine"]).data.name == "mine"


def test_every_setting_is_explained_in_a_yaml_file():
    text = "\n".join(file.read_text() for file in conf_dir().rglob("*.yaml"))
    explained = set(re.findall(r"^ *(\w+):", text, re.MULTILINE))
    assert {name.rpartition(".")[2] for name in setting_names()} <= explained | {"name"}


def test_presets_name_all_labels_in_one_scheme():
    for preset, num_labels in (("wnut17", 13),):
        labels = config_of([f"data={preset}"]).data.labels
        assert labels is not None
        assert len(labels) == len(set(labels)) == num_labels
        assert find_scheme([labels], "IOB2") == "IOB2"
        kinds = {label[2:] for label in labels} - {""}
        assert set(labels) == {"O"} | {f"{prefix}-{kind}" for kind in kinds for prefix in "BI"}
    assert config_of(["data=ud_pos", "data.path=x", "data.subset=de_gsd"]).data.name == "de_gsd UPOS"


def test_a_preset_changed_by_hand_loses_its_name():
    assert config_of(["layers=last"]).layers.name == "last"
    for change in ("layers.indices=[3]", "layers.combine=sum", "layers={indices:[1]}"):
        assert config_of(["layers=last", change]).layers.name == "", change
    assert config_of(["layers=single", "layers.indices=[3]"]).layers.name == ""


@pytest.mark.parametrize(
    ("name", "indices", "combine"),
    [
        ("7", [7], "concat"),
        ("layer_4", [4], "concat"),
        ("-1", [-1], "concat"),
        ("concat_2_5_7", [2, 5, 7], "concat"),
        ("concat_5_2", [5, 2], "concat"),
        ("mix_0_1", [0, 1], "mix"),
        ("mean_1_2", [1, 2], "mean"),
        ("sum_12_11_10_9", [12, 11, 10, 9], "sum"),
    ],
)
def test_a_row_is_typed_by_its_name_or_number(name: str, indices: list[int], combine: str):
    by_name = config_of([f"layers={name}", "layers.normalize=scale"])
    typed = ["layers=single", f"layers.indices={indices}", f"layers.combine={combine}", "layers.normalize=scale"]
    assert repr(by_name) == repr(config_of(typed))
    assert select(by_name.layers, 12, 8).name == {"7": "layer_7", "-1": "layer_12"}.get(name, name)


@pytest.mark.parametrize(("num_layers", "layer"), [(12, 6), (13, 6), (1, 0)])
def test_the_middle_layer_is_half_of_them_rounded_down(num_layers: int, layer: int):
    middle = select(config_of(["layers=middle"]).layers, num_layers, 8)
    assert (middle.name, middle.indices, middle.width) == ("middle", (layer,), 8)


def test_each_layer_is_a_short_form():
    encoder = ["-m", "encoder=minilm_l6", "seed=1,2"]
    rows = {}
    for typed in (["layers=each"], ["layers=single", "layers.indices=each"], ["layers=each,majority_tag"]):
        rows[typed[0]] = [(cfg.seed, select(cfg.layers, 6, 8)) for cfg in configs_of([*encoder, *typed])[0]]
    short, long, with_another = rows.values()
    assert short == long
    assert len(short) == 14
    assert set(short) < set(with_another)
    assert {row.name for _, row in set(with_another) - set(short)} == {"majority_tag"}


def test_an_encoder_is_chosen_by_its_folder_or_its_name_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("mine", "some/model", "ä,b (c)"):
        Path(folder).mkdir(parents=True)
    for short, long in (
        (["encoder=mine"], ["encoder.path=mine"]),
        (["encoder=some/model"], ["encoder.path=some/model"]),
        (["encoder=some/modle"], ["encoder.path=some/modle"]),  # beside a folder, so it is refused when it is opened
        (["encoder=ä,b (c)"], ["encoder.path=ä,b (c)"]),
        (["encoder=./nowhere"], ["encoder.path=./nowhere"]),
        (["encoder=mine", "encoder.lower_case=false"], ["encoder.path=mine", "encoder.lower_case=false"]),
        (["encoder=owner/name"], ["encoder.name=owner/name"]),
        (["+sweep=quickstart", "encoder=mine"], ["+sweep=quickstart", "encoder.path=mine"]),
    ):
        assert repr(configs_of(short)) == repr(configs_of(long)), short
    both, _ = configs_of(["-m", "encoder=minilm_l6,mine,owner/name"])
    assert [(cfg.encoder.name, cfg.encoder.path, cfg.encoder.num_layers) for cfg in both] == [
        ("sentence-transformers/all-MiniLM-L6-v2", None, 6),
        ("mine", "mine", None),
        ("owner/name", None, None),
    ]
    assert config_of(["encoder={name:other}"]).encoder.name == "other"


def test_what_settings_are_called_elsewhere_leads_to_settings_that_exist():
    settings = {*setting_names()}
    assert {*SYNONYMS.values()} <= settings
    assert not settings & SYNONYMS.keys()


def test_names_of_rows_and_presets_are_swept_together():
    typed = ["layers=last,layer_4,concat_2_3,7", "layers.normalize=scale", "probe.hidden_size=64"]
    configs, _ = configs_of(["-m", *typed, "seed=1,2"])
    names = [(select(cfg.layers, 12, 8).name, cfg.seed) for cfg in configs]
    assert names == [(row, seed) for row in ("last", "layer_4", "concat_2_3", "layer_7") for seed in (1, 2)]
    assert {(cfg.layers.normalize, cfg.probe.hidden_size) for cfg in configs} == {("scale", 64)}
    for asked in (["layers=range(0,3)"], ["+sweep=quickstart", "layers=0,1,2", "seed=1"]):
        assert [cfg.layers.indices for cfg in configs_of(["-m", *asked])[0]] == [[0], [1], [2]]
    with pytest.raises(UserError, match=r"layers\.indices=each.*layers=layer_4"):
        configs_of(["+sweep=each_layer", "layers=layer_4", "encoder=minilm_l6"])


def test_an_encoder_in_a_folder_is_called_as_typed_or_like_the_folder(tmp_path: Path):
    (tmp_path / "link").symlink_to(tmp_path / "bert")
    for typed, name in (
        (["encoder.path=DIR/mine"], "mine"),
        (["encoder=minilm_l6", f"encoder.path={tmp_path}/link/"], "bert"),
        (["encoder.path=DIR/mine", "encoder.name=BioBERT"], "BioBERT"),
        (["encoder=minilm_l6"], "sentence-transformers/all-MiniLM-L6-v2"),
    ):
        assert config_of(typed).encoder.name == name


def test_an_encoder_named_by_hand_ignores_preset_layers():
    assert config_of(["encoder.path=/some/where"]).encoder.num_layers is None
    assert config_of(["encoder.name=other"]).encoder.num_layers is None
    assert config_of([]).encoder.num_layers == 12


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("+typo=1", r"'typo'"),
        ("+probe.hiden_size=1", r"probe\.hidden_size"),
        ("probe.hidden_size=x", r"probe\.hidden_size\b.*'x'"),
        ("probe.hidden_size=0", r"probe\.hidden_size=0\b"),
        ("probe.max_epochs=0", r"probe\.max_epochs=0\b"),
        ("probe.max_epochs=soon", r"probe\.max_epochs=soon\b.*\bauto\b"),
        ("features.batch_pieces=many", r"features\.batch_pieces=many\b.*\bauto\b"),
        ("probe.dropout=1", r"probe\.dropout=1\.0\b.*\b1\b"),
        ("probe.lr_decay=0", r"probe\.lr_decay=0\.0\b.*\b1\b"),
        ("probe.lr_decay=cosine", r"probe\.lr_decay=cosine\b.*\b1\b.*\blinear\b"),
        ("probe.lr_decay=linear", r"probe\.lr_decay=linear .*probe\.max_epochs="),
        ("probe.learning_rate=0", r"probe\.learning_rate=0\.0\b.*\b0\b"),
        ("probe.gradient_clip=inf", r"probe\.gradient_clip=inf\b"),
        ("probe.learning_rate=nan", r"probe\.learning_rate=nan\b"),
        ("features.subword=middle", r"features\.subword=.?middle.*\bfirst, last\b"),
        ("features.stride=0", r"features\.stride=0"),
        ("features.placement=disk", r"features\.placement=.?disk.*\bauto, memory, device, stream\b"),
        ("layers.combine=max", r"layers\.combine=.?max.*\bconcat, mean, mix, sum\b"),
        ("layers=single", r"layers\.indices\b"),
        ("jobs=0", r"jobs=0\b"),
        ("seed=-1", r"seed=-1\b"),
        ("seed=9223372036854775808", r"seed=9223372036854775808\b"),
        ("device=tpu", r"device=.?tpu.*\bauto, cpu, cuda\b"),
    ],
)
def test_bad_values_are_refused_with_what_is_allowed(override: str, message: str):
    with pytest.raises(UserError, match=message):
        config_of([override])


def test_the_store_lies_where_typed_else_where_the_environment_says_else_at_home(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", "/at/home")
    monkeypatch.delenv("LAYER_PROBE_CACHE", raising=False)
    assert config_of(["data=demo"]).features.cache_dir == "/at/home/.cache/layer-probe"
    monkeypatch.setenv("LAYER_PROBE_CACHE", "")
    assert config_of(["data=demo"]).features.cache_dir == "/at/home/.cache/layer-probe"
    monkeypatch.setenv("LAYER_PROBE_CACHE", "/own")
    assert config_of(["data=demo"]).features.cache_dir == "/own"
    assert config_of(["data=demo", "features.cache_dir=typed"]).features.cache_dir == "typed"


PATHS = ["a&b", "x (1)", "/data/文档", "/home/jörg/x", "a=b", "#1", "[1]", "it's", "a!b;c", "{x", 'a"b', "~", "x/[a]b"]


@pytest.mark.parametrize("path", PATHS)
def test_a_path_is_read_as_it_is_typed(path: str):
    for name in ("data.path", "data.train", "encoder.path", "results_dir", "features.cache_dir"):
        found = asdict(config_of(["data=columns", "data.path=x", "encoder.num_layers=3", f"{name}={path}"]))
        for part in name.split("."):
            found = found[part]
        expands = name in ("results_dir", "features.cache_dir")
        assert found == (str(Path(path).expanduser()) if expands else path)
    with pytest.raises(UserError):
        config_of(["data=columns", f"data.hub={path}", "data.path=x"] if path != "[1]" else ["seed=[1]"])


def test_a_path_may_be_interpolated_and_swept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("SOME_FOLDER", "/p")
    assert config_of(["results_dir=${oc.env:SOME_FOLDER}/jörg"]).results_dir == "/p/jörg"
    given = ["data.path=x", "-m", "results_dir=/p/a,b"]
    assert [cfg.results_dir for cfg in configs_of(given)[0]] == ["/p/a", "b"]
    with pytest.raises(UserError):
        configs_of(["-m", "results_dir=/p/ä,b"])
    with pytest.raises(UserError, match="~nobody_here"):
        config_of(["results_dir=~nobody_here/x"])
    (tmp_path / "ä,b").mkdir()
    assert config_of([f"results_dir={tmp_path}/ä,b"]).results_dir == f"{tmp_path}/ä,b"
