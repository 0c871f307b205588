"""The Bloom modules of the examples: what is derived of them, and what follows from that."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from annotations.dataflow import Endpoint
from annotations.file import load
from annotations.vocabulary import Label
from annotations.whitebox.bloom import read_file
from annotations.whitebox.code import Code
from blazes.analysis import analyze
from blazes.cli import main
from blazes.coordination import Plan, Strategy, plan
from blazes.verify.operators import Unknown, operator_of
from codegen.stages import BadInput, stages

EXAMPLES = Path(__file__).parents[2] / "examples"
ADS = EXAMPLES / "ad_network"
CARTS = EXAMPLES / "shopping_carts"
QUERIES = ("THRESH", "POOR", "WINDOW", "CAMPAIGN")


def written(query: str) -> dict[tuple[str, str, str], str]:
    """The annotations that the example says by hand, after the paper."""
    dataflow, _ = load(ADS / "ad_network.yaml", variants={"Report": query})
    return {
        (name, path.source, path.target): str(path.annotation)
        for name, component in dataflow.components.items()
        for path in component.paths
        if path.derived is None
    }


@pytest.mark.parametrize("query", QUERIES)
def test_the_bloom_modules_of_the_ad_network_give_the_annotations_of_the_paper(query: str) -> None:
    program = read_file(ADS / "ad_network.bloom")
    found = {
        (component, path.source, path.target): str(path.annotation)
        for component, module in (("Cache", "Cache"), ("Report", query))
        for output in program.outputs(module)
        for path in output.paths()
    }
    assert len(found) == 5
    assert found == written(query)


@pytest.mark.parametrize("query", QUERIES)
def test_bloom_and_sql_give_the_same(query: str) -> None:
    def derived(file: str) -> dict[tuple[str, str, str], str]:
        dataflow, _ = load(ADS / file, variants={"Report": query})
        code = Code(dataflow)
        return {
            (name, path.source, path.target): f"{path.annotation} {path.within.value}"
            for name, component in dataflow.components.items()
            for output in code.outputs(component)
            for path in output.paths()
        }

    found = derived("ad_network_bloom.yaml")
    assert len(found) == 5
    assert found == derived("ad_network.yaml")


def planned(file: Path, **variants: str) -> Plan:
    dataflow, _ = load(file, variants=variants)
    return plan(analyze(dataflow))


@pytest.mark.parametrize("query", QUERIES)
def test_the_verdict_is_that_of_the_written_annotations(query: str) -> None:
    by_bloom = planned(ADS / "ad_network_bloom.yaml", Report=query)
    by_hand = planned(ADS / "ad_network.yaml", Report=query)
    assert by_bloom.analysis.verdict is by_hand.analysis.verdict
    assert [e.strategy for e in by_bloom.entries] == [e.strategy for e in by_hand.entries]


def test_a_cache_that_forwards_only_what_it_does_not_know_is_order_sensitive() -> None:
    [miss] = [
        output
        for output in read_file(ADS / "ad_network.bloom").outputs("SparingCache")
        if output.name == "miss"
    ]
    assert {p.source: str(p.annotation) for p in miss.paths()} == {
        "request": "OR[campaign,id,window]",
        "response": "CW",
    }


def test_the_destructive_cart_needs_an_order_on_every_action() -> None:
    for file in ("carts.yaml", "carts_sealed.yaml"):
        found = planned(CARTS / file, Cart="DESTRUCTIVE")
        assert found.analysis.verdict is Label.DIVERGE
        assert {(e.path.source, str(e.path.annotation), e.strategy) for e in found.entries} == {
            ("action_msg", "OW[*]", Strategy.ORDER),
            ("checkout_msg", "OW[*]", Strategy.ORDER),
        }


def test_the_disorderly_cart_is_confluent_until_the_checkout() -> None:
    found = planned(CARTS / "carts.yaml", Cart="DISORDERLY")
    paths = {p.source: str(p.annotation) for p in found.analysis.dataflow.components["Cart"].paths}
    assert paths == {"action_msg": "CW", "checkout_msg": "OR[session]"}
    assert found.analysis.verdict is Label.INST
    [entry] = found.entries
    assert entry.path.source == "checkout_msg"


def test_a_session_that_says_what_was_its_last_action_needs_no_order() -> None:
    found = planned(CARTS / "carts_sealed.yaml", Cart="DISORDERLY")
    assert found.analysis.verdict is Label.ASYNC
    assert [e.strategy for e in found.entries] == [Strategy.SEAL]


def test_what_derive_prints_of_a_bloom_file_is_the_components_of_a_dataflow_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["derive", str(CARTS / "carts.bloom"), "DisorderlyCart"]) == 0
    text = capsys.readouterr().out
    assert yaml.safe_load(text) == {
        "components": {
            "DisorderlyCart": {
                "annotation": [
                    {"from": "action_msg", "to": "response_msg", "label": "CW"},
                    {
                        "from": "checkout_msg",
                        "to": "response_msg",
                        "label": "OR",
                        "subscript": ["session"],
                    },
                ]
            }
        }
    }
    assert "# rows are kept in the table action_log (line 63)" in text


def test_derive_of_a_bloom_file_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(CARTS / "carts.bloom")
    assert main(["derive", file, "KeyValueStore", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {(e["path"]["from"], e["annotation"], e["within"]) for e in found} == {
        ("kvget", "OR[key]", "sequence"),
        ("kvput", "OW[key]", "sequence"),
    }
    assert any("carts.bloom:23:5: of the rows of each key" in e for e in found[0]["evidence"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("Disorderly",), "there is no module Disorderly; did you mean DisorderlyCart?"),
        (("--write",), "--write is for dataflow files"),
    ],
)
def test_what_derive_cannot_do_with_a_bloom_file(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["derive", str(CARTS / "carts.bloom"), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_written_annotation_is_held_against_the_rules(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "carts.bloom").write_bytes((CARTS / "carts.bloom").read_bytes())
    file = tmp_path / "claims.yaml"
    file.write_text(
        "components:\n  Cart:\n    bloom: carts.bloom#DisorderlyCart\n    annotation:\n"
        "      - {from: action_msg, to: response_msg, label: CW}\n"
        "      - {from: checkout_msg, to: response_msg, label: CR}\n"
        "streams:\n  actions: {to: Cart.action_msg}\n  checkouts: {to: Cart.checkout_msg}\n"
        "  responses: {from: Cart.response_msg}\n",
        encoding="utf-8",
    )
    assert main(["check", str(file), "--strict"]) == 1
    told = capsys.readouterr().out
    assert "claims.yaml:6:9: BLZ084 Cart checkout_msg->response_msg is written CR" in told
    assert "OR[session]" in told


def test_rules_cannot_be_put_to_the_test_by_running_them() -> None:
    dataflow, _ = load(CARTS / "carts.yaml", variants={"Cart": "DISORDERLY"})
    with pytest.raises(Unknown, match="Bloom rules are analysed and not executed"):
        operator_of(dataflow, Endpoint("Cart", "response_msg"), {})


def test_a_component_of_rules_is_analysed_and_not_compiled() -> None:
    found = planned(CARTS / "carts_sealed.yaml", Cart="DISORDERLY")
    with pytest.raises(BadInput) as refused:
        stages(found)
    assert "BLZ505" in {each.code.id for each in refused.value.diagnostics}
