//! One object of a known kind, read leniently where that is harmless and strictly where it is not.
//!
//! Owns the tolerances that hold everywhere: a snake_case alias is its camelCase name, `null` is absent. A
//! member that a fence depends on and that has the wrong type is a violation; a mere text is a warning.
//! Does not know what the members mean.

use std::borrow::Cow;

use super::document::Limits;
use super::finding::{Code, Findings, Oddity, shown};
use super::node::{Node, Place};

/// An object and where it lies.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'n, 'a> {
    pub(super) members: &'n [(Cow<'a, str>, Node<'a>)],
    pub(super) at: Place<'n>,
}

/// A member under the name the document gives it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member<'n, 'a> {
    pub(super) key: &'n str,
    pub(super) value: &'n Node<'a>,
}

impl<'n, 'a> View<'n, 'a> {
    /// The object `node` at `at`; anything else is a violation.
    pub(super) fn of(node: &'n Node<'a>, at: Place<'n>, findings: &mut Findings) -> Option<Self> {
        let members = node.as_object();
        if members.is_none() {
            wrong_type(at, node, "an object", findings);
        }
        Some(Self { members: members?, at })
    }

    /// The member `name`, by that name or by its alias. `null` is absent.
    pub(super) fn find(&self, name: &str) -> Option<Member<'n, 'a>> {
        let exact = self.members.iter().find(|(key, _)| key == name);
        let (key, value) = exact.or_else(|| self.members.iter().find(|(key, _)| is_alias(key, name)))?;
        (*value != Node::Null).then_some(Member { key, value })
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// A text that a fence depends on.
    pub(super) fn text(&self, name: &str, findings: &mut Findings) -> Option<&'n str> {
        self.text_within(name, Limits::MAX_TEXT_BYTES, findings)
    }

    /// A text that a fence depends on, of at most `most` bytes.
    pub(super) fn text_within(&self, name: &str, most: usize, findings: &mut Findings) -> Option<&'n str> {
        let Member { key, value } = self.find(name)?;
        match value.as_text() {
            Some(text) => within(text, most, self.at.key(key), findings),
            None => wrong_type(self.at.key(key), value, "a string", findings),
        }
        value.as_text()
    }

    /// A text for people: of the wrong type it counts as absent.
    pub(super) fn prose(&self, name: &str, findings: &mut Findings) -> Option<&'n str> {
        let Member { key, value } = self.find(name)?;
        let text = value.as_text();
        if text.is_none() {
            unexpected_type(self.at.key(key), value, "a string", findings);
        }
        text
    }

    /// A boolean that a fence depends on.
    pub(super) fn flag(&self, name: &str, findings: &mut Findings) -> Option<bool> {
        let Member { key, value } = self.find(name)?;
        if let Node::Bool(flag) = value {
            return Some(*flag);
        }
        wrong_type(self.at.key(key), value, "true or false", findings);
        None
    }

    /// An array that a fence depends on, and the name it goes by.
    pub(super) fn array(&self, name: &str, findings: &mut Findings) -> Option<(&'n str, &'n [Node<'a>])> {
        let Member { key, value } = self.find(name)?;
        let items = value.as_array();
        if items.is_none() {
            wrong_type(self.at.key(key), value, "an array", findings);
        }
        Some((key, items?))
    }

    /// An array of strings that a fence depends on; absent is empty.
    pub(super) fn texts(&self, name: &str, findings: &mut Findings) -> Vec<&'n str> {
        let Some((key, items)) = self.array(name, findings) else { return Vec::new() };
        strings(items, self.at.key(key), findings)
    }

    /// The members that go by none of the `known` names, `null` ones left out.
    pub(super) fn undefined(&self, known: &[&str]) -> Vec<(Cow<'a, str>, Node<'a>)> {
        let is_known = |key: &str| known.iter().any(|name| key == *name || is_alias(key, name));
        let others = self.members.iter().filter(|(key, value)| *value != Node::Null && !is_known(key));
        others.cloned().collect()
    }

    /// Where the member `name` lies, or would lie.
    pub(super) fn place<'p>(&'p self, name: &'p str) -> Place<'p> {
        self.at.key(self.find(name).map_or(name, |found| found.key))
    }

    /// Notes what is tolerated in this object, given the names that A2A defines for its kind: aliases and
    /// nulls are warnings, an alias beside its twin is a violation.
    pub(super) fn tolerate(&self, known: &[&str], findings: &mut Findings) {
        for name in known {
            let twin = self.members.iter().find(|(key, _)| key == name);
            let alias = self.members.iter().find(|(key, _)| is_alias(key, name));
            for (key, value) in twin.into_iter().chain(alias) {
                let here = || self.at.key(key).to_string();
                if *value == Node::Null {
                    findings.warn(Oddity::NullMember, here, || "null, read as absent".to_owned());
                }
            }
            let Some((key, _)) = alias else { continue };
            let here = || self.at.key(key).to_string();
            if twin.is_some() {
                findings.refuse(Code::AliasConflict, here, || {
                    format!("`{key}` and its twin `{name}` are both given; one of them is allowed")
                });
            } else {
                findings.warn(Oddity::SnakeCaseName, here, || format!("read as `{name}`"));
            }
        }
    }

    /// Warns of each of `names` that is present.
    pub(super) fn note(&self, names: &[&str], oddity: Oddity, reading: &str, findings: &mut Findings) {
        for Member { key, .. } in names.iter().filter_map(|name| self.find(name)) {
            findings.warn(oddity, || self.at.key(key).to_string(), || reading.to_owned());
        }
    }
}

/// The strings of an array; what is none is a violation.
pub(super) fn strings<'n>(items: &'n [Node<'_>], at: Place<'_>, findings: &mut Findings) -> Vec<&'n str> {
    let mut texts = Vec::with_capacity(items.len());
    for (n, item) in items.iter().enumerate() {
        match item.as_text() {
            Some(text) => {
                within(text, Limits::MAX_TEXT_BYTES, at.index(n), findings);
                texts.push(text);
            }
            None => wrong_type(at.index(n), item, "a string", findings),
        }
    }
    texts
}

/// Notes a violation if `text` is longer than `most` bytes. The message does not repeat it.
pub(super) fn within(text: &str, most: usize, at: Place<'_>, findings: &mut Findings) {
    if text.len() > most {
        findings.refuse(
            Code::TooLong,
            || at.to_string(),
            || format!("{} bytes; at most {most} are allowed", text.len()),
        );
    }
}

/// As [`within`], for a name that is the last step of `at`: told where its object lies, without the name.
pub(super) fn name_within(name: &str, object: Place<'_>, findings: &mut Findings) {
    let most = Limits::MAX_TEXT_BYTES;
    if name.len() > most {
        findings.refuse(
            Code::TooLong,
            || object.to_string(),
            || format!("the name {} has {} bytes; at most {most} are allowed", shown(name), name.len()),
        );
    }
}

/// Notes a violation: a member of the wrong type that a fence depends on.
pub(super) fn wrong_type(at: Place<'_>, found: &Node<'_>, allowed: &str, findings: &mut Findings) {
    findings.refuse(Code::WrongType, || at.to_string(), || told(found, allowed));
}

/// Notes a warning: a member of the wrong type that is read as absent.
pub(super) fn unexpected_type(at: Place<'_>, found: &Node<'_>, allowed: &str, findings: &mut Findings) {
    findings.warn(
        Oddity::UnexpectedType,
        || at.to_string(),
        || format!("{}; read as absent", told(found, allowed)),
    );
}

fn told(found: &Node<'_>, allowed: &str) -> String {
    let kind = found.kind();
    match found {
        Node::Text(text) => format!("{kind}, {}; allowed is {allowed}", shown(text)),
        Node::Number(number) => format!("{kind}, `{number}`; allowed is {allowed}"),
        Node::Bool(flag) => format!("{kind}, `{flag}`; allowed is {allowed}"),
        _ => format!("{kind}; allowed is {allowed}"),
    }
}

/// Whether `key` is `name` in snake_case: the original protobuf field name, which ProtoJSON readers accept.
fn is_alias(key: &str, name: &str) -> bool {
    if key.len() <= name.len() {
        return false;
    }
    let mut rest = key.bytes();
    name.bytes().all(|b| match b.is_ascii_uppercase() {
        true => rest.next() == Some(b'_') && rest.next() == Some(b.to_ascii_lowercase()),
        false => rest.next() == Some(b),
    }) && rest.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_are_the_protobuf_names() {
        for (key, name, alias) in [
            ("input_modes", "inputModes", true),
            ("oauth2_security_scheme", "oauth2SecurityScheme", true),
            ("open_id_connect_url", "openIdConnectUrl", true),
            ("inputModes", "inputModes", false),
            ("input_mode", "inputModes", false),
            ("input_modes_", "inputModes", false),
            ("Input_modes", "inputModes", false),
            ("url", "url", false),
        ] {
            assert_eq!(is_alias(key, name), alias, "{key}");
        }
    }

    #[test]
    fn null_hides_nothing_but_itself() {
        let members = vec![("inputModes".into(), Node::Null), ("url".into(), Node::Text("u".into()))];
        let view = View { members: &members, at: Place::ROOT };
        let mut findings = Findings::default();
        assert!(!view.has("inputModes"));
        assert_eq!(view.text("url", &mut findings), Some("u"));
        view.tolerate(&["inputModes", "url"], &mut findings);
        let (violations, warnings) = findings.into_parts();
        assert_eq!((violations.len(), warnings.len()), (0, 1));
        assert_eq!(warnings[0].pointer, "/inputModes");
    }
}
