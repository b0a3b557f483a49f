//! Synthetic Agent Cards of three generations, of realistic shape and size.
//!
//! A card is built from the few facts that tests vary; everything else is filled in as published cards do
//! it. Two calls with the same facts give the same bytes.

use serde_json::{Map, Value, json};

/// The shapes that tests register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    V02,
    V03,
    V10,
}

/// A card in the making: two skills, modes text and JSON, streaming and push notifications, version 1.0.0.
#[derive(Debug, Clone)]
pub(crate) struct Card {
    shape: Shape,
    name: String,
    version: String,
    url: String,
    skills: Vec<Value>,
    streaming: bool,
    push_notifications: bool,
    description_bytes: usize,
}

impl Card {
    pub(crate) fn new(shape: Shape, name: &str) -> Self {
        Self {
            shape,
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            url: format!("https://{name}.example.com/a2a"),
            skills: vec![skill("summarize", &["text/plain"]), skill("translate", &["text/plain"])],
            streaming: true,
            push_notifications: true,
            description_bytes: 160,
        }
    }

    pub(crate) fn version(mut self, version: &str) -> Self {
        version.clone_into(&mut self.version);
        self
    }

    /// Where the agent is reached.
    pub(crate) fn url(mut self, url: &str) -> Self {
        url.clone_into(&mut self.url);
        self
    }

    /// Replaces the skills: ids with the media types that each puts out.
    pub(crate) fn skills(mut self, skills: &[(&str, &[&str])]) -> Self {
        self.skills = skills.iter().map(|(id, output_modes)| skill(id, output_modes)).collect();
        self
    }

    /// Replaces the skills by `count` generated ones, `skill-0` and so on: about 300 bytes each.
    pub(crate) fn many_skills(mut self, count: usize) -> Self {
        self.skills = (0..count).map(|number| skill(&format!("skill-{number}"), &["text/plain"])).collect();
        self
    }

    pub(crate) fn streaming(mut self, streaming: bool) -> Self {
        self.streaming = streaming;
        self
    }

    pub(crate) fn push_notifications(mut self, push_notifications: bool) -> Self {
        self.push_notifications = push_notifications;
        self
    }

    /// The length of the description, which is how a card is made large without more structure.
    pub(crate) fn description_bytes(mut self, bytes: usize) -> Self {
        self.description_bytes = bytes;
        self
    }

    /// The document's bytes, indented as publishers do.
    pub(crate) fn build(&self) -> String {
        format!("{:#}\n", self.to_value())
    }

    /// The document, for tests that go on to break it.
    pub(crate) fn to_value(&self) -> Value {
        let mut card = json!({
            "name": self.name,
            "description": prose(self.description_bytes),
            "version": self.version,
            "provider": {"organization": "Example Corporation", "url": "https://example.com"},
            "documentationUrl": format!("https://example.com/docs/{}", self.name),
            "capabilities": {"streaming": self.streaming, "pushNotifications": self.push_notifications},
            "defaultInputModes": ["text/plain", "application/json"],
            "defaultOutputModes": ["text/plain", "application/json"],
            "skills": self.skills,
        });
        let members = card.as_object_mut().expect("a card is an object");
        members.extend(self.of_generation());
        card
    }

    /// What differs between the generations: endpoints, protocol versions, security, the extended card.
    fn of_generation(&self) -> Map<String, Value> {
        let members = match self.shape {
            Shape::V02 => json!({
                "url": self.url,
                "iconUrl": "https://example.com/icon.png",
                "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
                "security": [{"bearer": []}],
                "supportsAuthenticatedExtendedCard": false,
            }),
            Shape::V03 => json!({
                "url": self.url,
                "protocolVersion": "0.3.0",
                "preferredTransport": "JSONRPC",
                "additionalInterfaces": [
                    {"url": self.url, "transport": "JSONRPC"},
                    {"url": format!("{}/rest", self.url), "transport": "HTTP+JSON"},
                ],
                "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
                "security": [{"bearer": []}],
                "supportsAuthenticatedExtendedCard": false,
            }),
            Shape::V10 => json!({
                "supportedInterfaces": [
                    {"url": self.url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
                    {"url": format!("{}/rest", self.url), "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
                ],
                "securitySchemes": {"bearer": {"httpAuthSecurityScheme": {"scheme": "bearer"}}},
                "securityRequirements": [{"schemes": {"bearer": {"list": []}}}],
            }),
        };
        match members {
            Value::Object(members) => members,
            _ => unreachable!("each arm is an object"),
        }
    }
}

fn skill(id: &str, output_modes: &[&str]) -> Value {
    json!({
        "id": id,
        "name": format!("Skill {id}"),
        "description": format!("Takes what it is given and does `{id}` to it, with all due care."),
        "tags": ["example", id],
        "examples": [format!("Please {id} the attached report.")],
        "inputModes": ["text/plain"],
        "outputModes": output_modes,
    })
}

/// `bytes` bytes of text.
fn prose(bytes: usize) -> String {
    "This agent reads documents and answers questions about them. ".chars().cycle().take(bytes).collect()
}
