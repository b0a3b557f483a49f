//! The table of answers that every client is held to, and what it cannot say.

use serde_json::{Value, json};

use super::*;
use crate::card::Limits;

const CASES: &str = include_str!("../../../clients/cases/check.json");
const MODES: &str = include_str!("../../../clients/cases/modes.json");

fn card(document: &Value) -> Card {
    Card::check(document.to_string().into(), &Limits::default()).unwrap()
}

/// A finding in the words of the table.
fn told(finding: &Finding) -> Value {
    match finding {
        Finding::Stale(evidence) => {
            let mut told = json!({"outcome": "StaleAgentCard", "evidence": evidence.kind()});
            match evidence {
                Evidence::State { state, pattern } => {
                    (told["state"], told["pattern"]) = (json!(state), json!(pattern));
                }
                Evidence::Error { name } => told["error"] = json!(name),
                Evidence::ErrorText { pattern } => told["pattern"] = json!(pattern),
                Evidence::Http { status } => told["status"] = json!(status),
                Evidence::SkillNotInCard => {}
            }
            told
        }
        Finding::Drift(drift) => json!({
            "outcome": "ArtifactSchemaDrift",
            "pointer": drift.pointer,
            "found": drift.found,
            "verified": drift.verified,
        }),
        Finding::Unreadable => json!({"outcome": "Unreadable"}),
        Finding::Checked(checked) => {
            json!({"outcome": "ok", "kind": checked.kind.as_str(), "state": checked.state})
        }
    }
}

#[test]
fn every_answer_is_judged_as_the_shared_table_says() {
    let table: Value = serde_json::from_str(CASES).unwrap();
    assert_eq!(table["format"], 1);
    let (mut wrong, mut judged) = (Vec::new(), 0);
    for case in table["cases"].as_array().unwrap() {
        let card = card(&table["cards"][case["card"].as_str().unwrap()]);
        let http_status = case["http_status"].as_u64().map(|status| u16::try_from(status).unwrap());
        for (mode, strictness) in [("strict", Strictness::Strict), ("lenient", Strictness::Lenient)] {
            if case["mode"] != "both" && case["mode"] != mode {
                continue;
            }
            let skill = case["skill"].as_str().unwrap();
            let mut told = told(&judge(&card, skill, &case["response"], http_status, strictness));
            let wanted = &case["expect"];
            if wanted["outcome"] == "ok" {
                let members = told.as_object_mut().unwrap();
                members.retain(|name, _| wanted.get(name).is_some());
            }
            if told != *wanted {
                wrong.push(format!("{} ({mode}): {told} instead of {wanted}", case["name"]));
            }
            judged += 1;
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(judged >= 80, "{judged} cases");
}

#[test]
fn modes_compare_as_the_shared_table_says() {
    let table: Value = serde_json::from_str(MODES).unwrap();
    for case in table["cases"].as_array().unwrap() {
        let (card, wanted) = (case["card"].as_str().unwrap(), case["wanted"].as_str().unwrap());
        assert_eq!(modes::accepts(card, wanted), case["accepts"].as_bool().unwrap(), "{case}");
    }
}

#[test]
fn hostile_answers_are_bounded_and_never_panic() {
    let document =
        json!({"name": "A", "url": "https://a.example", "skills": [{"id": "s", "outputModes": ["a/b"]}]});
    let card = card(&document);
    let mut deep = json!("unknown skill");
    for _ in 0..100 {
        deep = json!([deep]);
    }
    let wide: Vec<Value> = (0..100_000).map(|_| json!("x")).collect();
    let long = "é".repeat(TEXT_MAX);
    for said in
        [json!({"parts": [{"data": deep}]}), json!({"parts": [{"data": wide}]}), json!(long), json!(7)]
    {
        let answer = json!({"status": {"state": "failed", "message": said}});
        let found = judge(&card, "s", &answer, None, Strictness::Strict);
        assert!(matches!(found, Finding::Checked(_)), "{found:?}");
    }
    for answer in
        [json!({"error": {"code": 1.5}}), json!({"error": 3}), json!({"task": []}), json!("x"), json!(null)]
    {
        for strictness in [Strictness::Strict, Strictness::Lenient] {
            judge(&card, "s", &answer, Some(999), strictness);
        }
    }
}
