//! Reads what an agent answered, in any A2A generation, without judging it.
//!
//! Taken are the answers of v0.1, v0.2, v0.3 and v1.0: tasks, messages, status and artifact updates; in a JSON-RPC
//! envelope, as a REST answer, or bare; JSON-RPC errors, REST errors (AIP-193) and problem details. The shapes are
//! tried in the order of `clients/cases/README.md`, so that every client reads the same answer the same way. What an
//! agent sends is not trusted: what is looked at is bounded in number, depth and length.

use std::collections::VecDeque;

use serde_json::{Map, Value};

/// Strings in a data part or in metadata that are looked at, and how deep.
const LEAVES_MAX: usize = 256;
const DEPTH_MAX: usize = 16;

/// Where A2A's own errors are named.
const DOMAIN: &str = "a2a-protocol.org";
const PROBLEMS: &str = "a2a-protocol.org/errors/";

/// The order of the protobuf enum: ProtoJSON may write a state as its number.
const STATES: [&str; 9] = [
    "unknown",
    "submitted",
    "working",
    "completed",
    "failed",
    "canceled",
    "input-required",
    "rejected",
    "auth-required",
];

/// What an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Task,
    Message,
    StatusUpdate,
    ArtifactUpdate,
    Error,
    /// Nothing that A2A defines.
    Other,
}

impl Kind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Message => "message",
            Self::StatusUpdate => "status-update",
            Self::ArtifactUpdate => "artifact-update",
            Self::Error => "error",
            Self::Other => "other",
        }
    }
}

/// What a part is where it names no media type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PartKind {
    Text,
    Data,
    File,
    Unknown,
}

impl PartKind {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Data => "data",
            Self::File => "file",
            Self::Unknown => "unknown",
        }
    }

    fn named(name: &str) -> Self {
        match name {
            "text" => Self::Text,
            "data" => Self::Data,
            "file" => Self::File,
            _ => Self::Unknown,
        }
    }
}

/// One part of an artifact or a message.
#[derive(Debug)]
pub(super) struct Part<'a> {
    /// A JSON Pointer into the answer.
    pub(super) pointer: String,
    pub(super) kind: PartKind,
    pub(super) media_type: Option<&'a str>,
}

/// An error as the agent told it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteError {
    /// As A2A names it, such as `INVALID_PARAMS`; `None` when A2A does not define it.
    pub name: Option<String>,
    /// The number it was told with: JSON-RPC's, or an HTTP status.
    pub code: Option<i64>,
    /// What it says, its details included.
    pub texts: Vec<String>,
    /// The HTTP status that its body names.
    pub http_status: Option<u16>,
}

/// What an answer is, and what a check needs of it.
#[derive(Debug)]
pub(super) struct Reading<'a> {
    pub(super) kind: Kind,
    /// In the words of v0.3, such as `input-required`.
    pub(super) state: Option<String>,
    /// What the message of the status says.
    pub(super) said: Vec<&'a str>,
    pub(super) parts: Vec<Part<'a>>,
    pub(super) error: Option<RemoteError>,
}

impl Reading<'_> {
    fn of(kind: Kind) -> Self {
        Self { kind, state: None, said: Vec::new(), parts: Vec::new(), error: None }
    }

    fn failed(error: RemoteError) -> Self {
        Self { error: Some(error), ..Self::of(Kind::Error) }
    }
}

/// Reads an answer. `Value::Null` stands for no JSON body.
pub(super) fn read(body: &Value, http_status: Option<u16>, is_v0_1: bool) -> Reading<'_> {
    let reading = whole(body, is_v0_1);
    if reading.kind == Kind::Other && http_status.is_some_and(|status| status >= 400) {
        let texts = owned(leaves(body));
        return Reading::failed(RemoteError { name: None, code: None, texts, http_status });
    }
    reading
}

fn whole(body: &Value, is_v0_1: bool) -> Reading<'_> {
    let Some(object) = body.as_object() else { return Reading::of(Kind::Other) };
    if let Some(Value::Object(told)) = object.get("error") {
        return Reading::failed(error(told, is_v0_1));
    }
    if object.contains_key("jsonrpc") || object.contains_key("result") {
        return payload(object.get("result").unwrap_or(&Value::Null), "/result");
    }
    if object.get("code").is_some_and(Value::is_i64) && object.get("message").is_some_and(Value::is_string) {
        return Reading::failed(error(object, is_v0_1));
    }
    let problem_type = text(object, "type");
    if object.get("title").is_some_and(Value::is_string)
        || ["http", "about:", "urn:"].iter().any(|scheme| problem_type.starts_with(scheme))
    {
        return Reading::failed(problem(object));
    }
    payload(body, "")
}

fn payload<'a>(value: &'a Value, at: &str) -> Reading<'a> {
    let Some(object) = value.as_object() else { return Reading::of(Kind::Other) };
    let kinds = [
        ("task", Kind::Task),
        ("message", Kind::Message),
        ("statusUpdate", Kind::StatusUpdate),
        ("artifactUpdate", Kind::ArtifactUpdate),
    ];
    for (name, kind) in kinds {
        if let Some((used, Value::Object(inner))) = member(object, name) {
            return one(kind, inner, &format!("{at}/{used}"));
        }
    }
    let named = object.get("kind").and_then(Value::as_str);
    let is_object = |name: &str| object.get(name).is_some_and(Value::is_object);
    let kind = if named == Some("status-update") || (object.contains_key("final") && is_object("status")) {
        Kind::StatusUpdate
    } else if named == Some("artifact-update") || is_object("artifact") {
        Kind::ArtifactUpdate
    } else if named == Some("message")
        || (object.get("parts").is_some_and(Value::is_array) && object.contains_key("role"))
    {
        Kind::Message
    } else if named == Some("task") || is_object("status") {
        Kind::Task
    } else {
        return Reading::of(Kind::Other);
    };
    one(kind, object, at)
}

fn one<'a>(kind: Kind, object: &'a Map<String, Value>, at: &str) -> Reading<'a> {
    let mut reading = Reading::of(kind);
    if matches!(kind, Kind::Task | Kind::StatusUpdate) {
        status(object.get("status"), &mut reading);
    }
    match kind {
        Kind::Task => match object.get("artifacts") {
            Some(Value::Array(artifacts)) => {
                for (n, artifact) in artifacts.iter().enumerate() {
                    parts(Some(artifact), format!("{at}/artifacts/{n}"), &mut reading.parts);
                }
            }
            None | Some(Value::Null) => {}
            Some(_) => reading.parts.push(unknown(format!("{at}/artifacts"))),
        },
        Kind::ArtifactUpdate => parts(object.get("artifact"), format!("{at}/artifact"), &mut reading.parts),
        Kind::Message => parts_of(object, at, &mut reading.parts),
        _ => {}
    }
    reading
}

fn status<'a>(status: Option<&'a Value>, reading: &mut Reading<'a>) {
    let empty = Map::new();
    let object = status.and_then(Value::as_object);
    let state = match object.unwrap_or(&empty).get("state") {
        Some(Value::String(state)) => state.as_str(),
        Some(Value::Number(number)) => {
            let index = number.as_u64().and_then(|n| usize::try_from(n).ok());
            index.and_then(|n| STATES.get(n)).copied().unwrap_or("unknown")
        }
        _ => "unknown",
    };
    let state = state.strip_prefix("TASK_STATE_").unwrap_or(state).to_lowercase().replace('_', "-");
    reading.state = Some(match state.as_str() {
        "cancelled" => "canceled".to_owned(),
        "unspecified" => "unknown".to_owned(),
        _ => state,
    });
    match object.and_then(|object| object.get("message")) {
        Some(Value::String(said)) => reading.said.push(said),
        Some(Value::Object(message)) => {
            if let Some(Value::Array(parts)) = message.get("parts") {
                for part in parts.iter().filter_map(Value::as_object) {
                    reading.said.extend(Some(text(part, "text")).filter(|text| !text.is_empty()));
                    reading.said.extend(part.get("data").map(leaves).unwrap_or_default());
                }
            }
            reading.said.extend(message.get("metadata").map(leaves).unwrap_or_default());
        }
        _ => {}
    }
}

fn parts<'a>(holder: Option<&'a Value>, at: String, found: &mut Vec<Part<'a>>) {
    match holder.and_then(Value::as_object) {
        Some(object) => parts_of(object, &at, found),
        None => found.push(unknown(at)),
    }
}

fn parts_of<'a>(holder: &'a Map<String, Value>, at: &str, found: &mut Vec<Part<'a>>) {
    match holder.get("parts") {
        Some(Value::Array(parts)) => {
            found.extend(parts.iter().enumerate().map(|(n, value)| part(value, format!("{at}/parts/{n}"))));
        }
        None | Some(Value::Null) => {}
        Some(_) => found.push(unknown(format!("{at}/parts"))),
    }
}

const fn unknown(pointer: String) -> Part<'static> {
    Part { pointer, kind: PartKind::Unknown, media_type: None }
}

fn part(value: &Value, pointer: String) -> Part<'_> {
    let Some(object) = value.as_object() else { return unknown(pointer) };
    let set = |name: &str| object.get(name).filter(|value| !value.is_null());
    let kind = set("kind").or_else(|| set("type"));
    let file = object.get("file").and_then(Value::as_object);
    for holder in std::iter::once(object).chain(file) {
        for name in ["mediaType", "mimeType"] {
            match member(holder, name) {
                Some((_, Value::String(media_type))) if !media_type.trim().is_empty() => {
                    return Part { pointer, kind: part_kind(object, kind), media_type: Some(media_type) };
                }
                None | Some((_, Value::String(_))) => {}
                Some(_) => return unknown(pointer),
            }
        }
    }
    match kind.and_then(Value::as_str).filter(|kind| kind.contains('/')) {
        // In v0.1 a media type is sometimes found in the place of the kind.
        Some(media_type) => Part { pointer, kind: PartKind::Text, media_type: Some(media_type) },
        None => Part { pointer, kind: part_kind(object, kind), media_type: None },
    }
}

fn part_kind(part: &Map<String, Value>, kind: Option<&Value>) -> PartKind {
    if let Some(kind) = kind {
        return kind.as_str().map_or(PartKind::Unknown, PartKind::named);
    }
    let is_set = |name: &&str| part.get(*name).is_some_and(|value| !value.is_null());
    let mut present: Vec<&str> = ["text", "raw", "url", "file"].into_iter().filter(is_set).collect();
    // `data` may hold any JSON value, null included; the others are absent when null.
    if part.get("data").is_some_and(|data| !data.is_null() || present.is_empty()) {
        present.push("data");
    }
    match present.as_slice() {
        ["text"] => PartKind::Text,
        ["data"] => PartKind::Data,
        [_] => PartKind::File,
        _ => PartKind::Unknown,
    }
}

fn error(told: &Map<String, Value>, is_v0_1: bool) -> RemoteError {
    let code = told.get("code").and_then(Value::as_i64);
    let details: Vec<&Value> = ["data", "details"]
        .iter()
        .filter_map(|name| told.get(*name))
        .flat_map(|value| match value {
            Value::Array(items) => items.iter().collect(),
            Value::Null => Vec::new(),
            other => vec![other],
        })
        .collect();
    let http_status = code.and_then(|code| u16::try_from(code).ok()).filter(|code| (100..600).contains(code));
    let by_code = || code.filter(|_| http_status.is_none()).and_then(|code| by_code(code, is_v0_1));
    let violations = |detail: &&Value| {
        detail
            .as_object()
            .and_then(|detail| member(detail, "fieldViolations"))
            .is_some_and(|(_, v)| v.is_array())
    };
    let by_details = || details.iter().any(violations).then_some("INVALID_PARAMS");
    let by_status = || match text(told, "status") {
        "INVALID_ARGUMENT" => Some("INVALID_PARAMS"),
        "UNIMPLEMENTED" => Some("METHOD_NOT_FOUND"),
        _ => None,
    };
    let name = details
        .iter()
        .find_map(|detail| reason(detail))
        .or_else(by_code)
        .or_else(by_details)
        .or_else(by_status);
    let mut texts = vec![text(told, "message")];
    for name in ["data", "details"] {
        texts.extend(told.get(name).map(leaves).unwrap_or_default());
    }
    RemoteError { name: name.map(str::to_owned), code, texts: owned(texts), http_status }
}

/// The name of a JSON-RPC code. Some meant something else in v0.1, or nothing.
fn by_code(code: i64, is_v0_1: bool) -> Option<&'static str> {
    Some(match (code, is_v0_1) {
        (-32001, _) => "TASK_NOT_FOUND",
        (-32002, _) => "TASK_NOT_CANCELABLE",
        (-32003, _) => "PUSH_NOTIFICATION_NOT_SUPPORTED",
        (-32004, _) => "UNSUPPORTED_OPERATION",
        (-32005, _) => "CONTENT_TYPE_NOT_SUPPORTED",
        (-32006, true) => "STREAMING_NOT_SUPPORTED",
        (-32006, false) => "INVALID_AGENT_RESPONSE",
        (-32007, true) => "AUTHENTICATION_REQUIRED",
        (-32007, false) => "EXTENDED_AGENT_CARD_NOT_CONFIGURED",
        (-32008, true) => "CODE_-32008",
        (-32008, false) => "EXTENSION_SUPPORT_REQUIRED",
        (-32009, true) => "CODE_-32009",
        (-32009, false) => "VERSION_NOT_SUPPORTED",
        (-32601, _) => "METHOD_NOT_FOUND",
        (-32602, _) => "INVALID_PARAMS",
        _ => return None,
    })
}

fn problem(told: &Map<String, Value>) -> RemoteError {
    let named = text(told, "type").split_once(PROBLEMS).map(|(_, name)| name);
    RemoteError {
        name: named.map(|name| name.to_uppercase().replace('-', "_")),
        code: None,
        texts: owned(vec![text(told, "title"), text(told, "detail")]),
        http_status: told.get("status").and_then(Value::as_u64).and_then(|status| u16::try_from(status).ok()),
    }
}

/// The reason of a google.rpc.ErrorInfo of A2A's own domain.
fn reason(detail: &Value) -> Option<&str> {
    let detail = detail.as_object().filter(|detail| text(detail, "domain") == DOMAIN)?;
    Some(text(detail, "reason")).filter(|reason| !reason.is_empty())
}

/// The member `name` by that name or its protobuf name, and which of them it was. `null` is absent.
fn member<'a>(of: &'a Map<String, Value>, name: &str) -> Option<(String, &'a Value)> {
    let set = |name: String| of.get(&name).filter(|value| !value.is_null()).map(|value| (name, value));
    set(name.to_owned()).or_else(|| set(snake(name)))
}

fn text<'a>(of: &'a Map<String, Value>, name: &str) -> &'a str {
    of.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn snake(name: &str) -> String {
    name.chars().fold(String::with_capacity(name.len() + 2), |mut text, c| {
        if c.is_ascii_uppercase() {
            text.push('_');
        }
        text.push(c.to_ascii_lowercase());
        text
    })
}

/// The strings in a JSON value, the nearest first, so that depth and width are both bounded without recursion.
fn leaves(value: &Value) -> Vec<&str> {
    let mut found = Vec::new();
    let mut pending = VecDeque::from([(0, value)]);
    for _ in 0..LEAVES_MAX {
        let Some((depth, item)) = pending.pop_front() else { break };
        match item {
            Value::String(text) => found.push(text.as_str()),
            Value::Array(items) if depth < DEPTH_MAX => {
                pending.extend(items.iter().take(LEAVES_MAX).map(|item| (depth + 1, item)));
            }
            Value::Object(members) if depth < DEPTH_MAX => {
                pending.extend(members.values().take(LEAVES_MAX).map(|item| (depth + 1, item)));
            }
            _ => {}
        }
    }
    found
}

fn owned(texts: Vec<&str>) -> Vec<String> {
    texts.into_iter().map(str::to_owned).collect()
}
