//! What holds for every document: no bytes make the reader panic, it agrees with an independent JSON parser,
//! and the class of a change agrees with the fingerprints.

use bytes::Bytes;
use cardfence::card::{Card, Change, Class, Code, Inspection, Limits, inspect, modes, version};
use cardfence::terms::Digest;
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};
use serde_json::{Map, Value, json};

/// Everything that must hold of any bytes at all.
fn examine(bytes: &[u8]) -> Inspection {
    let limits = Limits::default();
    let seen = inspect(bytes, &limits);
    assert_eq!(seen.raw_digest, Digest::of(bytes));
    match Card::check(Bytes::copy_from_slice(bytes), &limits) {
        Ok(card) => {
            assert!(seen.violations.is_empty());
            assert_eq!(seen.warnings, card.warnings());
            assert_eq!(seen.generation, Some(card.generation()));
            assert_eq!(seen.content_digest, Some(card.content_digest()));
            assert_eq!(seen.skill_fingerprint, Some(card.skill_fingerprint()));
            assert_eq!(seen.negotiation_fingerprint, Some(card.negotiation_fingerprint()));
            assert_eq!(card.bytes(), bytes);
            assert!(!card.normal().name.is_empty() && !card.normal().interfaces.is_empty());
            for (n, skill) in card.normal().skills_by_id() {
                assert_eq!(card.normal().skills[n].id, skill.id);
                assert_eq!(card.normal().skill(&skill.id).map(|found| &found.id), Some(&skill.id));
            }
            let change = Change::between(&card, &card);
            assert_eq!((change.class, change.silent, change.items), (Class::Cosmetic, false, vec![]));
        }
        Err(refused) => {
            assert!(!refused.violations.is_empty());
            assert_eq!(refused.violations, seen.violations);
            assert!(seen.negotiation_fingerprint.is_none());
        }
    }
    seen
}

/// The other parser agrees on what is JSON, and on what it says where nothing is ambiguous.
fn compare_with_serde(bytes: &[u8], seen: &Inspection) {
    let unread = |code| matches!(code, Code::Syntax | Code::NotUtf8);
    match serde_json::from_slice::<Value>(bytes) {
        Ok(value) => {
            assert!(!seen.violations.iter().any(|found| unread(found.code)), "{seen:?}");
            if let (Some(digest), Value::Object(mut members)) = (seen.content_digest, value) {
                members.remove("signatures");
                let canonical = serde_json_canonicalizer::to_vec(&members).expect("canonical");
                assert_eq!(digest, Digest::of(&canonical));
            }
        }
        // Overflow, half pairs and depth end its reading; ours goes on.
        Err(_) => assert!(!seen.violations.is_empty()),
    }
}

fn token() -> impl Strategy<Value = String> {
    let words = [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "\\",
        "null",
        "true",
        "1",
        "-",
        "0",
        ".",
        "e",
        "1e400",
        "1e-400",
        " ",
        "9007199254740993",
        "\"a\"",
        "\"a\":",
        "\"\\ud800\"",
        "\"\\ud83d\\ude00\"",
        "\"\\u0000\"",
        "\"skills\":",
        "\"url\":",
        "\"name\":",
        "\"id\":",
        "\"inputModes\":",
        "\"input_modes\":",
        "\"capabilities\":",
        "\u{1F600}",
        "\"supportedInterfaces\":",
        "\"securitySchemes\":",
        "\"security\":",
        "\"schemes\":",
        "{}",
        "[]",
        "\u{feff}",
    ];
    select(words.to_vec()).prop_map(str::to_owned)
}

fn pick<T: Clone + std::fmt::Debug + 'static>(values: &[T]) -> impl Strategy<Value = T> + use<T> {
    select(values.to_vec())
}

fn modes_list() -> impl Strategy<Value = Value> {
    let modes = ["text/plain", "Text/HTML; q=1", "image/*", "application/json"];
    prop_oneof![
        1 => Just(Value::Null),
        3 => subsequence(modes.to_vec(), 0..=4).prop_shuffle().prop_map(|modes| json!(modes)),
    ]
}

fn requirement() -> impl Strategy<Value = Value> {
    pick(&[
        json!([]),
        json!([{"k": []}]),
        json!([{"schemes": {"k": {"list": ["b", "a"]}}}]),
        json!([{"schemes": {"m": {}}}, {}]),
        json!([{"k": {"scopes": ["a"]}}]),
    ])
}

fn skill(id: &'static str) -> impl Strategy<Value = Value> {
    let members =
        (modes_list(), modes_list(), requirement(), pick(&["", "words"]), pick(&[json!([]), json!(["t"])]));
    members.prop_map(move |(input, output, security, name, tags)| {
        json!({"id": id, "inputModes": input, "outputModes": output, "security": security, "name": name, "tags": tags})
    })
}

fn endpoint() -> impl Strategy<Value = Map<String, Value>> {
    let entry = |url: &str, version: &str| json!({"url": url, "protocolBinding": "JSONRPC", "protocolVersion": version});
    let (a, b) = (entry("https://a", "0.3"), entry("https://b", "1.0"));
    let choices = [
        json!({"url": "https://a", "protocolVersion": "0.3.0"}),
        json!({"url": "https://a", "protocolVersion": "0.2.5", "additionalInterfaces": [{"url": "https://b"}]}),
        json!({"url": "https://a"}),
        json!({"supportedInterfaces": [a]}),
        json!({"supportedInterfaces": [a, b]}),
        json!({"supportedInterfaces": [b, a]}),
        json!({"supportedInterfaces": [b, a, b], "url": "https://a", "protocolVersion": "0.3"}),
        json!({"supportedInterfaces": [{"url": "https://a"}], "protocolVersions": ["1.0"]}),
    ];
    pick(&choices).prop_map(|choice| choice.as_object().cloned().unwrap_or_default())
}

fn capabilities() -> impl Strategy<Value = Value> {
    let extensions = vec![json!({"uri": "x"}), json!({"uri": "x", "required": true}), json!({"uri": "y"})];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (flags, subsequence(extensions, 0..=3)).prop_map(|((streaming, push, extended), extensions)| {
        json!({"streaming": streaming, "pushNotifications": push, "extendedAgentCard": extended, "extensions": extensions})
    })
}

/// Cards that differ in few things, so that two of them are often close.
fn card() -> impl Strategy<Value = Value> {
    let schemes = [
        Value::Null,
        json!({"k": {"type": "apiKey", "in": "header", "name": "X"}}),
        json!({"k": {"apiKeySecurityScheme": {"location": "header", "name": "X"}}}),
        json!({"m": {"mtlsSecurityScheme": {}}, "j": {"type": "jwt", "x": 1}}),
        json!({"k": {"type": "apiKey", "in": "header", "name": "X", "realm": "r"}}),
    ];
    let skills = (skill("a"), skill("b"), skill("c"), 0..=3_usize).prop_map(|(a, b, c, count)| {
        let mut skills = vec![a, b, c];
        skills.truncate(count);
        skills
    });
    let parts = (
        endpoint(),
        skills.prop_shuffle(),
        modes_list(),
        capabilities(),
        pick(&schemes),
        requirement(),
        pick(&[json!("1"), json!("2"), Value::Null]),
        pick(&["A", "B"]),
        any::<bool>(),
    );
    parts.prop_map(|(mut card, skills, defaults, capabilities, schemes, security, version, name, signed)| {
        card.insert("name".into(), json!(name));
        card.insert("version".into(), version);
        card.insert("skills".into(), json!(skills));
        card.insert("defaultInputModes".into(), defaults);
        card.insert("capabilities".into(), capabilities);
        card.insert("securitySchemes".into(), schemes);
        card.insert("security".into(), security);
        if signed {
            card.insert("signatures".into(), json!([{"protected": "p", "signature": "s"}]));
        }
        Value::Object(card)
    })
}

fn read(value: &Value) -> Card {
    let bytes = Bytes::from(value.to_string());
    Card::check(bytes, &Limits::default()).unwrap_or_else(|refused| panic!("{refused}\n{value}"))
}

/// One edit: where, how many bytes it takes away, and what it puts there.
fn edit() -> impl Strategy<Value = (Index, usize, String)> {
    (any::<Index>(), 0..4_usize, prop_oneof![token(), ".{0,3}"])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        compare_with_serde(&bytes, &examine(&bytes));
    }

    #[test]
    fn no_tokens_make_it_panic(tokens in proptest::collection::vec(token(), 0..40)) {
        let text = tokens.concat();
        compare_with_serde(text.as_bytes(), &examine(text.as_bytes()));
    }

    #[test]
    fn no_broken_card_makes_it_panic(card in card(), edits in proptest::collection::vec(edit(), 1..4)) {
        let mut bytes = card.to_string().into_bytes();
        for (place, gone, put) in edits {
            let at = place.index(bytes.len() + 1);
            let end = (at + gone).min(bytes.len());
            bytes.splice(at..end, put.into_bytes());
        }
        compare_with_serde(&bytes, &examine(&bytes));
    }

    #[test]
    fn versions_and_modes_take_any_text(a in ".{0,12}", b in "v?[0-9.+a-z-]{0,12}") {
        prop_assert_eq!(version::compare(&a, &b), version::compare(&b, &a).map(std::cmp::Ordering::reverse));
        prop_assert_eq!(version::compare(&b, &b), Some(std::cmp::Ordering::Equal));
        let normal = modes::normalise(&a);
        prop_assert_eq!(modes::normalise(&normal), normal.clone());
        prop_assert_eq!(modes::accepts(&a, &a), !normal.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_change_is_cosmetic_exactly_when_neither_fingerprint_nor_shape_moved(old in card(), new in card(), close in any::<bool>(), key in any::<Index>()) {
        // Half of the pairs differ in one member only.
        let new = match (close, old.as_object(), new.as_object()) {
            (true, Some(before), Some(after)) => {
                let (key, value) = after.iter().nth(key.index(after.len())).expect("a member");
                let mut edited = before.clone();
                edited.insert(key.clone(), value.clone());
                Value::Object(edited)
            }
            _ => new,
        };
        let (before, after) = (read(&old), read(&new));
        let change = Change::between(&before, &after);
        let moved = before.negotiation_fingerprint() != after.negotiation_fingerprint() || before.shape() != after.shape();
        prop_assert_eq!(change.class != Class::Cosmetic, moved);
        prop_assert_eq!(change.silent, moved && before.version() == after.version());
        prop_assert_eq!(change.items.is_empty(), before.bytes() == after.bytes());
        for item in &change.items {
            prop_assert!(item.kind.as_str() != "negotiation_changed", "{:?}", change);
            prop_assert!(old.pointer(&item.pointer).is_some() || new.pointer(&item.pointer).is_some(), "{:?}", item);
        }
    }

    #[test]
    fn the_order_of_skills_modes_and_members_does_not_move_a_fingerprint(card in card()) {
        let mut turned = card.clone();
        for list in ["/skills", "/defaultInputModes", "/skills/0/inputModes", "/skills/1/outputModes"] {
            if let Some(Value::Array(items)) = turned.pointer_mut(list) {
                items.reverse();
            }
        }
        let (before, after) = (read(&card), read(&turned));
        prop_assert_eq!(before.negotiation_fingerprint(), after.negotiation_fingerprint());
        prop_assert_eq!(before.skill_fingerprint(), after.skill_fingerprint());
    }
}
