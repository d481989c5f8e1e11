"""What the store knows of a machine like this: which profile may be running, and which news promise more."""

from dataclasses import replace

from vllm_advisor import __version__
from vllm_advisor.profile import Measurement, Origin, Provenance
from vllm_advisor.recommend import recommend
from vllm_advisor.store.profile_store import ProfileStore
from vllm_advisor.units import Interval
from vllm_advisor.workload import Workload
from vllm_tuner.daemon import priors
from vllm_tuner.daemon.advice import advice
from vllm_tuner.daemon.testing import MONDAY, profile
from vllm_tuner.testing import facts


def measured(speed, *, seqs=8, shipped=False, load=None):
    """A profile of a speed."""
    made = profile(seqs=seqs)
    load = load or made.measurement.workload
    figures = (("output_tok_s", Interval(speed, speed, speed)),)
    origin = Provenance(Origin.SHIPPED, "us", MONDAY) if shipped else made.provenance
    return made._replace(measurement=Measurement(figures, load), provenance=origin, id=f"{seqs}-{speed}")


def test_the_best_match_is_what_runs():
    """Exactly this machine and software, measured here; a shipped one or another driver's is not."""
    here = profile().fingerprint
    other = profile()._replace(fingerprint=here._replace(strict=(("gpus", "2xcpu"), ("vllm", "0.33.0"))))
    assert "" == priors.best_match([other, measured(1.0, shipped=True)], here)
    assert "8-2.0" == priors.best_match([other, measured(2.0)], here)


def test_the_prior_that_promises_most():
    """At the same load only, and nothing that was measured here."""
    runs = measured(100.0)
    news = [measured(110.0, seqs=4, shipped=True), measured(130.0, seqs=2, shipped=True), measured(900.0, seqs=1)]
    elsewhere = measured(500.0, seqs=3, shipped=True, load=Workload("other", 9000, 10, 4))
    found = priors.best([*news, elsewhere, runs], runs)
    assert ("2-130.0", 0.3, "profile 2-130.0 (shipped)") == (found.id, round(found.gain, 6), found.source)
    assert None is priors.best([elsewhere, runs], runs)


def test_the_store_is_asked(tmp_path):
    """Without a configured profile the best match runs, and what a shipped one promises is told."""
    with ProfileStore.open(tmp_path / "advisor.db") as store:
        runs, news = (store.save_profile(one) for one in (measured(100.0), measured(150.0, seqs=4, shipped=True)))
        number, prior = priors.look(store, profile().fingerprint, "", guess=True)
        assert (runs, news, 0.5) == (number, prior.id, round(prior.gain, 6))
        assert ("", None) == priors.look(
            store, profile().fingerprint._replace(loose=(("gpus", "other"),)), "", guess=True
        )
        assert ("", None) == priors.look(store, profile().fingerprint, "", guess=False)


def test_a_newer_advisor_promises_more(tmp_path):
    """A plan that takes one of eight clients at a time is news for it; its own best plan and its own word are not."""
    here = facts(tmp_path / "m")
    best = recommend(here, (), None, 1).plans[0].plan
    runs = measured(100.0, load=here.workload)._replace(plan=replace(best, max_num_seqs=1))
    found = advice(runs, here)

    assert found.gain > 0.1
    assert f"advisor {__version__} for vLLM 0.33.0" in found.source
    assert found == priors.better(None, found, priors.Prior("x", 0.05, "y"))
    assert None is advice(runs._replace(plan=best), here)
    assert None is advice(runs._replace(provenance=runs.provenance._replace(by=f"tuner {__version__}")), here)
