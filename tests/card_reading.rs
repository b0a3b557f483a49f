//! Which documents are cards, of which generation, and what they say: the sentences of the contract as tables.

use bytes::Bytes;
use cardfence::card::{
    Card, Change, Class, Code, Generation, Limits, Oddity, Refused, Scheme, Shape, inspect,
};

fn check(text: &str) -> Result<Card, Refused> {
    Card::check(Bytes::copy_from_slice(text.as_bytes()), &Limits::default())
}

fn card(text: &str) -> Card {
    check(text).unwrap_or_else(|refused| panic!("{refused}\n{text}"))
}

fn violations(text: &str) -> Vec<(&'static str, String)> {
    let refused = check(text).expect_err(text);
    refused.violations.into_iter().map(|found| (found.code.as_str(), found.pointer)).collect()
}

fn warnings(card: &Card) -> Vec<(Oddity, &str)> {
    card.warnings().iter().map(|warning| (warning.code, warning.pointer.as_str())).collect()
}

const V0_1: &str = r#"{"name":"A","url":"https://a.example.com","version":"1","capabilities":{},"authentication":{"schemes":["bearer"]},"skills":[{"id":"s","name":"S"}]}"#;
const V0_2: &str = r#"{"name":"A","description":"d","url":"https://a.example.com","version":"1","capabilities":{"streaming":true},"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],"securitySchemes":{"k":{"type":"apiKey","in":"header","name":"X"}},"security":[{"k":[]}],"skills":[{"id":"s","name":"S","description":"d","tags":["t"]}]}"#;
const V0_3: &str = r#"{"protocolVersion":"0.3.0","name":"A","description":"d","url":"https://a.example.com/rpc","preferredTransport":"JSONRPC","additionalInterfaces":[{"url":"https://a.example.com/v1","transport":"HTTP+JSON"}],"version":"1","capabilities":{"pushNotifications":false},"supportsAuthenticatedExtendedCard":true,"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],"skills":[{"id":"s","name":"S","description":"d","tags":["t"]}]}"#;
const V1_0: &str = r#"{"name":"A","description":"d","supportedInterfaces":[{"url":"https://a.example.com/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],"version":"1","capabilities":{"extendedAgentCard":true},"securitySchemes":{"k":{"apiKeySecurityScheme":{"location":"header","name":"X"}}},"securityRequirements":[{"schemes":{"k":{"list":[]}}}],"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],"skills":[{"id":"s","name":"S","description":"d","tags":["t"]}]}"#;
const SUPERSET: &str = r#"{"name":"n","description":"d","supportedInterfaces":[{"url":"https://x/a","protocolBinding":"JSONRPC","protocolVersion":"1.0"},{"url":"https://x/a","protocolBinding":"JSONRPC","protocolVersion":"0.3"}],"version":"1","capabilities":{},"defaultInputModes":[],"defaultOutputModes":[],"preferredTransport":"JSONRPC","protocolVersion":"0.3","skills":[],"url":"https://x/a"}"#;

#[test]
fn minimal_bodies_of_every_generation_are_accepted_without_a_warning() {
    for (text, generation, shape, spoken, interfaces) in [
        (V0_1, Generation::V0_1, Shape::V0, "0.1", 1),
        (V0_2, Generation::V0_2, Shape::V0, "0.2", 1),
        (V0_3, Generation::V0_3, Shape::V0, "0.3", 2),
        (V1_0, Generation::V1_0, Shape::V1, "1.0", 1),
        (SUPERSET, Generation::Superset, Shape::Superset, "1.0 0.3", 2),
    ] {
        let card = card(text);
        assert_eq!((card.generation(), card.shape()), (generation, shape), "{text}");
        assert_eq!(card.normal().spoken_versions().join(" "), spoken, "{text}");
        assert_eq!(card.normal().interfaces.len(), interfaces, "{text}");
        assert_eq!(warnings(&card), [], "{text}");
        assert_eq!(card.bytes(), text.as_bytes());
        let seen = inspect(text.as_bytes(), &Limits::default());
        assert_eq!(seen.generation, Some(generation));
        assert_eq!(seen.negotiation_fingerprint, Some(card.negotiation_fingerprint()));
        assert_eq!(seen.skill_fingerprint, Some(card.skill_fingerprint()));
        assert_eq!(seen.content_digest, Some(card.content_digest()));
        assert_eq!(seen.raw_digest, card.raw_digest());
    }
}

#[test]
fn generations_are_told_apart_by_members() {
    for (members, generation) in [
        (r#""url":"https://a""#, "v0.1"),
        (r#""url":"https://a","authentication":{"schemes":["bearer"]},"security":[]"#, "v0.1"),
        (r#""url":"https://a","description":"d","defaultInputModes":[]"#, "v0.2"),
        (r#""url":"https://a","description":"d""#, "v0.1"),
        (r#""url":"https://a","iconUrl":"i""#, "v0.2"),
        (r#""url":"https://a","preferredTransport":"GRPC""#, "v0.2"),
        (r#""url":"https://a","signatures":[]"#, "v0.3"),
        (r#""url":"https://a","protocolVersion":"0.2.5""#, "v0.2"),
        (r#""url":"https://a","protocolVersion":"0.2""#, "v0.2"),
        (r#""url":"https://a","protocolVersion":"0.2.6","signatures":[]"#, "v0.3"),
        (r#""url":"https://a","protocolVersion":"0.2.9""#, "v0.3"),
        (r#""url":"https://a","protocol_version":"0.3.0""#, "v0.3"),
        (r#""url":"https://a","protocolVersion":"0.10""#, "v0.3"),
        (r#""url":"https://a","protocolVersion":"1.0""#, "v0.3-shape-claims-1.x"),
        (r#""url":"https://a","protocolVersion":"2""#, "v0.3-shape-claims-1.x"),
        (r#""url":"https://a","protocolVersion":"latest""#, "v0.1"),
        (r#""url":"https://a","supportedInterfaces":[]"#, "v0.1"),
        (r#""supportedInterfaces":[{"url":"https://a"}]"#, "v1.0"),
        (r#""supported_interfaces":[{"url":"https://a"}]"#, "v1.0"),
        (r#""supportedInterfaces":[{"url":"https://a"}],"protocolVersion":"1.0""#, "v1.0"),
        (r#""supportedInterfaces":[{"url":"https://a"}],"url":null"#, "v1.0"),
        (r#""supportedInterfaces":[{"url":"https://a"}],"protocolVersions":["1.0"]"#, "v1.0-dev"),
        (
            r#""supportedInterfaces":[{"url":"https://a"}],"url":"https://a","protocolVersions":["1.0"]"#,
            "superset",
        ),
        (r#""supportedInterfaces":[{"url":"https://a"}],"preferredTransport":"JSONRPC""#, "superset"),
        (
            r#""supportedInterfaces":[{"url":"https://a"}],"additionalInterfaces":[{"url":"https://b"}]"#,
            "superset",
        ),
    ] {
        assert_eq!(
            card(&format!(r#"{{"name":"A",{members}}}"#)).generation().as_str(),
            generation,
            "{members}"
        );
    }
}

#[test]
fn what_a_card_speaks_is_a_fact_of_its_own() {
    for (members, spoken) in [
        (r#""url":"https://a","protocolVersion":"1.0.0""#, "1.0"),
        (r#""url":"https://a","protocolVersion":"0.2.9""#, "0.2"),
        (r#""supportedInterfaces":[{"url":"https://a","protocolVersion":"0.3"}]"#, "0.3"),
        (r#""supportedInterfaces":[{"url":"https://a"}]"#, ""),
        (r#""supportedInterfaces":[{"url":"https://a"}],"protocolVersion":"1.0""#, "1.0"),
        (r#""supportedInterfaces":[{"url":"https://a"}],"protocolVersions":["1.0","0.3"]"#, "1.0"),
        (
            r#""supportedInterfaces":[{"url":"https://a","protocolVersion":"1.0.0"},{"url":"b","protocolVersion":"0.3.0"}]"#,
            "1.0 0.3",
        ),
        (r#""supportedInterfaces":[{"url":"https://a","protocolVersion":"next"}]"#, "next"),
    ] {
        let card = card(&format!(r#"{{"name":"A",{members}}}"#));
        assert_eq!(card.normal().spoken_versions().join(" "), spoken, "{members}");
    }
}

/// Everything that makes a document no card: its members after `{"name":"A",`, or the whole of it.
#[test]
fn malformed_documents_are_refused_each_for_its_reason() {
    for (members, expected) in [
        (r#""x":1,"x":2,"url":"u""#, vec![("duplicate_key", "/x")]),
        (r#""url":"u","skills":[{"id":"s","id":"t"}]"#, vec![("duplicate_key", "/skills/0/id")]),
        (r#""url":"u","x":[{"y":{"a\/b":1,"a\u002fb":1}}]"#, vec![("duplicate_key", "/x/0/y/a~1b")]),
        (r#""url":"u","iconUrl":"i","icon_url":"i""#, vec![("alias_conflict", "/icon_url")]),
        (
            r#""url":"u","skills":[{"id":"s","input_modes":null,"inputModes":[]}]"#,
            vec![("alias_conflict", "/skills/0/input_modes")],
        ),
        (
            r#""url":"u","capabilities":{"push_notifications":true,"pushNotifications":true}"#,
            vec![("alias_conflict", "/capabilities/push_notifications")],
        ),
        (
            r#""url":"u","securitySchemes":{"k":{"type":"oauth2","flows":{"implicit":{"token_url":"","tokenUrl":""}}}}"#,
            vec![("alias_conflict", "/securitySchemes/k/flows/implicit/token_url")],
        ),
        (r#""url":"u","x":"\ud83d""#, vec![("lone_surrogate", "/x")]),
        (r#""url":"u","x":9007199254740993"#, vec![("integer_out_of_range", "/x")]),
        (r#""url":"u","x":-9007199254740992"#, vec![("integer_out_of_range", "/x")]),
        (
            r#""url":"u","capabilities":{"extensions":[{"uri":"e","params":{"n":1e309}}]}"#,
            vec![("number_overflow", "/capabilities/extensions/0/params/n")],
        ),
        (r#""url":"u","x":[0,1e-999]"#, vec![("number_underflow", "/x/1")]),
        (r#""description":"d""#, vec![("endpoint_missing", "/url")]),
        (r#""url":"""#, vec![("endpoint_missing", "/url")]),
        (r#""url":"  ","additionalInterfaces":[{"url":"https://b"}]"#, vec![("endpoint_missing", "/url")]),
        (r#""url":null"#, vec![("endpoint_missing", "/url")]),
        (r#""supportedInterfaces":[]"#, vec![("endpoint_missing", "/url")]),
        (
            r#""supportedInterfaces":[{"url":""},{"protocolBinding":"GRPC"}]"#,
            vec![("endpoint_missing", "/supportedInterfaces")],
        ),
        (r#""url":7"#, vec![("wrong_type", "/url")]),
        (r#""supportedInterfaces":{"url":"u"}"#, vec![("wrong_type", "/supportedInterfaces")]),
        (r#""supportedInterfaces":[{"url":"u"},"v"]"#, vec![("wrong_type", "/supportedInterfaces/1")]),
        (
            r#""supportedInterfaces":[{"url":"u","protocolVersion":1.0}]"#,
            vec![("wrong_type", "/supportedInterfaces/0/protocolVersion")],
        ),
        (
            r#""supportedInterfaces":[{"url":"u","tenant":[]}]"#,
            vec![("wrong_type", "/supportedInterfaces/0/tenant")],
        ),
        (r#""url":"u","protocolVersion":0.3"#, vec![("wrong_type", "/protocolVersion")]),
        (r#""url":"u","preferredTransport":["JSONRPC"]"#, vec![("wrong_type", "/preferredTransport")]),
        (
            r#""url":"u","additionalInterfaces":["https://b"]"#,
            vec![("wrong_type", "/additionalInterfaces/0")],
        ),
        (r#""url":"u","version":1"#, vec![("wrong_type", "/version")]),
        (r#""url":"u","skills":"all""#, vec![("wrong_type", "/skills")]),
        (r#""url":"u","skills":["s"]"#, vec![("wrong_type", "/skills/0")]),
        (r#""url":"u","skills":[{"id":1}]"#, vec![("wrong_type", "/skills/0/id")]),
        (
            r#""url":"u","skills":[{"id":"s","inputModes":"text"}]"#,
            vec![("wrong_type", "/skills/0/inputModes")],
        ),
        (
            r#""url":"u","skills":[{"id":"s","output_modes":[1]}]"#,
            vec![("wrong_type", "/skills/0/output_modes/0")],
        ),
        (r#""url":"u","defaultInputModes":{}"#, vec![("wrong_type", "/defaultInputModes")]),
        (r#""url":"u","capabilities":["chat"]"#, vec![("wrong_type", "/capabilities")]),
        (r#""url":"u","capabilities":{"streaming":"yes"}"#, vec![("wrong_type", "/capabilities/streaming")]),
        (
            r#""url":"u","capabilities":{"extensions":[{"uri":"e","required":1}]}"#,
            vec![("wrong_type", "/capabilities/extensions/0/required")],
        ),
        (
            r#""url":"u","supportsAuthenticatedExtendedCard":"true""#,
            vec![("wrong_type", "/supportsAuthenticatedExtendedCard")],
        ),
        (r#""url":"u","securitySchemes":[]"#, vec![("wrong_type", "/securitySchemes")]),
        (r#""url":"u","securitySchemes":{"k":"apiKey"}"#, vec![("wrong_type", "/securitySchemes/k")]),
        (r#""url":"u","security":{"k":[]}"#, vec![("wrong_type", "/security")]),
        (r#""url":"u","security":[{"k":"all"}]"#, vec![("wrong_type", "/security/0/k")]),
        (
            r#""url":"u","securityRequirements":[{"schemes":{"k":{"list":[1]}}}]"#,
            vec![("wrong_type", "/securityRequirements/0/schemes/k/list/0")],
        ),
        (r#""url":"u","skills":[{}]"#, vec![("skill_id_missing", "/skills/0")]),
        (
            r#""url":"u","skills":[{"id":""},{"id":null,"name":"n"}]"#,
            vec![("skill_id_missing", "/skills/0"), ("skill_id_missing", "/skills/1")],
        ),
        (
            r#""url":"u","skills":[{"id":"s"},{"id":"t"},{"id":"s"}]"#,
            vec![("skill_id_duplicate", "/skills/2/id")],
        ),
    ] {
        let found = violations(&format!(r#"{{"name":"A",{members}}}"#));
        let found: Vec<_> = found.iter().map(|(code, pointer)| (*code, pointer.as_str())).collect();
        assert_eq!(found, expected, "{members}");
    }
    for (text, code, pointer) in [
        ("[]", "not_an_object", ""),
        ("\"card\"", "not_an_object", ""),
        ("null", "not_an_object", ""),
        ("", "syntax", ""),
        ("{\"name\":\"A\",}", "syntax", ""),
        ("{\"name\":\"A\"} {}", "syntax", ""),
        ("\u{feff}{}", "syntax", ""),
        (r#"{"url":"u"}"#, "name_missing", "/name"),
        (r#"{"url":"u","name":""}"#, "name_missing", "/name"),
        (r#"{"url":"u","name":null}"#, "name_missing", "/name"),
        (r#"{"url":"u","name":["A"]}"#, "wrong_type", "/name"),
    ] {
        assert_eq!(violations(text), [(code, pointer.to_owned())], "{text}");
    }
    let refused =
        Card::check(Bytes::from_static(b"{\"name\":\"\xff\"}"), &Limits::default()).expect_err("bytes");
    assert_eq!(refused.violations[0].code, Code::NotUtf8);
}

#[test]
fn all_violations_come_at_once() {
    let text = r#"{"name":"","x":1e999,"x":0,"skills":[{},{"id":"s"},{"id":"s"}],"version":2}"#;
    let codes: Vec<_> = violations(text).into_iter().map(|(code, _)| code).collect();
    assert_eq!(
        codes,
        [
            "number_overflow",
            "duplicate_key",
            "name_missing",
            "wrong_type",
            "endpoint_missing",
            "skill_id_missing",
            "skill_id_duplicate"
        ]
    );
    let shown = check(text).expect_err("violations").to_string();
    assert!(
        shown.starts_with("not a usable agent card: number_overflow at `/x`: the number `1e999` "),
        "{shown}"
    );
}

#[test]
fn limits_are_inclusive() {
    let skills = |count: usize| {
        let skills: Vec<_> = (0..count).map(|n| format!(r#"{{"id":"{n}"}}"#)).collect();
        format!(r#"{{"name":"A","url":"u","skills":[{}]}}"#, skills.join(","))
    };
    card(&skills(1_000));
    assert_eq!(violations(&skills(1_001)), [("too_many_skills", "/skills".to_owned())]);

    let nested = |levels: usize| {
        format!(r#"{{"name":"A","url":"u","x":{}{}}}"#, "[".repeat(levels - 1), "]".repeat(levels - 1))
    };
    card(&nested(64));
    assert_eq!(violations(&nested(65)), [("too_deep", format!("/x{}", "/0".repeat(63)))]);

    let sized = |bytes: usize| {
        let frame = r#"{"name":"A","url":"u","x":""}"#;
        frame.replace("\"\"", &format!("\"{}\"", "x".repeat(bytes - frame.len())))
    };
    card(&sized(256 * 1024));
    let refused = check(&sized(256 * 1024 + 1)).expect_err("too large");
    assert!(refused.is_too_large());
    assert_eq!(refused.violations.len(), 1);
    let seen = inspect(sized(256 * 1024 + 1).as_bytes(), &Limits::default());
    assert_eq!(seen.generation, Some(Generation::V0_1));
    assert!(seen.content_digest.is_some() && seen.negotiation_fingerprint.is_some());
}

#[test]
fn oddities_are_accepted_with_a_warning_that_names_the_place() {
    for (members, expected) in [
        (
            r#""url":"https://a","default_input_modes":["text/plain"]"#,
            vec![(Oddity::SnakeCaseName, "/default_input_modes")],
        ),
        (
            r#""url":"https://a","skills":[{"id":"s","input_modes":["a"]}]"#,
            vec![(Oddity::SnakeCaseName, "/skills/0/input_modes")],
        ),
        (r#""url":"https://a","skills":null"#, vec![(Oddity::NullMember, "/skills")]),
        (r#""url":"https://a","x":null"#, vec![]),
        (
            r#""url":"https://a","capabilities":{"streaming":null}"#,
            vec![(Oddity::NullMember, "/capabilities/streaming")],
        ),
        (r#""url":"https://a","description":5"#, vec![(Oddity::UnexpectedType, "/description")]),
        (r#""url":"https://a","provider":"me""#, vec![(Oddity::UnexpectedType, "/provider")]),
        (
            r#""url":"https://a","skills":[{"id":"s","tags":"t"}]"#,
            vec![(Oddity::UnexpectedType, "/skills/0/tags")],
        ),
        (r#""url":"/a2a""#, vec![(Oddity::UrlRelative, "/url")]),
        (r#""url":"mcp:a""#, vec![(Oddity::UrlNotHttp, "/url")]),
        (r#""url":"HTTPS://a""#, vec![]),
        (r#""url":"a:50051","preferredTransport":"GRPC""#, vec![]),
        (
            r#""url":"https://a","protocolVersion":"1.0""#,
            vec![(Oddity::ClaimsLaterVersion, "/protocolVersion")],
        ),
        (
            r#""url":"https://a","protocolVersion":"x""#,
            vec![(Oddity::ProtocolVersionUnreadable, "/protocolVersion")],
        ),
        (
            r#""url":"https://a","capabilities":{"extendedAgentCard":true}"#,
            vec![(Oddity::LaterMember, "/capabilities/extendedAgentCard")],
        ),
        (
            r#""url":"https://a","capabilities":{"extensions":[{}]}"#,
            vec![(Oddity::ExtensionUriMissing, "/capabilities/extensions/0")],
        ),
        (
            r#""url":"https://a","securitySchemes":{"k":{"type":"jwt"}}"#,
            vec![(Oddity::SchemeUnknown, "/securitySchemes/k")],
        ),
        (
            r#""url":"https://a","securitySchemes":{"k":{"mtlsSecurityScheme":{}}}"#,
            vec![(Oddity::MixedSecurityShape, "/securitySchemes/k")],
        ),
        (
            r#""url":"https://a","securityRequirements":[{"schemes":{"k":{"list":[]}}}]"#,
            vec![
                (Oddity::LaterMember, "/securityRequirements"),
                (Oddity::MixedSecurityShape, "/securityRequirements/0"),
            ],
        ),
    ] {
        let card = card(&format!(r#"{{"name":"A","version":"1",{members}}}"#));
        assert_eq!(warnings(&card), expected, "{members}");
    }
    let v1 = r#""version":"1","supportedInterfaces":[{"url":"https://a","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]"#;
    for (members, expected) in [
        (r#""security":[{"k":[]}]"#, vec![(Oddity::LegacyMember, "/security")]),
        (r#""protocolVersion":"1.0""#, vec![(Oddity::LegacyMember, "/protocolVersion")]),
        (
            r#""capabilities":{"stateTransitionHistory":true}"#,
            vec![(Oddity::LegacyMember, "/capabilities/stateTransitionHistory")],
        ),
        (
            r#""securityRequirements":[{"k":[]}]"#,
            vec![(Oddity::MixedSecurityShape, "/securityRequirements/0")],
        ),
        (r#""securityRequirements":[{}]"#, vec![]),
        (
            r#""securitySchemes":{"k":{"type":"mutualTLS"}}"#,
            vec![(Oddity::MixedSecurityShape, "/securitySchemes/k")],
        ),
        (
            r#""securityRequirements":[{"schemes":{"k":{"list":[]}}}],"security":[]"#,
            vec![(Oddity::LegacyMember, "/security"), (Oddity::SecurityDisagrees, "")],
        ),
    ] {
        let card = card(&format!(r#"{{"name":"A",{v1},{members}}}"#));
        assert_eq!(warnings(&card), expected, "{members}");
    }
    let bare = card(r#"{"name":"A","supportedInterfaces":[{"url":"https://a"},{"url":""}]}"#);
    assert_eq!(
        warnings(&bare),
        [
            (Oddity::VersionMissing, "/version"),
            (Oddity::BindingMissing, "/supportedInterfaces/0"),
            (Oddity::ProtocolVersionMissing, "/supportedInterfaces/0"),
            (Oddity::UrlMissing, "/supportedInterfaces/1"),
        ]
    );
}

#[test]
fn effective_modes_are_the_skills_own_or_the_defaults() {
    let card = card(
        r#"{"name":"A","url":"https://a","defaultInputModes":["Text/Plain; charset=utf-8","text/plain","image/png"],
            "skills":[{"id":"none"},{"id":"empty","inputModes":[],"outputModes":null},
                      {"id":"own","inputModes":["TEXT/markdown"],"outputModes":["a/b","a/b;q=1"]}]}"#,
    );
    let modes = |id: &str| {
        let skill = card.normal().skill(id).expect(id);
        (skill.effective_input.join(" "), skill.effective_output.join(" "), skill.declared_input.is_some())
    };
    assert_eq!(modes("none"), ("text/plain image/png".into(), String::new(), false));
    assert_eq!(modes("empty"), ("text/plain image/png".into(), String::new(), false));
    assert_eq!(modes("own"), ("text/markdown".into(), "a/b".into(), true));
    assert!(card.normal().skill("other").is_none());
}

/// One agent, written as v0.3 and as v1.0.
const TWINS: [&str; 2] = [
    r#"{"protocolVersion":"0.3.0","name":"A","url":"https://a/rpc","version":"1",
        "additionalInterfaces":[{"url":"https://a/rpc","transport":"JSONRPC"},{"url":"https://a/v1","transport":"HTTP+JSON"}],
        "capabilities":{"streaming":true,"extensions":[{"uri":"z"},{"uri":"e","required":true,"params":{}}]},
        "supportsAuthenticatedExtendedCard":true,
        "securitySchemes":{
          "k":{"type":"apiKey","in":"header","name":"X","description":"old words"},
          "h":{"type":"http","scheme":"bearer","bearerFormat":"JWT"},
          "o":{"type":"oauth2","oauth2MetadataUrl":"https://m","flows":{"authorizationCode":{"authorizationUrl":"https://z","tokenUrl":"https://t","scopes":{"w":"write","r":"read"}}}},
          "i":{"type":"openIdConnect","openIdConnectUrl":"https://i"},
          "m":{"type":"mutualTLS"}},
        "security":[{"o":["w","r"],"k":[]},{"m":[]}],
        "defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],
        "skills":[{"id":"s","security":[{"i":["openid"]}],"inputModes":["b","a"]},{"id":"r"}]}"#,
    r#"{"name":"A","version":"2","description":"other words",
        "supportedInterfaces":[{"url":"https://a/rpc","protocolBinding":"JSONRPC","protocolVersion":"0.3"},
                               {"url":"https://a/v1","protocolBinding":"HTTP+JSON","protocolVersion":"0.3","tenant":""}],
        "capabilities":{"streaming":true,"pushNotifications":false,"extendedAgentCard":true,"extensions":[{"uri":"e","required":true},{"uri":"z","required":false}]},
        "securitySchemes":{
          "m":{"mtlsSecurityScheme":{}},
          "i":{"openIdConnectSecurityScheme":{"openIdConnectUrl":"https://i"}},
          "o":{"oauth2_security_scheme":{"oauth2_metadata_url":"https://m","flows":{"authorizationCode":{"authorizationUrl":"https://z","tokenUrl":"https://t","refreshUrl":"","scopes":{"r":"","w":""}}}}},
          "h":{"httpAuthSecurityScheme":{"scheme":"bearer","bearerFormat":"JWT"}},
          "k":{"apiKeySecurityScheme":{"location":"header","name":"X"}}},
        "securityRequirements":[{"schemes":{"k":{"list":[]},"o":{"list":["r","w"]}}},{"schemes":{"m":{}}}],
        "defaultInputModes":["TEXT/PLAIN"],"defaultOutputModes":["text/plain;charset=utf-8"],
        "skills":[{"id":"r","outputModes":["text/plain"]},{"id":"s","securityRequirements":[{"schemes":{"i":{"list":["openid"]}}}],"inputModes":["a","b"]}]}"#,
];

#[test]
fn a_v0_3_body_and_its_v1_0_twin_have_one_negotiation_fingerprint() {
    let [old, new] = TWINS.map(card);
    assert_eq!((old.generation(), new.generation()), (Generation::V0_3, Generation::V1_0));
    assert_eq!(old.negotiation_fingerprint(), new.negotiation_fingerprint());
    assert_ne!(old.content_digest(), new.content_digest());
    assert_eq!(old.normal().schemes, new.normal().schemes);
    assert_eq!(old.normal().security, new.normal().security);
    assert!(
        matches!(old.normal().scheme("k"), Some(Scheme::ApiKey { location, .. }) if &**location == "header")
    );
}

#[test]
fn the_negotiation_fingerprint_sees_what_the_skill_fingerprint_misses() {
    let base = card(TWINS[0]);
    for (from, to) in [
        (r#""defaultInputModes":["text/plain"]"#, r#""defaultInputModes":["text/html"]"#),
        ("https://a/rpc", "https://b/rpc"),
        (r#""in":"header""#, r#""in":"query""#),
        (r#""w":"write","#, ""),
        (r#"{"uri":"z"}"#, r#"{"uri":"z","required":true}"#),
        (r#""0.3.0""#, r#""0.4.0""#),
        (r#""i":["openid"]"#, r#""i":[]"#),
        (r#",{"m":[]}]"#, "]"),
    ] {
        assert!(TWINS[0].contains(from), "{from}");
        let moved = card(&TWINS[0].replace(from, to));
        assert_ne!(base.negotiation_fingerprint(), moved.negotiation_fingerprint(), "{from}");
        assert_eq!(base.skill_fingerprint(), moved.skill_fingerprint(), "{from}");
    }
}

#[test]
fn the_negotiation_fingerprint_has_a_fixed_value() {
    let material = r#"{"extended":true,"extensions":[],"interfaces":[{"binding":"JSONRPC","tenant":"","url":"https://a.example.com/rpc","version":"1.0"}],"push":false,"schemes":{"k":{"apiKeySecurityScheme":{"location":"header","name":"X"}}},"security":[{"schemes":{"k":{"list":[]}}}],"skills":[{"id":"s","in":["text/plain"],"out":["text/plain"],"security":[]}],"streaming":false,"v":1}"#;
    assert_eq!(card(V1_0).negotiation_fingerprint(), cardfence::terms::Digest::of(material.as_bytes()));
}

#[test]
fn debug_shows_no_card() {
    let shown = format!("{:?}", card(&V1_0.replace("\"d\"", "\"secret words\"")));
    assert!(shown.contains("v1.0") || shown.contains("V1_0"), "{shown}");
    assert!(!shown.contains("secret"), "{shown}");
}

#[test]
fn what_can_be_said_is_said_of_a_refused_document() {
    let seen = inspect(br#"{"name":"A","url":"https://a","skills":[{"name":"s"}]}"#, &Limits::default());
    assert_eq!(seen.generation, Some(Generation::V0_1));
    assert_eq!(seen.spoken_versions, ["0.1"]);
    assert!(seen.content_digest.is_some() && seen.skill_fingerprint.is_some());
    assert!(seen.negotiation_fingerprint.is_none());
    let seen = inspect(br#"{"name":"A","url":"https://a","x":1,"x":2}"#, &Limits::default());
    assert!(seen.content_digest.is_none() && seen.skill_fingerprint.is_none());
    let seen = inspect(b"no card", &Limits::default());
    assert_eq!((seen.generation, seen.violations[0].code), (None, Code::Syntax));
}

#[test]
fn texts_that_a_fence_reads_are_bounded() {
    let (most, over) = ("x".repeat(4_096), "x".repeat(4_097));
    for (members, pointer) in [
        (r#""url":"u","skills":[{"id":"$"}]"#, "/skills/0/id"),
        (r#""url":"u","skills":[{"id":"s","inputModes":["a","$"]}]"#, "/skills/0/inputModes/1"),
        (r#""url":"u","defaultOutputModes":["$"]"#, "/defaultOutputModes/0"),
        (r#""url":"$""#, "/url"),
        (r#""url":"u","preferredTransport":"$""#, "/preferredTransport"),
        (r#""url":"u","protocolVersion":"$""#, "/protocolVersion"),
        (
            r#""url":"u","additionalInterfaces":[{"url":"u","transport":"$"}]"#,
            "/additionalInterfaces/0/transport",
        ),
        (r#""supportedInterfaces":[{"url":"$"}]"#, "/supportedInterfaces/0/url"),
        (
            r#""supportedInterfaces":[{"url":"u","protocolBinding":"$"}]"#,
            "/supportedInterfaces/0/protocolBinding",
        ),
        (
            r#""supportedInterfaces":[{"url":"u","protocolVersion":"$"}]"#,
            "/supportedInterfaces/0/protocolVersion",
        ),
        (r#""supportedInterfaces":[{"url":"u","tenant":"$"}]"#, "/supportedInterfaces/0/tenant"),
        (r#""url":"u","capabilities":{"extensions":[{"uri":"$"}]}"#, "/capabilities/extensions/0/uri"),
        (r#""url":"u","securitySchemes":{"$":{"type":"mutualTLS"}}"#, "/securitySchemes"),
        (r#""url":"u","authentication":{"schemes":["$"]}"#, "/authentication/schemes/0"),
        (r#""url":"u","security":[{"$":[]}]"#, "/security/0"),
        (r#""url":"u","security":[{"k":["$"]}]"#, "/security/0/k/0"),
        (
            r#""url":"u","securitySchemes":{"k":{"type":"oauth2","flows":{"implicit":{"scopes":{"$":""}}}}}"#,
            "/securitySchemes/k/flows/implicit/scopes",
        ),
    ] {
        let text = |long: &str| format!(r#"{{"name":"A",{members}}}"#).replace('$', long);
        card(&text(&most));
        let refused = check(&text(&over)).expect_err(members);
        let [found] = refused.violations.as_slice() else { panic!("{members}: {:?}", refused.violations) };
        assert_eq!((found.code, found.pointer.as_str()), (Code::TooLong, pointer));
        assert!(found.message.contains("4097 bytes; at most 4096"), "{}", found.message);
        assert!(found.message.len() < 200, "{}", found.message);
        let seen = inspect(text(&over).as_bytes(), &Limits::default());
        assert!(seen.spoken_versions.iter().all(|version| version.len() <= 4_096), "{members}");
    }
    let version = |bytes: usize| format!(r#"{{"name":"A","url":"u","version":"{}"}}"#, "1".repeat(bytes));
    card(&version(256));
    assert_eq!(violations(&version(257)), [("too_long", "/version".to_owned())]);
    let modes = |members: &str, count: usize| {
        let modes: Vec<_> = (0..count).map(|n| format!("\"a/{n}\"")).collect();
        format!(r#"{{"name":"A","url":"u",{members}}}"#).replace('$', &modes.join(","))
    };
    for (members, pointer) in [
        (r#""default_input_modes":[$]"#, "/default_input_modes"),
        (r#""skills":[{"id":"s","outputModes":[$]}]"#, "/skills/0/outputModes"),
    ] {
        card(&modes(members, 1_000));
        assert_eq!(violations(&modes(members, 1_001)), [("too_many_modes", pointer.to_owned())]);
    }
}

#[test]
fn two_statements_of_one_thing_must_agree() {
    let v1 =
        r#""supportedInterfaces":[{"url":"https://a","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]"#;
    for (members, pointer) in [
        (
            r#""url":"u","capabilities":{"extendedAgentCard":$1},"supportsAuthenticatedExtendedCard":$2"#,
            "/capabilities/extendedAgentCard",
        ),
        (
            r#""url":"u","capabilities":{"extended_agent_card":$1},"supportsExtendedAgentCard":$2"#,
            "/capabilities/extended_agent_card",
        ),
        (
            r#"$v1,"capabilities":{"extendedAgentCard":$1},"supportsAuthenticatedExtendedCard":$2"#,
            "/capabilities/extendedAgentCard",
        ),
        (
            r#""url":"u","supportsExtendedAgentCard":$1,"supportsAuthenticatedExtendedCard":$2"#,
            "/supportsExtendedAgentCard",
        ),
        (
            r#""supportedInterfaces":[{"url":"u","protocolBinding":"b$1","transport":"b$2"}]"#,
            "/supportedInterfaces/0/transport",
        ),
    ] {
        let text = |one: &str, two: &str| {
            let members = members.replace("$v1", v1).replace("$1", one).replace("$2", two);
            format!(r#"{{"name":"A",{members}}}"#)
        };
        for (one, two) in [("true", "false"), ("false", "true")] {
            assert_eq!(violations(&text(one, two)), [("contradiction", pointer.to_owned())], "{members}");
            card(&text(one, one));
        }
    }
    for (interface, binding) in [
        (r#"{"url":"u","protocolBinding":"","transport":"GRPC"}"#, "GRPC"),
        (r#"{"url":"u","protocolBinding":"GRPC","transport":null}"#, "GRPC"),
    ] {
        let card = card(&format!(r#"{{"name":"A","supportedInterfaces":[{interface}]}}"#));
        assert_eq!(&*card.normal().interfaces[0].binding, binding);
    }
}

/// What A2A does not define is kept: each pair differs in that alone, and the change is told.
#[test]
fn an_undefined_security_statement_is_kept_and_its_change_is_breaking() {
    let oauth = |flows: &str| format!(r#""securitySchemes":{{"o":{{"type":"oauth2","flows":{{{flows}}}}}}}"#);
    for (one, two, warned, item) in [
        (
            oauth(r#""tokenExchange":{"tokenUrl":"https://a"}"#),
            oauth(r#""tokenExchange":{"tokenUrl":"https://b"}"#),
            "/securitySchemes/o/flows/tokenExchange",
            "security_scheme_changed /securitySchemes/o o",
        ),
        (
            oauth(r#""implicit":{"audience":"a"}"#),
            oauth(r#""implicit":{"audience":"b"}"#),
            "/securitySchemes/o/flows/implicit/audience",
            "security_scheme_changed /securitySchemes/o o",
        ),
        (
            r#""securitySchemes":{"h":{"type":"http","scheme":"bearer","realm":"a"}}"#.to_owned(),
            r#""securitySchemes":{"h":{"type":"http","scheme":"bearer","realm":"b"}}"#.to_owned(),
            "/securitySchemes/h/realm",
            "security_scheme_changed /securitySchemes/h h",
        ),
        (
            r#""security":[{"k":{"scopes":["user"]}}]"#.to_owned(),
            r#""security":[{"k":{"scopes":["admin"]}}]"#.to_owned(),
            "/security/0/k/scopes",
            "security_changed /security ",
        ),
        (
            r#""skills":[{"id":"s","security":[{"k":{"list":[],"all":true}}]}]"#.to_owned(),
            r#""skills":[{"id":"s","security":[{"k":{"list":[],"all":false}}]}]"#.to_owned(),
            "/skills/0/security/0/k/all",
            "skill_security_changed /skills/0 s",
        ),
        (
            r#""authentication":"bearer""#.to_owned(),
            r#""authentication":"basic""#.to_owned(),
            "/authentication",
            "security_changed /authentication authentication",
        ),
        (
            r#""authentication":{"schemes":"bearer"}"#.to_owned(),
            r#""authentication":{"schemes":"basic"}"#.to_owned(),
            "/authentication",
            "security_changed /authentication authentication",
        ),
        (
            r#""authentication":{"schemes":["bearer",1]}"#.to_owned(),
            r#""authentication":{"schemes":["bearer",2]}"#.to_owned(),
            "/authentication",
            "security_changed /authentication authentication",
        ),
        (
            r#""protocolVersion":"0.3.0","authentication":{"schemes":["bearer"]}"#.to_owned(),
            r#""protocolVersion":"0.3.0","authentication":{"schemes":["basic"]}"#.to_owned(),
            "/authentication",
            "security_changed /authentication authentication",
        ),
    ] {
        let of =
            |members: &str| card(&format!(r#"{{"name":"A","version":"1","url":"https://a",{members}}}"#));
        let (before, after) = (of(&one), of(&two));
        for read in [&before, &after] {
            assert_eq!(warnings(read), [(Oddity::SecurityUndefined, warned)], "{one}");
        }
        assert_ne!(before.negotiation_fingerprint(), after.negotiation_fingerprint(), "{one}");
        let change = Change::between(&before, &after);
        let told: Vec<_> =
            change.items.iter().map(|i| format!("{} {} {}", i.kind, i.pointer, i.subject)).collect();
        assert_eq!(
            (change.class, change.silent, told),
            (Class::Breaking, true, vec![item.to_owned()]),
            "{one}"
        );
    }
}

#[test]
fn no_security_statement_hides_another_of_its_name() {
    let of = |authentication: &str, scheme: &str| {
        card(&format!(
            r#"{{"name":"A","url":"https://a","authentication":{{"schemes":[{authentication}]}},"securitySchemes":{{"bearer":{scheme}}}}}"#
        ))
    };
    let (http, key) = (r#"{"type":"http","scheme":"bearer"}"#, |name: &str| {
        format!(r#"{{"type":"apiKey","in":"header","name":"{name}"}}"#)
    });
    let equal = of(r#""bearer""#, http);
    assert!(
        equal.warnings().iter().all(|warning| warning.code == Oddity::VersionMissing),
        "{:?}",
        equal.warnings()
    );
    let base = of(r#""bearer""#, &key("X"));
    assert!(warnings(&base).contains(&(Oddity::SecurityUndefined, "/authentication")));
    assert!(matches!(base.normal().scheme("bearer"), Some(Scheme::ApiKey { name, .. }) if &**name == "X"));
    for other in [of(r#""bearer""#, &key("Y")), of(r#""bearer","basic""#, &key("X")), of("", &key("X"))] {
        assert_ne!(base.negotiation_fingerprint(), other.negotiation_fingerprint());
        assert_eq!(Change::between(&base, &other).class, Class::Breaking);
    }
    for (members, pointer) in [
        (r#""security":[{"schemes":{"k":{"list":[]}},"oauth":["x"]}]"#, "/security/0/oauth"),
        (r#""securityRequirements":[{"schemes":{"k":{}},"k":[]}]"#, "/securityRequirements/0/k"),
        (r#""skills":[{"id":"s","security":[{"oauth":[],"schemes":{}}]}]"#, "/skills/0/security/0/oauth"),
        (
            r#""securitySchemes":{"k":{"apiKeySecurityScheme":{"location":"header","in":"query","name":"X"}}}"#,
            "/securitySchemes/k/apiKeySecurityScheme/in",
        ),
    ] {
        let found = violations(&format!(r#"{{"name":"A","url":"u",{members}}}"#));
        assert_eq!(found, [("contradiction", pointer.to_owned())], "{members}");
    }
    card(
        r#"{"name":"A","url":"u","security":[{"schemes":["read"],"oauth":["x"]},{"schemes":{"k":{}},"oauth":null}]}"#,
    );
    let beside = r#"{"name":"A","url":"u","securitySchemes":{"k":{"apiKeySecurityScheme":{"location":"header","name":"X"},"realm":"a"}}}"#;
    assert!(
        matches!(card(beside).normal().scheme("k"), Some(Scheme::Other { body }) if body.contains("realm"))
    );
}
