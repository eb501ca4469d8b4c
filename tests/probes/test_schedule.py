"""Decisions of the schedule: what counts, in what measure, and that the committed CoNLL-2003 runs stay as they are."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.records import committed_sets

from probe.config import LINEAR, ProbeConfig
from probe.probes.schedule import EPOCH_UPDATES, FULL_UPDATES, WARM_UP_UPDATES, Schedule, passes


def told(schedule: Schedule, *points: tuple[float, float]) -> Schedule:
    for score, loss in points:
        assert schedule.outcome is None, "it is over"
        schedule.after_epoch(score, loss)
    return schedule


def plain(epoch_updates: int = WARM_UP_UPDATES + 1, max_epochs: int = 40, lr_patience: int = 1) -> Schedule:
    """Every epoch counts, and counts fully, unless it is a smaller one."""
    return Schedule(0.5, lr_patience, patience=3, max_epochs=max_epochs, epoch_updates=epoch_updates)


@pytest.mark.parametrize(
    ("sentences", "shown"), [(14_041, 1), (3_200, 1), (3_000, 2), (1_600, 2), (600, 6), (200, 15), (1, 100)]
)
def test_a_small_corpus_is_shown_several_times_in_an_epoch(sentences: int, shown: int):
    assert passes(sentences, 32) == shown
    updates = shown * -(-sentences // 32)
    assert updates >= EPOCH_UPDATES
    assert shown == 1 or updates < 2 * EPOCH_UPDATES


@pytest.mark.parametrize(("sentences", "rate"), [(14_041, 0.5), (3_200, 0.5), (3_168, 1), (200, 1)])
def test_the_rate_falls_only_where_a_pass_is_an_epoch(sentences: int, rate: float):
    probe = ProbeConfig(2, 64, 0.5, 1e-3, 0.5, 32, 60, 3, 1.0, "float32")
    schedule = Schedule.of(probe, sentences)
    warm = WARM_UP_UPDATES // schedule.epoch_updates
    assert told(schedule, (0.5, 1), *[(0.4, 1)] * (warm + schedule.full - 1)).rate == rate


@pytest.mark.parametrize("folder", committed_sets(), ids=lambda folder: folder.name)
def test_committed_runs_ended_where_the_schedule_ends_them(
    folder: Path,
):
    paths = list((folder / "records").glob("*.json"))
    assert paths
    for path in paths:
        record = json.loads(path.read_text())
        if record["identity"].get("condition") or not record["curve"]:
            continue  # fine-tuning goes by another schedule, the majority tag by none
        probe, sentences = record["config"]["probe"], record["data"]["splits"]["train"]["sentences"]
        updates = -(-sentences // probe["batch_size"])
        assert "outcome" in record or updates >= FULL_UPDATES, path.name
        if probe["lr_decay"] == LINEAR:
            assert len(record["curve"]) == probe["max_epochs"], path.name
            continue
        assert passes(sentences, probe["batch_size"]) == 1
        schedule = Schedule(probe["lr_decay"], 1, probe["patience"], probe["max_epochs"], updates)
        scores = [point["dev"] for point in record["curve"]]
        best = no_better = 0
        for epoch, score in enumerate(scores, 1):
            assert schedule.outcome is None, path.name
            loss = record["curve"][epoch - 1].get("dev_loss", 1.0)
            schedule.after_epoch(score, loss)
            best = epoch if score > max(scores[: epoch - 1], default=0) else best
            no_better += score <= max(scores[: epoch - 1], default=-1)
            assert "outcome" in record or schedule.rate == 0.5**no_better, path.name
        assert best == record["best_epoch"], path.name
        ended = "hit_epoch_limit" if len(scores) == probe["max_epochs"] else "converged"
        assert schedule.outcome == ended == record.get("outcome", ended), path.name


def test_full_epochs_without_a_better_score_halve_the_rate_or_end():
    schedule = told(plain(), (0.5, 1), (0.6, 1), (0.6, 1))
    assert (schedule.rate, schedule.outcome) == (0.5, None), "as good as the best is no better"
    told(schedule, (0.7, 1), (0.6, 1), (0.6, 1))
    assert (schedule.rate, schedule.outcome) == (0.125, None)
    assert told(schedule, (0.65, 1)).outcome == "converged"


def test_smaller_epochs_count_together():
    schedule = told(plain(epoch_updates=114), *[(0.1 + epoch / 100, 1) for epoch in range(9)])
    assert told(schedule, *[(0.1, 1)] * 2).rate == 1, "228 updates without progress"
    assert told(schedule, (0.1, 1)).rate == 0.5
    told(schedule, *[(0.1, 1)] * 5)
    assert (schedule.rate, schedule.outcome) == (0.25, None)
    assert told(schedule, (0.1, 1)).outcome == "converged"


@pytest.mark.parametrize(("epoch_updates", "epochs"), [(439, 2), (157, 4), (114, 6)])
def test_the_rate_may_fall_later_than_after_each_full_epoch(epoch_updates: int, epochs: int):
    schedule = plain(epoch_updates=epoch_updates, lr_patience=2)
    told(schedule, *[(0.1 + epoch / 100, 1) for epoch in range(9)])
    assert told(schedule, *[(0.1, 1)] * (epochs - 1)).rate == 1
    assert told(schedule, (0.1, 1)).rate == 0.5
    assert told(schedule, (0.3, 1), *[(0.1, 1)] * (epochs - 1)).rate == 0.5, "progress starts the count anew"
    told(schedule, *[(0.1, 1)] * epochs)
    assert (schedule.rate, schedule.outcome) == (0.25, None)
    assert told(schedule, *[(0.1, 1)] * (schedule.most_idle - 2 * epochs + 1)).outcome == "converged"


@pytest.mark.parametrize(("sentences", "epochs"), [(14_041, 40), (9_600, 40), (5_000, 80), (3_200, 120), (600, 120)])
def test_a_training_takes_forty_full_epochs_by_default(sentences: int, epochs: int):
    probe = ProbeConfig(2, 64, 0.5, 1e-3, 0.5, 32, "auto", 3, 1.0, "float32")
    assert Schedule.of(probe, sentences).max_epochs == epochs
    assert epochs * Schedule.of(probe, sentences).epoch_updates >= 40 * FULL_UPDATES
    assert Schedule.of(replace(probe, max_epochs=7), sentences).max_epochs == 7


@pytest.mark.parametrize("epoch_updates", [50, 100, 114, 300, 439, 1000, 1001])
def test_the_shortest_training_is_that_of_scores_that_never_rise(epoch_updates: int):
    schedule = plain(epoch_updates=epoch_updates)
    epochs = 0
    while schedule.outcome is None:
        schedule.after_epoch(0.5, 1)
        epochs += 1
    assert (epochs, schedule.outcome) == (schedule.shortest, "converged")


def test_a_better_score_in_time_starts_the_count_anew():
    schedule = told(plain(epoch_updates=114), *[(0.1 + epoch / 100, 1) for epoch in range(9)])
    for better in (0.2, 0.3, 0.4):
        told(schedule, (0.1, 1), (0.1, 1), (better, 1))
    assert (schedule.rate, schedule.outcome) == (1, None)


def test_nothing_counts_in_the_first_updates():
    epochs = WARM_UP_UPDATES // FULL_UPDATES
    schedule = told(plain(epoch_updates=FULL_UPDATES), (0.3, 1), *[(0.2, 1)] * (epochs - 1))
    assert (schedule.rate, schedule.outcome) == (1, None)
    assert told(schedule, (0.2, 1)).rate == 0.5


def test_nothing_is_counted_while_scores_are_zero_and_the_loss_falls():
    schedule = told(plain(), *[(0.0, 1 - epoch / 100) for epoch in range(30)])
    assert (schedule.rate, schedule.outcome) == (1, None)
    told(schedule, (0.1, 2.0), (0.2, 3.0))
    assert (schedule.rate, schedule.outcome) == (1, None), "from the first score on the loss has no say"
    assert told(schedule, (0.2, 0.1)).rate == 0.5


def test_a_chance_score_before_a_zero_does_not_count():
    schedule = told(plain(), (0.2, 1.9), *[(0.0, 1 - epoch / 100) for epoch in range(10)])
    assert (schedule.rate, schedule.outcome) == (1, None)
    told(schedule, (0.1, 0.5), (0.15, 0.5))
    assert (schedule.rate, schedule.outcome) == (1, None)
    assert told(schedule, (0.15, 0.4)).rate == 0.5


def test_a_run_at_zero_ends_when_its_loss_stops_falling():
    schedule = told(plain(), (0.0, 1.0), (0.0, 0.9), (0.0, 0.95), (0.0, 0.91))
    assert (schedule.rate, schedule.outcome) == (1, None)
    assert told(schedule, (0.0, 0.9)).outcome == "never_learned"
    assert told(plain(max_epochs=2), (0.0, 1.0), (0.0, 0.9)).outcome == "never_learned", "the last epoch says it too"


def test_a_run_ended_by_its_last_epoch_hit_the_limit():
    assert told(plain(max_epochs=2), (0.5, 1), (0.6, 1)).outcome == "hit_epoch_limit"
    assert told(plain(max_epochs=3), (0.5, 1), (0.5, 1), (0.5, 1)).outcome == "hit_epoch_limit"
    assert told(plain(max_epochs=4), (0.5, 1), (0.5, 1), (0.5, 1), (0.5, 1)).outcome == "converged"
