//! What a change between two cards is called, how grave it is, and where it lies.

use bytes::Bytes;
use cardfence::card::{Card, Change, Class, Limits};

fn card(text: &str) -> Card {
    let bytes = Bytes::copy_from_slice(text.as_bytes());
    Card::check(bytes, &Limits::default()).unwrap_or_else(|refused| panic!("{refused}\n{text}"))
}

const BASE: &str = r#"{"name":"A","version":"1","supportedInterfaces":[{"url":"https://a","protocolBinding":"JSONRPC","protocolVersion":"1.0"},{"url":"https://b","protocolBinding":"GRPC","protocolVersion":"1.0"},{"url":"https://c","protocolBinding":"HTTP+JSON","protocolVersion":"1.0"}],"capabilities":{"streaming":true,"extensions":[{"uri":"x"},{"uri":"y","required":true}]},"securitySchemes":{"k/1":{"apiKeySecurityScheme":{"location":"header","name":"X"}}},"securityRequirements":[{"schemes":{"k/1":{"list":[]}}}],"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],"skills":[{"id":"s","name":"S","tags":["t"],"outputModes":["text/plain","text/html"]},{"id":"r"}]}"#;

/// Each edit, and what it comes to: class, then kind, pointer and subject of each item.
#[test]
fn every_edit_has_its_items() {
    for (from, to, class, items) in [
        (r#",{"id":"r"}"#, "", Class::Breaking, "skill_removed /skills/1 r"),
        (r#"{"id":"r"}"#, r#"{"id":"r"},{"id":"q"}"#, Class::Additive, "skill_added /skills/2 q"),
        (r#""id":"r""#, r#""id":"q""#, Class::Breaking, "skill_removed /skills/1 r, skill_added /skills/1 q"),
        (r#","text/html"]"#, "]", Class::Breaking, "output_mode_removed /skills/0/outputModes text/html"),
        (
            r#""text/html"]"#,
            r#""text/html","image/png"]"#,
            Class::Additive,
            "output_mode_added /skills/0/outputModes image/png",
        ),
        (
            r#""defaultInputModes":["text/plain"]"#,
            r#""defaultInputModes":["text/plain","a/b"]"#,
            Class::Additive,
            "input_mode_added /defaultInputModes a/b",
        ),
        (
            r#"{"id":"r"}"#,
            r#"{"id":"r","inputModes":["a/b"]}"#,
            Class::Breaking,
            "input_mode_removed /defaultInputModes text/plain, input_mode_added /skills/1/inputModes a/b",
        ),
        (r#""streaming":true,"#, "", Class::Breaking, "streaming_withdrawn /capabilities/streaming "),
        (
            r#""streaming":true"#,
            r#""streaming":true,"push_notifications":true"#,
            Class::Additive,
            "push_notifications_added /capabilities/push_notifications ",
        ),
        (
            r#""streaming":true"#,
            r#""streaming":true,"extendedAgentCard":true"#,
            Class::Additive,
            "extended_card_added /capabilities/extendedAgentCard ",
        ),
        (r#"{"uri":"x"},"#, "", Class::Breaking, "extension_removed /capabilities/extensions/0 x"),
        (
            r#"{"uri":"x"}"#,
            r#"{"uri":"w"},{"uri":"x"}"#,
            Class::Additive,
            "extension_added /capabilities/extensions/0 w",
        ),
        (
            r#"{"uri":"x"}"#,
            r#"{"uri":"x","required":true}"#,
            Class::Breaking,
            "extension_required /capabilities/extensions/0 x",
        ),
        (
            r#"{"uri":"x"}"#,
            r#"{"uri":"x"},{"uri":"z","required":true}"#,
            Class::Breaking,
            "extension_required /capabilities/extensions/1 z",
        ),
        (r#","required":true"#, "", Class::Breaking, "extension_relaxed /capabilities/extensions/1 y"),
        (
            r#",{"url":"https://c","protocolBinding":"HTTP+JSON","protocolVersion":"1.0"}"#,
            "",
            Class::Breaking,
            "interface_removed /supportedInterfaces/2 https://c",
        ),
        (
            r#"{"url":"https://c""#,
            r#"{"url":"https://d","protocolBinding":"GRPC","protocolVersion":"1.0"},{"url":"https://c""#,
            Class::Additive,
            "interface_added /supportedInterfaces/2 https://d",
        ),
        (
            r#""url":"https://a""#,
            r#""url":"https://z""#,
            Class::Breaking,
            "interface_removed /supportedInterfaces/0 https://a, interface_added /supportedInterfaces/0 https://z, preferred_interface_changed /supportedInterfaces/0 https://z",
        ),
        (
            r#"{"url":"https://b","protocolBinding":"GRPC","protocolVersion":"1.0"},{"url":"https://c","protocolBinding":"HTTP+JSON","protocolVersion":"1.0"}"#,
            r#"{"url":"https://c","protocolBinding":"HTTP+JSON","protocolVersion":"1.0"},{"url":"https://b","protocolBinding":"GRPC","protocolVersion":"1.0"}"#,
            Class::Breaking,
            "interfaces_reordered /supportedInterfaces/0 ",
        ),
        (
            r#""location":"header""#,
            r#""location":"query""#,
            Class::Breaking,
            "security_scheme_changed /securitySchemes/k~11 k/1",
        ),
        (
            r#""securitySchemes":{"#,
            r#""securitySchemes":{"m":{"mtlsSecurityScheme":{}},"#,
            Class::Breaking,
            "security_scheme_added /securitySchemes/m m",
        ),
        (
            r#""k/1":{"list":[]}"#,
            r#""k/1":{"list":["a"]}"#,
            Class::Breaking,
            "security_changed /securityRequirements ",
        ),
        (
            r#""id":"r""#,
            r#""id":"r","securityRequirements":[{}]"#,
            Class::Breaking,
            "skill_security_changed /skills/1 r",
        ),
        (
            r#""name":"A""#,
            r#""name":"A","url":"https://a","protocolVersion":"1.0""#,
            Class::Additive,
            "shape_widened  superset",
        ),
        (r#""name":"A""#, r#""name":"B""#, Class::Cosmetic, "text_changed /name name"),
        (r#""version":"1""#, r#""version":"2""#, Class::Cosmetic, "version_changed /version 2"),
        (r#""version":"1","#, "", Class::Cosmetic, "version_changed /version "),
        (r#""name":"S""#, r#""name":"T""#, Class::Cosmetic, "text_changed /skills/0/name name"),
        (r#""tags":["t"]"#, r#""tags":[]"#, Class::Cosmetic, "tags_changed /skills/0/tags s"),
        (
            r#""name":"A""#,
            r#""name":"A","signatures":[]"#,
            Class::Cosmetic,
            "signatures_changed /signatures ",
        ),
        (r#""name":"A""#, r#""name":"A","x-note":1"#, Class::Cosmetic, "content_changed  "),
        (r#""name":"A""#, r#""name" : "A""#, Class::Cosmetic, "formatting_changed  "),
        (r#""name":"A""#, r#""name":"A""#, Class::Cosmetic, ""),
    ] {
        assert_eq!(BASE.matches(from).count(), 1, "{from}");
        let (before, after) = (card(BASE), card(&BASE.replace(from, to)));
        let change = Change::between(&before, &after);
        let told: Vec<_> = change
            .items
            .iter()
            .map(|item| format!("{} {} {}", item.kind, item.pointer, item.subject))
            .collect();
        assert_eq!((change.class, told.join(", ").as_str()), (class, items), "{from} -> {to}");
        assert_eq!(change.silent, class != Class::Cosmetic, "{from} -> {to}");
    }
}

#[test]
fn a_version_bump_is_no_silence() {
    let (before, after) = (
        card(BASE),
        card(&BASE.replace(r#""version":"1""#, r#""version":"2""#).replace(r#",{"id":"r"}"#, "")),
    );
    let change = Change::between(&before, &after);
    assert_eq!((change.class, change.silent), (Class::Breaking, false));
}

#[test]
fn a_shape_that_is_not_widened_is_broken() {
    let v0 = card(r#"{"name":"A","version":"1","url":"https://a","protocolVersion":"0.3.0"}"#);
    let v1 = card(
        r#"{"name":"A","version":"1","supportedInterfaces":[{"url":"https://a","protocolBinding":"JSONRPC","protocolVersion":"0.3"}]}"#,
    );
    assert_eq!(v0.negotiation_fingerprint(), v1.negotiation_fingerprint());
    let change = Change::between(&v0, &v1);
    assert_eq!((change.class, change.silent), (Class::Breaking, true));
    assert_eq!(change.items[0].kind.as_str(), "shape_changed");
}

#[test]
fn retirement_is_breaking_and_never_silent() {
    let change = Change::retirement();
    assert_eq!((change.class, change.silent), (Class::Breaking, false));
    assert_eq!(change.items[0].kind.as_str(), "agent_retired");
}

#[test]
fn the_seeds_silent_mutation_is_told() {
    let vectors = include_str!("fixtures/fingerprints.jsonl");
    let cards: Vec<_> = vectors
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("a vector")["card"].to_string())
        .map(|text| card(&text))
        .collect();
    let change = Change::between(&cards[0], &cards[1]);
    assert_eq!((change.class, change.silent), (Class::Breaking, true));
    for before in &cards {
        for after in &cards {
            let moved = before.negotiation_fingerprint() != after.negotiation_fingerprint()
                || before.shape() != after.shape();
            assert_eq!(Change::between(before, after).class != Class::Cosmetic, moved);
        }
    }
}

/// `count` things that `one` makes, joined.
fn many(count: usize, one: impl Fn(usize) -> String) -> String {
    (0..count).map(one).collect::<Vec<_>>().join(",")
}

fn text_of(change: &Change) -> usize {
    change.items.iter().map(|item| item.pointer.len() + item.subject.len()).sum()
}

#[test]
fn a_change_is_bounded_and_its_class_is_not() {
    let of = |skills: String| {
        card(&format!(r#"{{"name":"A","version":"1","url":"https://a","skills":[{skills}]}}"#))
    };
    let skill = |n: usize, modes: &str| format!(r#"{{"id":"s{n}","inputModes":[{modes}]}}"#);
    let few = |n: usize| skill(n, r#""z/z","a/a""#);
    let wide = of(many(500, |n| skill(n, &format!(r#""z/z",{}"#, many(20, |m| format!("\"m/{m}\""))))));
    let narrow = of(many(500, few));

    // Each of the 500 skills loses 20 modes and gains one: the count ends the list.
    let change = Change::between(&wide, &narrow);
    assert_eq!((change.class, change.silent, change.items.len()), (Class::Breaking, true, 1_001));
    let last = change.items.last().expect("items");
    assert_eq!((last.kind.as_str(), last.class), ("more_changes", Class::Breaking));

    // A thousand additions fill the list; the one loss is beyond it and still decides.
    let (before, after) = (of(few(0)), of(many(1_000, |n| format!(r#"{{"id":"t{n}"}}"#))));
    let exact = Change::between(&of(String::new()), &after);
    assert_eq!((exact.class, exact.items.len()), (Class::Additive, 1_000));
    assert!(exact.items.iter().all(|item| item.kind.as_str() == "skill_added"));
    assert_eq!(Change::between(&before, &after).class, Class::Breaking);
    let stream = |on: bool, skills: String| {
        card(&format!(
            r#"{{"name":"A","version":"1","url":"https://a","capabilities":{{"streaming":{on}}},"skills":[{skills}]}}"#
        ))
    };
    let change = Change::between(
        &stream(true, String::new()),
        &stream(false, many(1_000, |n| format!(r#"{{"id":"t{n}"}}"#))),
    );
    assert_eq!((change.class, change.silent, change.items.len()), (Class::Breaking, true, 1_001));
    assert_eq!(change.items[1_000].class, Class::Breaking);
}

#[test]
fn the_text_of_a_change_is_bounded() {
    let of = |skills: String| {
        card(&format!(r#"{{"name":"A","version":"1","url":"https://a","skills":[{skills}]}}"#))
    };
    let long = "ü".repeat(200);
    let change = Change::between(&of(String::new()), &of(many(500, |n| format!(r#"{{"id":"{long}{n}"}}"#))));
    assert_eq!(change.class, Class::Additive);
    assert!(text_of(&change) <= 64 * 1024 && text_of(&change) > 63 * 1024, "{}", text_of(&change));
    let (last, listed) = change.items.split_last().expect("items");
    assert_eq!((last.kind.as_str(), last.class), ("more_changes", Class::Additive));
    // 253 bytes have room for 126 characters of two.
    assert!(listed.iter().all(|item| item.subject == format!("{}…", "ü".repeat(126))));

    let scheme = |name: &str| {
        card(&format!(
            r#"{{"name":"A","url":"https://a","securitySchemes":{{"{name}":{{"type":"mutualTLS"}}}}}}"#
        ))
    };
    let change = Change::between(&scheme("k"), &scheme(&"/".repeat(300)));
    let added = change.items.last().expect("items");
    assert_eq!((added.kind.as_str(), added.pointer.as_str()), ("security_scheme_added", "/securitySchemes"));
}
