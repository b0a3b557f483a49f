//! Requests that are wrong, each with its typed refusal.

use super::support::{CARD, Server};

const AGENT: &str = "/v1/agents/acme/sum";

struct Row {
    method: &'static str,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    status: u16,
    reason: &'static str,
    /// Part of the detail, or of the violations.
    says: &'static str,
}

fn row(method: &'static str, path: &str, status: u16, reason: &'static str, says: &'static str) -> Row {
    Row { method, path: path.to_owned(), headers: vec![], body: vec![], status, reason, says }
}

fn card(body: &[u8], says: &'static str) -> Row {
    Row { body: body.to_vec(), ..row("PUT", AGENT, 400, "invalid_card", says) }
}

fn batch(body: &str, says: &'static str) -> Row {
    Row { body: body.as_bytes().to_vec(), ..row("POST", "/v1/resolve", 400, "invalid_argument", says) }
}

fn get(path: &str, says: &'static str) -> Row {
    row("GET", path, 400, "invalid_argument", says)
}

fn with(header: &'static str, value: &str, base: Row) -> Row {
    let mut row = base;
    row.headers.push((header, value.to_owned()));
    row
}

fn put(status: u16, reason: &'static str, says: &'static str) -> Row {
    Row { body: CARD.to_vec(), ..row("PUT", AGENT, status, reason, says) }
}

fn cards() -> Vec<Row> {
    let fine = r#"{"name":"x","url":"https://x.example","skills":[]}"#;
    let deep =
        format!(r#"{{"name":"x","url":"https://x.example","m":{}1{}}}"#, "[".repeat(80), "]".repeat(80));
    let twice = fine.replace("\"skills\"", "\"url\":\"https://y.example\",\"skills\"");
    let same = fine.replace("[]", r#"[{"id":"a","name":"a"},{"id":"a","name":"b"}]"#);
    let mut rows = vec![
        card(b"", "syntax"),
        card(b"{", "syntax"),
        card(b"[]", "not_an_object"),
        card(b"null", "not_an_object"),
        card(b"\xff\xfe{}", "not_utf8"),
        card(b"\xef\xbb\xbf{}", "syntax"),
        card(b"{}", "name_missing"),
        card(br#"{"name":"x"}"#, "endpoint_missing"),
        card(br#"{"name":"x","url":""}"#, "endpoint_missing"),
        card(twice.as_bytes(), "duplicate_key"),
        card(same.as_bytes(), "skill_id_duplicate"),
        card(fine.replace("[]", r#"[{"name":"a"}]"#).as_bytes(), "skill_id_missing"),
        card(fine.replace("[]", "7").as_bytes(), "wrong_type"),
        card(fine.replace("\"x\"", "\"\\ud800\"").as_bytes(), "lone_surrogate"),
        card(fine.replace("[]", "[],\"n\":9007199254740992").as_bytes(), "integer_out_of_range"),
        card(fine.replace("[]", "[],\"n\":1e400").as_bytes(), "number_overflow"),
        card(deep.as_bytes(), "too_deep"),
    ];
    rows.push(Row {
        body: vec![b' '; 262_145],
        ..row("PUT", AGENT, 413, "payload_too_large", "at most 262144 bytes")
    });
    rows
}

fn names() -> Vec<Row> {
    vec![
        get("/v1/agents/Acme/sum", "is not a name"),
        get("/v1/agents/acme/sum%2Fx", "is not a name"),
        get("/v1/agents/acme/-sum", "is not a name"),
        get("/v1/agents/acme/%00", "is not a name"),
        get("/v1/agents/%C3%A4/sum", "is not a name"),
        get("/v1/agents/acme/%ff", "the path is not UTF-8"),
        get(&format!("/v1/agents/acme/{}", "a".repeat(65)), "is not a name"),
        get("/agents/ACME/sum/.well-known/agent-card.json", "is not a name"),
        row("PUT", "/v1/agents/acme/sum..", 400, "invalid_argument", "is not a name"),
        row("DELETE", "/v1/agents/a%20b/sum", 400, "invalid_argument", "is not a name"),
        get(&format!("{AGENT}/revisions/0"), "numbered from 1"),
        get(&format!("{AGENT}/revisions/01"), "is not a whole number"),
        get(&format!("{AGENT}/revisions/latest"), "is not a whole number"),
        get(&format!("{AGENT}/revisions/99999999999999999999"), "is not a whole number"),
    ]
}

fn queries() -> Vec<Row> {
    vec![
        get(&format!("{AGENT}?skil=a"), "`skil` is not a parameter here"),
        get(&format!("{AGENT}?max_staleness=5"), "is not a duration"),
        get(&format!("{AGENT}?wait=11s"), "at most 10s"),
        get(&format!("{AGENT}?wait=1s&wait=1s"), "more than once"),
        get(&format!("{AGENT}?at=1"), "at: `1` is not a position"),
        get(&format!("{AGENT}?at=1.9f86d081884c7d65&skill=a"), "cannot be combined with `at`"),
        get(&format!("{AGENT}?at=1.9f86d081884c7d65&known=sha256:00"), "known: "),
        get("/agents/acme/sum/.well-known/agent.json?at=1.9f86d081884c7d65", "`at` is not a parameter"),
        get("/v1/agents?namespace=Acme", "is not allowed"),
        get("/v1/replicas?within=1", "within: `1` is not a duration"),
        get("/v1/replicas?within=8d", "within of 8d is too long: at most 7d"),
        get("/v1/replicas?wait=11s", "at most 10s"),
        get("/v1/replicas?namespace=acme", "`namespace` is not a parameter here"),
        get(&format!("{AGENT}?wait_replicated=1s"), "`wait_replicated` is not a parameter here"),
        row(
            "PUT",
            &format!("{AGENT}?wait_replicated=61s"),
            400,
            "invalid_argument",
            "61s is too long: at most 1m",
        ),
        row("DELETE", &format!("{AGENT}?wait_replicated=any"), 400, "invalid_argument", "is not a duration"),
        row(
            "POST",
            &format!("{AGENT}/rollback?to=1&wait_replicated=5"),
            400,
            "invalid_argument",
            "not a duration",
        ),
        get("/v1/agents?capability=streeming", "capability: `streeming` is none of"),
        get("/v1/agents?page_size=0", "too small"),
        get("/v1/agents?page_size=-1", "is not a whole number"),
        get("/v1/agents?page_size=ten", "is not a whole number"),
        get("/v1/agents?page_token=zz", "page_token is not one that this registry gave"),
        get("/v1/agents?q=", "must not be empty"),
        get("/v1/agents?skill=a;in=x", "%3B"),
        get("/v1/agents?min_revision=1", "is not a parameter here"),
        get(&format!("{AGENT}/revisions?page_token=00"), "page_token"),
        get(&format!("{AGENT}/diff?from=0&to=1"), "numbered from 1"),
        get(&format!("{AGENT}/diff?from=a"), "is not a whole number"),
        get("/v1/ledger?from=x", "is not a whole number"),
        get("/v1/ledger?limit=0", "too small"),
        get("/v1/watermark?streams=1", "is not a parameter here"),
        get("/livez?verbose", "this route takes no parameters"),
        get(&format!("{AGENT}?min_version={}", "1".repeat(17_000)), "too long"),
        row("POST", &format!("{AGENT}/rollback"), 400, "invalid_argument", "`to` is missing"),
        row("POST", &format!("{AGENT}/rollback?to=0"), 400, "invalid_argument", "numbered from 1"),
        row("DELETE", &format!("{AGENT}?release=1"), 400, "invalid_argument", "`release` is not a parameter"),
        Row {
            path: format!("{AGENT}?wait_replication=5s"),
            ..put(400, "invalid_argument", "`wait_replication`")
        },
        Row { path: format!("{AGENT}?dry_run=1"), ..put(400, "invalid_argument", "dry_run: `1`") },
        Row { path: format!("{AGENT}?release=new"), ..put(400, "invalid_argument", "neither SemVer nor") },
        Row {
            path: format!("{AGENT}?expect_revision=0"),
            ..put(400, "invalid_argument", "expect_revision: ")
        },
        Row { path: format!("{AGENT}?note=%00"), ..put(400, "invalid_argument", "NUL") },
        Row {
            path: format!("{AGENT}?note={}", "n".repeat(5_000)),
            ..put(400, "invalid_argument", "note of 5000 bytes is too long")
        },
    ]
}

fn headers() -> Vec<Row> {
    let invalid = "invalid_argument";
    vec![
        with("content-type", "text/plain", put(415, "unsupported_media_type", "text/plain")),
        with("content-type", "application/jsonp", put(415, "unsupported_media_type", "jsonp")),
        with("content-type", "application/+json", put(415, "unsupported_media_type", "+json")),
        with("content-type", "", put(415, "unsupported_media_type", "Content-Type")),
        with("content-type", "application/ä+json", put(415, "unsupported_media_type", "Content-Type")),
        with("content-encoding", "gzip", put(415, "unsupported_media_type", "Content-Encoding")),
        with(
            "content-type",
            "text/plain",
            Row { status: 415, reason: "unsupported_media_type", ..batch("{}", "text") },
        ),
        with("idempotency-key", "", put(400, invalid, "Idempotency-Key: ")),
        with("idempotency-key", "a b", put(400, invalid, "Idempotency-Key: ")),
        with("idempotency-key", "ä", put(400, invalid, "Idempotency-Key: ")),
        with("idempotency-key", &"k".repeat(129), put(400, invalid, "Idempotency-Key: ")),
        with("idempotency-key", "a", with("idempotency-key", "a", put(400, invalid, "more than once"))),
        with("if-match", "sha256:abc", put(400, invalid, "If-Match: ")),
        with("if-match", "*", put(400, invalid, "If-Match: ")),
        with("if-match", "W/\"x\"", put(412, "revision_conflict", "the strong tag is")),
        with("if-none-match", "\"x\"", put(400, invalid, "If-None-Match: only `*`")),
        with("if-none-match", "*", row("DELETE", AGENT, 400, invalid, "If-None-Match is for")),
        with("if-none-match", "abc", get(AGENT, "If-None-Match: ")),
        with("if-match", "\"x\"", get(AGENT, "If-Match is for writes")),
        with("cache-control", "max-age=soon", get(AGENT, "Cache-Control: max-age")),
        with("cache-control", "max-age", get("/v1/agents", "Cache-Control: max-age")),
        with("cardfence-nonce", "a b", get(AGENT, "Cardfence-Nonce: ")),
        with("cardfence-nonce", "", get("/livez", "Cardfence-Nonce: ")),
        with("cardfence-nonce", &"n".repeat(129), put(400, invalid, "Cardfence-Nonce: ")),
    ]
}

fn bodies() -> Vec<Row> {
    let many = format!(r#"{{"agents":[{}{{"agent":"a/b"}}]}}"#, r#"{"agent":"a/b"},"#.repeat(1_000));
    let skills = |count| format!(r#"{{"skills":[{}]}}"#, vec![r#"{"id":"a"}"#; count].join(","));
    let fence = |json: &str| format!(r#"{{"agents":[{{"agent":"a/b","fence":{json}}}]}}"#);
    vec![
        batch("", "the body is not a batch"),
        batch("[]", "an object with `agents`"),
        batch("{}", "missing field `agents`"),
        batch(r#"{"agents":[],"max_stalenes":"5s"}"#, "unknown field `max_stalenes`"),
        batch(r#"{"agents":[],"max_staleness":5}"#, "expected a string"),
        batch(r#"{"agents":[],"max_staleness":"5"}"#, "max_staleness: `5` is not a duration"),
        batch(r#"{"agents":[],"agents":[]}"#, "duplicate field"),
        batch(r#"{"agents":[],"at_least":"1"}"#, "at_least: "),
        batch(r#"{"agents":[],"wait":"1m"}"#, "at most 10s"),
        batch(r#"{"agents":[{"agent":"A/b"}]}"#, "agents[0].agent: "),
        batch(r#"{"agents":["a/b"]}"#, "an object with `agent` and `fence`"),
        batch(&fence(r#"{"skill":"a"}"#), "unknown field `skill`"),
        batch(&fence(r#"{"pin":"x"}"#), "agents[0].fence.pin: "),
        batch(&fence(r#"{"min_revision":0}"#), "agents[0].fence.min_revision: "),
        batch(&fence(r#"{"skills":[{}]}"#), "missing field `id`"),
        batch(r#"[[{"agent":"a/b"}]]"#, "an object with `agents`"),
        batch(r#"{"agents":[["a/b"]]}"#, "agents: invalid type: sequence, expected an object with `agent`"),
        batch(r#"{"agents":[],"max_staleness":null}"#, "max_staleness: invalid type: null"),
        batch(r#"{"agents":null}"#, "agents: invalid type: null"),
        batch(&fence("[]"), "agents: fence: invalid type: sequence, expected an object of conditions"),
        batch(&fence(r#"["0"]"#), "fence: invalid type: sequence, expected an object of conditions"),
        batch(&fence("null"), "fence: invalid type: null, expected an object of conditions"),
        batch(&fence(r#"{"pin":null}"#), "fence: pin: invalid type: null"),
        batch(&fence(r#"{"min_revision":null}"#), "fence: min_revision: expected a number"),
        batch(&fence(&skills(1_001)), "agents[0].fence.conditions: 1001 in one fence are too many"),
        batch(&many, "1001 agents in one batch are too many"),
        Row {
            body: vec![b' '; 1024 * 1024 + 1],
            status: 413,
            reason: "payload_too_large",
            ..batch("", "too large")
        },
    ]
}

fn routes() -> Vec<Row> {
    vec![
        row("GET", "/", 404, "no_such_route", "there is nothing at /"),
        row("GET", "/v1", 404, "no_such_route", "/openapi.json"),
        row("GET", "/v1/agents/acme", 404, "no_such_route", "nothing at"),
        row("GET", "/v1/agents/acme/sum/", 404, "no_such_route", "nothing at"),
        get("/v1/agents//sum", "is not a name"),
        row("GET", "/v1/replica", 404, "no_such_route", "nothing at"),
        row("GET", "/v1/watching", 404, "no_such_route", "nothing at"),
        row("POST", "/v1/agents/acme/sum/drift", 404, "no_such_route", "nothing at"),
        row("GET", "/v1/agents/acme/sum/confirm", 405, "method_not_allowed", "allows POST"),
        row("GET", "/v1/resolve", 405, "method_not_allowed", "allows POST"),
        row("PATCH", AGENT, 405, "method_not_allowed", "allows PUT, GET, HEAD, DELETE"),
        row("POST", "/v1/agents", 405, "method_not_allowed", "allows GET, HEAD"),
        row("OPTIONS", "/livez", 405, "method_not_allowed", "allows GET, HEAD"),
    ]
}

#[tokio::test]
async fn malformed_requests_have_typed_refusals() {
    let server = Server::start().await;
    let rows: Vec<Row> =
        [cards(), names(), queries(), headers(), bodies(), routes()].into_iter().flatten().collect();
    assert!(rows.len() >= 100, "{}", rows.len());
    for row in &rows {
        let headers: Vec<(&str, &str)> = row.headers.iter().map(|(n, v)| (*n, v.as_str())).collect();
        let reply = server.send(row.method, &row.path, &headers, &row.body).await;
        let label = format!("{} {:.100} {headers:.100?} {:.200}", row.method, row.path, reply.text());
        assert_eq!(reply.reason(), row.reason, "{label}");
        assert_eq!(reply.status.as_u16(), row.status, "{label}");
        assert!(reply.text().contains(&row.says.replace('"', "\\\"")), "`{}`: {label}", row.says);
        let problem = reply.json();
        assert_eq!(problem["type"], format!("urn:cardfence:problem:{}", row.reason), "{label}");
        assert_eq!(problem["status"], row.status, "{label}");
        assert_eq!(reply.header("cache-control"), "no-store", "{label}");
        assert!(problem["detail"].as_str().unwrap().len() < 1_500, "{label}");
    }
    assert_eq!(server.get(AGENT).await.reason(), "agent_not_found", "nothing was registered");
}
